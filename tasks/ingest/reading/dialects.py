"""How a delimited file is written, found in its first records: the way under which they have as many cells as the header.

Looked for are the delimiters `,` tab `;` `|`, and where the usual way leaves records that do not fit, these: a blank behind
the delimiter, quotes inside quotes as \\" and single quotes around cells. `sep=;` as the first line says the delimiter.
"""

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

DELIMITERS = (",", "\t", ";", "|")
_SAMPLE_RECORDS = 100
_SEP_LINE = re.compile(r"\"?sep=(.)\"?\r?\n?", re.IGNORECASE)
_ALL_IN_SINGLE_QUOTES = re.compile(r"'[^']*'(\W'[^']*')*\s*$")
_OTHER_BACKSLASHES = re.compile(r'\\+(?![\\"])')
"""A run of them that does not end at a quote."""
_LONE_BACKSLASH = re.compile(r'(?<!\\)(?:\\\\)*\\(?![\\"])')


@dataclass(frozen=True, slots=True)
class Dialect:
    """What csv.reader is to be told."""

    delimiter: str = ","
    quote: str = '"'
    is_padded: bool = False
    is_escaped: bool = False
    escapes_itself: bool = False
    """Whether a backslash stands before backslashes too, and not before quotes alone."""

    def records(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """The lines' records. Raises csv.Error where quotes do not add up."""
        if self.is_escaped and not self.escapes_itself:
            lines = (_OTHER_BACKSLASHES.sub(lambda found: found[0] * 2, line) for line in lines)
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            quotechar=self.quote,
            escapechar="\\" if self.is_escaped else None,
            skipinitialspace=self.is_padded,
            strict=True,
        )


def said_delimiter(first_line: str) -> str | None:
    """The delimiter that a first line is there to say, as spreadsheets have it."""
    said = _SEP_LINE.fullmatch(first_line)
    return said[1] if said else None


def dialect_of(sample: list[str], delimiter: str | None) -> Dialect:
    """How these first lines of a file are written, the header first; the last may be cut off."""
    fits = {dialect: _fit(dialect, sample) for dialect in [Dialect(one) for one in (delimiter or "".join(DELIMITERS))]}
    best = max(
        fits, key=lambda dialect: (fits[dialect].columns > 1, fits[dialect]) if fits[dialect].columns > 1 else (False,)
    )
    fitting = max([best, *_others(best, sample)], key=lambda dialect: _fit(dialect, sample).share)
    if fitting is best and _ALL_IN_SINGLE_QUOTES.match(sample[0]):
        return replace(best, quote="'")
    return fitting


def _others(usual: Dialect, sample: list[str]) -> Iterator[Dialect]:
    """Ways that are unusual and for which there is a sign in the text."""
    text = "".join(sample)
    if f'{usual.delimiter} "' in text:
        yield replace(usual, is_padded=True)
    if '\\"' in text:
        yield replace(usual, is_escaped=True, escapes_itself=not _LONE_BACKSLASH.search(text))
    if f"{usual.delimiter}'" in text or "\n'" in text:
        yield replace(usual, quote="'")


class _Fit(NamedTuple):
    """The share of records that have as many cells as the header, and how many these are."""

    share: float
    columns: int


def _fit(dialect: Dialect, sample: list[str]) -> _Fit:
    sizes = list(islice(_sizes(dialect, sample), _SAMPLE_RECORDS))
    if not sizes or sizes[0] is None:
        return _Fit(0.0, 0)
    header, others = sizes[0], sizes[1:]
    return _Fit(sum(size == header for size in others) / len(others) if others else 1.0, header)


def _sizes(dialect: Dialect, sample: list[str]) -> Iterator[int | None]:
    """How many cells each record has; None for one that is broken. A record that the sample cuts off is none."""
    at = 0
    while at < len(sample):
        taken = iter(sample[at:])
        records = dialect.records(_counting := _Counting(taken))
        try:
            for cells in records:
                at, _counting.num = at + _counting.num, 0
                if cells:
                    yield len(cells)
            return
        except csv.Error as error:
            if "unexpected end of data" in str(error) and _counting.num < _SAMPLE_RECORDS:
                return  # the sample may end within the record
            yield None
            at += 1


class _Counting:
    """Lines, and how many of them the current record took."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self.num = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.num += 1
        return line
