"""SHA-256 sums of a folder's files, in the file that `sha256sum --check _SHA256SUMS` reads.

Readers of Parquet folders pass over names that begin with an underscore.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

SUMS = "_SHA256SUMS"


def write_checksums(folder: Path) -> None:
    """Sum up the files that lie in a folder now."""
    lines = [f"{_sum(path)}  {path.name}\n" for path in sorted(folder.iterdir())]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def failed_checksums(folder: Path) -> Iterator[str]:
    """What is not as it was summed up, one sentence a file; files beyond those are not looked at."""
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, UnicodeDecodeError):
        yield f"{folder / SUMS}: missing or unreadable, so the files beside it cannot be checked"
        return
    for line in lines:
        wanted, _, name = line.partition("  ")
        path = folder / name
        if not name or not path.is_file():
            yield f"{path}: missing"
        elif _sum(path) != wanted:
            yield f"{path}: its bytes are not those that were written (SHA-256 differs)"


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
