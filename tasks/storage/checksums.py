"""SHA-256 sums of a folder's files, in the file that `sha256sum --check _SHA256SUMS` reads.

Readers of Parquet folders pass over names that begin with an underscore.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

SUMS = "_SHA256SUMS"


def checksum(path: Path) -> str:
    """A file's SHA-256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_digest(path: Path) -> str:
    """A file's BLAKE2b of 256 bits in hexadecimal: what input is known by."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).hexdigest()


def changed(path: Path, wanted: str) -> str | None:
    """What is wrong with a file that had this checksum, as a sentence; None when it has it still."""
    try:
        return (
            None if checksum(path) == wanted else f"{path} is damaged: its SHA-256 is not the one that it was written with"
        )
    except FileNotFoundError:
        return f"{path} is missing"


def write_checksums(folder: Path) -> None:
    """Sum up the files that lie in a folder now."""
    lines = [f"{checksum(path)}  {path.name}\n" for path in sorted(folder.iterdir())]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def failed_checksums(folder: Path) -> Iterator[str]:
    """What is not as it was summed up, one sentence a file; files beyond those are not looked at."""
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, UnicodeDecodeError):
        yield f"{folder / SUMS} is missing or unreadable, so the files beside it cannot be checked"
        return
    for line in lines:
        wanted, _, name = line.partition("  ")
        if problem := changed(folder / name, wanted) if name else f"{folder / SUMS} is damaged":
            yield problem


def is_whole(folder: Path) -> bool:
    """Whether a folder is there with all that was summed up."""
    return folder.is_dir() and not any(failed_checksums(folder))
