"""The segments of a run's journals: what they are called, in which order they count, which is next, and which are missing.

`engine-<engine>.<epoch>.<part>.journal`: an epoch is one start of the engine's process, its parts are filled one by one.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_NAME = re.compile(r"engine-(\d+)\.(\d+)\.(\d+)\.journal")


class Place(NamedTuple):
    """Where a segment belongs; `since` is the first epoch that it speaks for."""

    engine: int
    epoch: int
    part: int
    since: int


def segments(folder: Path, engine: int | None = None) -> list[Path]:
    """All segments of a run, or of one engine, oldest first within an engine."""
    found = folder.glob(f"engine-{'*' if engine is None else engine}.*.*.journal")
    return sorted(path for path in found if _NAME.fullmatch(path.name))


def segment_path(folder: Path, engine: int, epoch: int, part: int) -> Path:
    """Where a segment lies."""
    return folder / f"engine-{engine}.{epoch:06d}.{part:06d}.journal"


def place_of(path: Path) -> Place:
    """What a segment's name says."""
    name = _NAME.fullmatch(path.name)
    engine, epoch, part = map(int, name.groups()) if name else (0, 0, 0)
    return Place(engine, epoch, part, epoch)


def next_epoch(folder: Path, engine: int) -> int:
    """An epoch that sorts behind all that there are."""
    return max((place_of(path).epoch for path in segments(folder, engine)), default=0) + 1


def missing(places: Sequence[Place]) -> Iterator[str]:
    """Segments that must have been there: an epoch before another, a part before another. The newest leaves no gap."""
    for engine in sorted({place.engine for place in places}):
        mine = [place for place in places if place.engine == engine]
        there = {epoch for place in mine for epoch in range(place.since, place.epoch + 1)}
        for epoch in range(1, max(place.epoch for place in mine) + 1):
            parts = {place.part for place in mine if place.epoch == epoch}
            if epoch not in there:
                yield f"engine-{engine}: the segments of epoch {epoch} are missing"
            yield from (
                f"engine-{engine}: part {part} of epoch {epoch} is missing"
                for part in range(max(parts, default=0))
                if part not in parts
            )
