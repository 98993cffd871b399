"""SourceFile: one input file, and what its name says of it."""

from dataclasses import dataclass, field
from pathlib import Path

from tasks.ingest.rows import as_unicode
from tasks.storage.remote import redacted
from tasks.storage.streams import uncompressed_name

FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "tsv", ".txt": "txt"}
FORMATS |= {".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".arrows": "arrow", ".feather": "arrow"}
FORMATS |= {".ipc": "arrow"}

Seen = tuple[int, int, int]
"""Size, time of the last change in ns, and inode: what tells that a file is not what it was."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One input file: its source, where it is read from, and its name within the source (unique there).

    `origin` is where it came from when `path` is a copy, `sniffed` its format where the name has none, and `seen` what it
    looked like when it was found.
    """

    source: str
    path: Path
    name: str
    origin: str | None = None
    sniffed: str | None = None
    seen: Seen | None = field(default=None, compare=False)

    @property
    def format(self) -> str | None:
        """What the file's ending says, behind which another may tell its compression; None when it says nothing."""
        return self.sniffed or format_of(self.path)

    @property
    def shown(self) -> str:
        """Where it lies, for people, without anything secret."""
        return as_unicode(redacted(self.origin) if self.origin else str(self.path))


def format_of(path: Path) -> str | None:
    """What a file's ending says."""
    return FORMATS.get(uncompressed_name(path).suffix.lower())


def source_file(source: str, path: Path, name: str, *, origin: str | None = None, sniffed: str | None = None) -> SourceFile:
    """With names that tables can hold."""
    return SourceFile(as_unicode(source), path, as_unicode(name), origin, sniffed)


def stem_of(path: Path) -> str:
    """A file's name without its endings of format and compression: the source that it is by itself."""
    return uncompressed_name(path).stem


def look_at(path: Path) -> Seen:
    """What the file looks like now. Raises OSError when it is not there."""
    about = path.stat()
    return about.st_size, about.st_mtime_ns, about.st_ino


def changed_since(file: SourceFile) -> bool:
    """Whether the file is another than when it was found, or gone."""
    try:
        return file.seen is not None and look_at(file.path) != file.seen
    except OSError:
        return True
