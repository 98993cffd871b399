"""Outcomes beside the input rows that they came from, both read in the same order, a row in memory at a time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from tasks.core.dataset import InputFile
from tasks.core.errors import InputError
from tasks.export.columns import Row
from tasks.export.openai import by_request


class Original(Protocol):
    """An input file that can be read once more."""

    @property
    def file(self) -> InputFile: ...

    @property
    def path(self) -> Path: ...

    @property
    def is_table(self) -> bool:
        """Whether its columns have Arrow types."""
        ...

    def rows(self) -> Iterator[tuple[int, Row]]:
        """Each row's line and its columns."""
        ...


class Beside:
    """Hands out the choices of one input row after the other; `outcomes` are in the input's order.

    Raises InputError where the rows of a file are not those that the run has read.
    """

    def __init__(self, outcomes: Iterator[Row]) -> None:
        self._groups = by_request(outcomes)
        self._next = next(self._groups, None)

    def choices(self, original: Original, line: int) -> list[Row]:
        """The choices of the row on this line, which must be the next."""
        found = self._next
        place = (original.file.source, original.file.name, line)
        if found is None or (found[0]["source"], found[0]["file"], found[0]["line"]) != place:
            raise _changed(original, f"line {line} was not there")
        self._next = next(self._groups, None)
        return found

    def end(self, original: Original) -> None:
        """The file has no more rows."""
        left = self._next
        if left is not None and (left[0]["source"], left[0]["file"]) == (original.file.source, original.file.name):
            raise _changed(original, f"line {left[0]['line']} is not there any more")


def _changed(original: Original, how: str) -> InputError:
    remedy = "put the file back, or export without --join"
    return InputError(f"{original.path} has changed since the run has read it: {how}; {remedy}")
