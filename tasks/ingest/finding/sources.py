"""Paths that a user names to the files of each business source, and the digest that names a dataset.

Named are files, folders, patterns (`data/**/*.jsonl`), URLs (`s3://bucket/prefix`), pipes, and `-` for standard input. A
folder with sub-folders is an inbox: each sub-folder is a source. Any other folder is one source, and a single file is a
source named like itself. Links are followed; one that leads nowhere counts as a file, so that it is missed.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from glob import glob, has_magic
from pathlib import Path, PurePosixPath
from tempfile import mkdtemp
from urllib.parse import urlsplit
from urllib.request import url2pathname

from tasks.core.errors import InputError
from tasks.ingest.finding.elsewhere import from_pipe, from_stdin, from_url, is_pipe, is_stdin
from tasks.ingest.finding.folders import Note, by_source, is_data, is_unfinished, names_under, sub_folders, whole
from tasks.ingest.finding.settling import LIMIT_S, wait_until_still
from tasks.ingest.finding.source_file import SourceFile, changed_since, look_at, source_file, stem_of
from tasks.ingest.rows import as_unicode
from tasks.storage.checksums import content_digest
from tasks.storage.remote import is_url, redacted

__all__ = ["SourceFile", "changed_since", "digest_file", "discover", "source_folders"]


@dataclass(slots=True)
class _Search:
    """What holds for everything that is named, and which of the files found were named by themselves."""

    source: str | None
    is_document: bool
    copies: Path
    note: Note
    named: set[Path] = field(default_factory=set)
    num_pipes: int = 0


def discover(
    paths: Sequence[str | Path],
    source: str | None,
    *,
    format: str | None = None,
    copies: Path | None = None,
    note: Note = lambda _: None,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> list[SourceFile]:
    """All input files in a fixed order. `copies` is where input goes that is no local file; `note` hears what is left out.

    Raises InputError for a path that is missing or still being written, and when nothing is found.
    """
    is_elsewhere = any(is_url(str(path)) or is_stdin(str(path)) or is_pipe(str(path)) for path in paths)
    folder = copies or (Path(mkdtemp(prefix="nightbatch-")) if is_elsewhere else Path())
    search = _Search(source, format == "document", folder, note)
    found: dict[tuple[str, str], SourceFile] = {}
    named = (file for path in paths for file in _files_of(str(path), search))
    for file in sorted(named, key=lambda file: (file.source, file.name)):
        first = found.setdefault((file.source, file.name), file)
        if os.path.realpath(first.path) != os.path.realpath(file.path):
            both = f"{first.shown} and {file.shown}"
            raise InputError(f"{both} would both be {file.name!r} of source {file.source!r}; rename one of them")
    whole_files = _still(list(found.values()), search, clock, sleep)
    if not whole_files:
        raise InputError(
            f"no input files in {', '.join(redacted(str(path)) for path in paths)}; put .jsonl or .csv files there"
        )
    return whole_files


def _still(
    files: list[SourceFile], search: _Search, clock: Callable[[], float], sleep: Callable[[float], None]
) -> list[SourceFile]:
    """The files that are not being written, as they look now."""
    local = [file.path for file in files if file.origin is None]
    growing = wait_until_still(local, clock, sleep, named=search.named)
    still: list[SourceFile] = []
    for file in files:
        if file.path not in growing:
            still.append(_as_seen(file))
        elif file.path in search.named:
            raise InputError(f"{file.path} is still being written after {LIMIT_S:.0f} s; run again when it is whole")
        else:
            search.note(f"{file.path} is still being written; left for the next run")
    return still


def _as_seen(file: SourceFile) -> SourceFile:
    try:
        return replace(file, seen=look_at(file.path))
    except OSError:  # its digest says so, with its name
        return file


def _files_of(place: str, search: _Search) -> Iterator[SourceFile]:
    if is_stdin(place):
        yield from_stdin(search.source, search.copies)
        return
    if is_url(place) and urlsplit(place).scheme.lower() != "file":
        yield from from_url(place, search.source, search.copies, search.note, is_document=search.is_document)
        return
    if is_url(place):
        place = url2pathname(urlsplit(place).path)
    place = os.path.expanduser(place)  # Path.expanduser raises for a user that is not there
    try:
        if has_magic(place) and not os.path.lexists(place):
            yield from _files_fitting(place, search)
        else:
            yield from _files_at(Path(place), search)
    except OSError as error:
        raise InputError(f"cannot read {error.filename or place}: {error.strerror}") from error


def _files_at(path: Path, search: _Search) -> Iterator[SourceFile]:
    if is_pipe(str(path)):
        search.num_pipes += 1
        yield from_pipe(str(path), search.num_pipes, search.source, search.copies)
    elif path.is_dir():
        yield from _files_in(path, search)
    elif path.is_file():
        search.named.add(path)
        yield source_file(search.source or stem_of(path), path, path.name)
    elif path.exists():
        raise InputError(f"{path} is neither a file nor a folder; write what comes out of it to a file first")
    else:
        raise InputError(f"no such file or folder: {path}")


def _files_in(folder: Path, search: _Search) -> Iterator[SourceFile]:
    folders = sub_folders(folder)
    names = whole(names_under(folder, folders), str(folder), search.note, is_document=search.is_document)
    own = folder.resolve().name
    for source, within, name in by_source(names, folders, own, str(folder)):
        yield source_file(search.source or source, folder / name, within)


def _files_fitting(pattern: str, search: _Search) -> Iterator[SourceFile]:
    """Files by a pattern that no shell has replaced: each a source like itself; folders as if they were named."""
    found = [Path(path) for path in sorted(glob(pattern, recursive=True))]
    fixed = Path(os.path.dirname(pattern[: next(i for i, letter in enumerate(pattern) if letter in "*?[")]))
    num_files = 0
    for path in found:
        name = path.relative_to(fixed).as_posix()
        if path.is_dir():
            if "**" not in pattern:
                num_files += 1
                yield from _files_in(path, search)
        elif is_unfinished(path.name):
            search.note(f"{path} is left out: its name says that it is not whole yet")
        elif path.is_file() and is_data(PurePosixPath(name), is_document=search.is_document):
            num_files += 1
            yield source_file(search.source or stem_of(path), path, name)
    if not num_files:
        raise InputError(f"no file fits the pattern {pattern}")


def digest_file(file: SourceFile) -> str:
    """The hexadecimal BLAKE2b of a file's bytes. Raises InputError for one that cannot be read, or changes meanwhile."""
    try:
        digest = content_digest(file.path)
    except OSError as error:
        raise InputError(f"cannot read {file.shown}: {error.strerror}") from error
    if changed_since(file):
        raise InputError(f"{file.shown} has changed while it was read: run again when it is whole")
    return digest


def source_folders(paths: Sequence[str | Path], source: str | None) -> list[tuple[str, Path]]:
    """Each local folder that is a source, with the source's name: those that are named, and the sub-folders of an inbox."""
    found: list[tuple[str, Path]] = []
    for place in map(str, paths):
        if is_url(place) or is_stdin(place) or is_pipe(place):
            continue
        place = os.path.expanduser(place)
        is_pattern = has_magic(place) and not os.path.lexists(place)
        for path in map(Path, sorted(glob(place)) if is_pattern and "**" not in place else [place]):
            if path.is_dir():
                inner = [(name, path / name) for name in sub_folders(path)]
                found += inner or [(path.resolve().name, path)]
    return [(as_unicode(source or name), folder) for name, folder in found]
