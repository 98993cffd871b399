"""Paths that a user names to the files of each business source, and the digest that names a dataset.

A folder with sub-folders is an inbox: each sub-folder is a source. Any other folder is one source, and a single file is a
source named like itself. Notes that lie beside data (README, LICENSE, hidden files, *.md, *.toml) are not data.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.core.errors import InputError

_NOT_DATA_NAMES = ("README", "LICENSE", "NOTICE", "COPYING")
_NOT_DATA_SUFFIXES = (".md", ".toml")
_FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv"}


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One input file: its source, its path, and its name within the source (unique there)."""

    source: str
    path: Path
    name: str

    @property
    def format(self) -> str | None:
        """jsonl, csv, tsv, or None when the file's ending says neither."""
        return _FORMATS.get(self.path.suffix.lower())


def discover(paths: Sequence[Path], source: str | None) -> list[SourceFile]:
    """All input files in a fixed order. Raises InputError for a path that is missing, and when nothing is found."""
    files = sorted({file for path in paths for file in _files_of(path, source)}, key=lambda f: (f.source, f.name))
    if not files:
        raise InputError(f"no input files in {', '.join(map(str, paths))}; put .jsonl or .csv files there")
    seen: dict[tuple[str, str], Path] = {}
    for file in files:
        other = seen.setdefault((file.source, file.name), file.path)
        if other != file.path:
            raise InputError(f"{file.path} and {other} have the same name in source {file.source!r}; use --source")
    return files


def _files_of(path: Path, source: str | None) -> Iterable[SourceFile]:
    path = path.expanduser()
    if not path.exists():
        raise InputError(f"no such file or folder: {path}")
    if path.is_file():
        return [SourceFile(source or path.stem, path, path.name)]
    folders = [child for child in sorted(path.iterdir()) if child.is_dir() and not child.name.startswith(".")]
    if not folders:
        return _files_in(path, source or path.resolve().name)
    loose = [child.name for child in path.iterdir() if child.is_file() and _is_data(child)]
    if loose:
        raise InputError(f"{path} has both sub-folders and files ({loose[0]}): put each file into its source's folder")
    return [file for folder in folders for file in _files_in(folder, source or folder.name)]


def _files_in(folder: Path, source: str) -> list[SourceFile]:
    found = sorted(file for file in folder.rglob("*") if file.is_file() and _is_data(file))
    return [SourceFile(source, file, file.relative_to(folder).as_posix()) for file in found]


def _is_data(path: Path) -> bool:
    return not (
        path.name.startswith(".") or path.stem.upper() in _NOT_DATA_NAMES or path.suffix.lower() in _NOT_DATA_SUFFIXES
    )


def digest_files(files: Sequence[SourceFile]) -> str:
    """A hexadecimal BLAKE2b over the sources, names and bytes of all files. Raises InputError for an unreadable one."""
    total = hashlib.blake2b(digest_size=32)
    for file in files:
        total.update(f"{file.source}\0{file.name}\0".encode("utf-8", "surrogateescape"))
        try:
            with file.path.open("rb") as stream:
                total.update(hashlib.file_digest(stream, "blake2b").digest())
        except OSError as error:
            raise InputError(f"cannot read {file.path}: {error.strerror}") from error
    return total.hexdigest()
