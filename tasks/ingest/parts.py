"""Part: whole files of one source, read by one set of rules into a part of each table, and what is known of it.

A part is written once and used by every dataset that has all of its files as they were, so that reading a folder again
reads only what is new. Its record is written behind its tables: a part that has one is whole.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tasks.core.dataset import InputFile
from tasks.core.errors import DamageError
from tasks.storage.atomic import read_json, write_json
from tasks.storage.checksums import changed

_MAX_BYTES = 64 << 20
_MAX_FILES = 10_000


@dataclass(frozen=True, slots=True)
class Part:
    """`files` are (name, BLAKE2b), `examples` are rejects: a reason and a sentence for people.

    The second of the tables, the rejects, is there only when there are any.
    """

    part_id: str
    ds: str
    files: tuple[tuple[str, str], ...]
    rows: int
    requests: int
    truncated: int
    reject_reasons: dict[str, int]
    examples: tuple[tuple[str, str], ...]
    tables: tuple[str, ...]
    checksums: tuple[str, ...]
    """SHA-256 of each table."""

    @property
    def requests_path(self) -> str:
        return self.tables[0]

    @property
    def problem(self) -> str | None:
        """What is wrong with the part's tables, as a sentence."""
        pairs = zip(self.tables, self.checksums, strict=True)
        return next(filter(None, (changed(Path(table), wanted) for table, wanted in pairs)), None)

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "Part":
        """The part of a record."""
        lists = {name: tuple(values[name]) for name in ("tables", "checksums")}
        pairs = {name: tuple((one, other) for one, other in values[name]) for name in ("files", "examples")}
        return Part(**{**values, **lists, **pairs})


def record(part: Part, folder: Path) -> None:
    """Make the part known to later readings by the same rules, whose records are in this folder."""
    write_json(folder / f"{part.part_id}.json", asdict(part))


def known_parts(folder: Path, files: Sequence[InputFile]) -> list[Part]:
    """Parts that together hold some of these files, none of them twice, and nothing else; the largest first.

    One that is damaged is passed over: its files are read again.
    """
    wanted = {(file.name, file.digest) for file in files}
    found = [part for part in _records(folder) if wanted.issuperset(part.files)]
    chosen: list[Part] = []
    for part in sorted(found, key=lambda part: (-len(part.files), part.part_id)):
        if wanted.issuperset(part.files) and part.problem is None:
            chosen.append(part)
            wanted.difference_update(part.files)
    return chosen


def _records(folder: Path) -> Iterator[Part]:
    for path in sorted(folder.glob("*.json")):
        try:
            values = read_json(path)
        except DamageError:
            continue
        if values is not None:
            yield Part.from_dict(values)


def packs(sizes: Sequence[int]) -> Iterator[range]:
    """Neighbouring files, by their sizes in bytes, in numbers that are worth a part: a large one is alone."""
    begin, total = 0, 0
    for place, size in enumerate(sizes):
        if place > begin and (total + size > _MAX_BYTES or place - begin >= _MAX_FILES):
            yield range(begin, place)
            begin, total = place, 0
        total += size
    if begin < len(sizes):
        yield range(begin, len(sizes))
