"""Input that is no local file: standard input, pipes, and URLs. All of it is copied first.

So it can be read as often as it takes, and a resume does not depend on what was there once.
"""

import stat
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from urllib.parse import unquote

import orjson

from tasks.core.errors import InputError
from tasks.ingest.finding.folders import Note, by_source, is_unfinished, whole
from tasks.ingest.finding.source_file import SourceFile, format_of, source_file, stem_of
from tasks.storage.remote import RemoteFile, list_remote, redacted
from tasks.storage.spool import fetch, keep
from tasks.storage.streams import BROKEN, open_bytes, peek

STDIN = "-"
_HEAD = 65_536
_STDINS = (STDIN, "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_DESCRIPTORS = ("/dev/fd/", "/proc/self/fd/")
_MAGIC = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "arrow"}


def is_stdin(place: str) -> bool:
    return place in _STDINS


def is_pipe(place: str) -> bool:
    """Whether it can be read only once: a named pipe, or what a shell puts in the place of <(command)."""
    if place.startswith(_DESCRIPTORS):
        return Path(place).exists()
    try:
        return stat.S_ISFIFO(Path(place).stat().st_mode)
    except (OSError, ValueError):
        return False


def from_stdin(source: str | None, copies: Path, stream: BinaryIO | None = None) -> SourceFile:
    """All of standard input. Raises InputError at a terminal, where it would wait for somebody to type."""
    if stream is None:
        if sys.stdin is None or sys.stdin.isatty():
            raise InputError("standard input is a terminal; pipe a file into it, or name one instead of -")
        stream = sys.stdin.buffer
    path = keep(stream, copies, "stdin")
    return source_file(source or "stdin", path, "stdin", origin="standard input", sniffed=sniffed_format(path))


def from_pipe(place: str, number: int, source: str | None, copies: Path) -> SourceFile:
    """All that comes out of a pipe. One without a name of its own is named by its place among the others."""
    path = Path(place)
    name = (f"pipe-{number}" if number > 1 else "pipe") if place.startswith(_DESCRIPTORS) else path.name
    with path.open("rb") as stream:
        copy = keep(stream, copies, name)
    sniffed = format_of(copy) or sniffed_format(copy)
    return source_file(source or stem_of(Path(name)), copy, name, origin=place, sniffed=sniffed)


def sniffed_format(path: Path) -> str | None:
    """The format that a file without a telling name shows by its first bytes; None where it is neither JSON nor a table."""
    try:
        with open_bytes(path) as stream:
            head = peek(stream, _HEAD)
    except BROKEN:
        return None
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            return kind
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"{"):
        return "jsonl" if text.partition(b"\n")[0].rstrip().endswith(b"}") or not _is_json(text) else "json"
    return "json" if text.startswith(b"[") else None if text else "jsonl"


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return len(text) == _HEAD or text.startswith((b"{\n", b"{\r\n"))
    return True


def from_url(url: str, source: str | None, copies: Path, note: Note, *, is_document: bool) -> Iterator[SourceFile]:
    """The file at a URL, or those under it, as under a folder. Raises InputError when there is none or it cannot be read."""
    found, is_file = list_remote(url)
    if is_file:
        [file] = found
        yield _fetched(source or stem_of(Path(file.name)), file, file.name, copies, note)
        return
    shown = redacted(found[0].url if found else url)
    files = {file.name: file for file in found if not file.name.endswith("/")}
    names = whole(sorted(files), shown, note, is_document=is_document)
    folders = sorted({name.partition("/")[0] for name in names if "/" in name})
    for of, within, name in by_source(names, folders, PurePosixPath(shown).name or "remote", shown):
        yield _fetched(source or of, files[name], within, copies, note)


def _fetched(source: str, file: RemoteFile, name: str, copies: Path, note: Note) -> SourceFile:
    if is_unfinished(name):
        note(f"{redacted(file.url)}: the name of {name} says that it is not whole yet")
    path = fetch(file, copies)
    kind = format_of(path) or sniffed_format(path)
    return source_file(source, path, name, origin=_origin(file), sniffed=kind)


def _origin(file: RemoteFile) -> str:
    shown = redacted(file.url).rstrip("/")
    return shown if unquote(shown).endswith(f"/{file.name}") else f"{shown}/{file.name}"
