"""Paths that a user names to the files of each business source, and the digest that names a dataset.

A folder with sub-folders is an inbox: each sub-folder is a source. Any other folder is one source, and a single file is a
source named like itself. Notes and templates that lie beside data (README, LICENSE, *.md, *.toml, *.j2, all that is hidden)
are not data.
Links are followed; one that leads nowhere counts as a file, so that it is missed.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.core.errors import InputError
from tasks.ingest.rows import as_unicode
from tasks.storage.streams import uncompressed_name

_NOT_DATA_NAMES = ("README", "LICENSE", "NOTICE", "COPYING")
TEMPLATE_SUFFIXES = (".j2", ".jinja", ".jinja2")
_NOT_DATA_SUFFIXES = (".md", ".toml", *TEMPLATE_SUFFIXES)
_FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "tsv", ".txt": "txt"}
_FORMATS |= {".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow"}
_TABLES = _FORMATS.keys() - {".txt"}


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One input file: its source, its path, and its name within the source (unique there)."""

    source: str
    path: Path
    name: str

    @property
    def format(self) -> str | None:
        """What the file's ending says, behind which another may tell its compression; None when it says nothing."""
        return _FORMATS.get(uncompressed_name(self.path).suffix.lower())


def discover(paths: Sequence[Path], source: str | None) -> list[SourceFile]:
    """All input files in a fixed order. Raises InputError for a path that is missing, and when nothing is found."""
    found: dict[tuple[str, str], SourceFile] = {}
    named = (file for path in paths for file in _files_of(path, source))
    for file in sorted(named, key=lambda file: (file.source, file.name)):
        first = found.setdefault((file.source, file.name), file)
        if os.path.realpath(first.path) != os.path.realpath(file.path):
            both = f"{first.path} and {file.path}"
            raise InputError(f"{both} would both be {file.name!r} of source {file.source!r}; rename one of them")
    if not found:
        raise InputError(f"no input files in {', '.join(map(str, paths))}; put .jsonl or .csv files there")
    return list(found.values())


def source_folders(paths: Sequence[Path], source: str | None) -> list[tuple[str, Path]]:
    """Each folder that is a source, with the source's name."""
    expanded = (Path(os.path.expanduser(path)) for path in paths)
    found = [(source or _name_of(path, folder), folder) for path in expanded for folder in _folders_of(path)]
    return [(as_unicode(name), folder) for name, folder in found]


def _folders_of(path: Path) -> list[Path]:
    """A folder's sub-folders where it is an inbox, else itself; none where it is no folder."""
    if not path.is_dir():
        return []
    inner = [child for child in sorted(path.iterdir()) if child.is_dir() and not child.name.startswith(".")]
    return inner or [path]


def _name_of(path: Path, folder: Path) -> str:
    return path.resolve().name if folder == path else folder.name


def _files_of(path: Path, source: str | None) -> list[SourceFile]:
    path = Path(os.path.expanduser(path))  # Path.expanduser raises for a user that is not there
    try:
        if path.is_dir():
            return _files_of_folder(path, source)
        if path.is_file():
            return [_source_file(source or path.stem, path, path.name)]
        is_there = path.exists()
    except OSError as error:
        raise InputError(f"cannot read {error.filename or path}: {error.strerror}") from error
    if is_there:
        raise InputError(f"{path} is neither a file nor a folder; write what comes out of it to a file first")
    raise InputError(f"no such file or folder: {path}")


def _files_of_folder(path: Path, source: str | None) -> list[SourceFile]:
    folders = _folders_of(path)
    if folders != [path]:
        loose = sorted(child.name for child in path.iterdir() if not child.is_dir() and _is_data(child))
        if loose:
            raise InputError(f"{path} has both sub-folders and files ({loose[0]}): put each file into its source's folder")
    return [file for folder in folders for file in _files_in(folder, source or _name_of(path, folder))]


def _files_in(folder: Path, source: str) -> list[SourceFile]:
    return [_source_file(source, file, file.relative_to(folder).as_posix()) for file in _walk(folder) if _is_data(file)]


def _walk(folder: Path) -> Iterator[Path]:
    """Everything but folders under a folder. None is entered twice: a link may lead back up."""
    entered: set[str] = set()
    for here, folders, names in os.walk(folder, onerror=_give_up, followlinks=True):
        real = os.path.realpath(here)
        folders[:] = [] if real in entered else sorted(name for name in folders if not name.startswith("."))
        if real not in entered:
            yield from (Path(here, name) for name in sorted(names))
        entered.add(real)


def _give_up(error: OSError) -> None:
    raise error


def _is_data(path: Path) -> bool:
    if path.name.startswith(".") or path.suffix.lower() in _NOT_DATA_SUFFIXES:
        return False
    if path.stem.upper() in _NOT_DATA_NAMES and path.suffix.lower() not in _TABLES:
        return False
    return path.is_file() or not path.exists()


def _source_file(source: str, path: Path, name: str) -> SourceFile:
    return SourceFile(as_unicode(source), path, as_unicode(name))


def digest_file(file: SourceFile) -> str:
    """The hexadecimal BLAKE2b of a file's bytes. Raises InputError for an unreadable one."""
    try:
        with file.path.open("rb") as stream:
            return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=32)).hexdigest()
    except OSError as error:
        raise InputError(f"cannot read {file.path}: {error.strerror}") from error
