"""The segments of a run's journals: what they are called, in which order they count, and which is next.

`engine-<engine>.<epoch>.<part>.journal`: an epoch is one start of the engine's process, its parts are filled one by one.
"""

from collections.abc import Iterator
from pathlib import Path


def segments(folder: Path, engine: int | None = None) -> list[Path]:
    """All segments of a run, or of one engine, oldest first within an engine."""
    return sorted(folder.glob(f"engine-{'*' if engine is None else engine}.*.*.journal"))


def segment_path(folder: Path, engine: int, epoch: int, part: int) -> Path:
    """Where a segment lies."""
    return folder / f"engine-{engine}.{epoch:06d}.{part:06d}.journal"


def next_epoch(folder: Path, engine: int) -> int:
    """An epoch that sorts behind all that there are."""
    return max(_epochs(folder, engine), default=0) + 1


def _epochs(folder: Path, engine: int) -> Iterator[int]:
    return (int(path.name.split(".")[1]) for path in segments(folder, engine))
