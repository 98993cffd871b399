"""A CSV or TSV file with a header to its rows, in the memory of one row. Cells stay text; an empty one is None.

Rows without any cell filled are blank and not rows. Quoting is taken at its word: a row whose quotes do not add up costs
its first line, and reading goes on with the next one, so that a quote that is never closed does not swallow the file.
"""

import csv
import io
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from tasks.ingest.reading.dialects import Dialect, dialect_of, said_delimiter
from tasks.ingest.rows import MAX_ROW_BYTES, NOT_UTF8, Fault, Row, as_unicode, raw_text
from tasks.storage.streams import OnBytes, open_bytes

_SAMPLE_CHARS = 65_536
_SKIPPED_CHARS = 1 << 20
_MAX_RECORD_LINES = 1_000_000
csv.field_size_limit(MAX_ROW_BYTES)


class _Cut(str):
    """The beginning of a line that is longer than a row may be, and which was read over."""

    __slots__ = ()


class _TooLargeError(csv.Error):
    """A record that is larger than a row may be."""


class _Lines:
    """A file's lines for csv.reader, and which of them the current record took.

    A record ends with an error where it is too large for memory: in a line that is too long, or in too many lines, as of a
    quote that is never closed.
    """

    def __init__(self, lines: Iterable[str], first: int) -> None:
        self._lines = iter(lines)
        self._again: deque[str] = deque()
        self._taken: list[str] = []
        self._first = first

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self._lines)
        self._taken.append(line)
        if type(line) is _Cut:
            raise _TooLargeError(f"the line is longer than {MAX_ROW_BYTES:,} bytes")
        if len(self._taken) > _MAX_RECORD_LINES:
            raise _TooLargeError(f"a quote is opened and not closed within {_MAX_RECORD_LINES:,} lines")
        return line

    def begin_record(self) -> int:
        """What was taken is done with; the number of the line that comes next."""
        self._first += len(self._taken)
        self._taken = []
        return self._first

    def put_back(self) -> None:
        """Leave the record its first line and read the others again."""
        self._again.extendleft(reversed(self._taken[1:]))
        del self._taken[1:]

    @property
    def raw(self) -> str:
        """The current record as it stands in the file."""
        return raw_text("".join(self._taken).encode("utf-8", "surrogateescape"))


def read_csv(
    path: Path, *, delimiter: str | None, encoding: str | None = None, on_bytes: OnBytes | None = None
) -> Iterator[Row]:
    """Rows of a delimited file; how it is written, save a delimiter that is given, its first records tell."""
    with open_bytes(path, encoding, on_bytes) as raw:
        stream = io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="")
        bounded = _bounded(stream)
        sample, skipped, dialect = _begun(bounded, delimiter)
        lines = _Lines(chain(sample, bounded), 1 + skipped)
        records = _records(lines, dialect)
        line, header = next((record for record in records if record[1]), (1, []))  # blank lines may go before it
        if isinstance(header, Fault):
            yield Row(line, None, lines.raw, header, True)
            return
        names = [as_unicode(name).strip() for name in header]
        repeated = next((name for name, times in Counter(names).items() if name and times > 1), None)
        for line, cells in records:
            if isinstance(cells, Fault):
                yield Row(line, None, lines.raw, cells, True)
            elif not _is_blank(cells):
                yield Row(line, None, lines.raw, _content(names, repeated, cells), True)


def _bounded(stream: TextIO) -> Iterator[str]:
    """The stream's lines; of one that is too long its beginning."""
    for line in iter(partial(stream.readline, MAX_ROW_BYTES), ""):
        if len(line) < MAX_ROW_BYTES or line.endswith(("\n", "\r")):
            yield line
            continue
        while (more := stream.readline(_SKIPPED_CHARS)) and not more.endswith(("\n", "\r")):
            pass
        yield _Cut(line[:_SAMPLE_CHARS])


def _begun(stream: Iterator[str], delimiter: str | None) -> tuple[list[str], int, Dialect]:
    """The first lines, how many before them were no part of the table, and how the table is written."""
    sample: list[str] = []
    skipped, num_chars = 0, 0
    while num_chars < _SAMPLE_CHARS and (line := next(stream, "")):
        if not sample and not skipped and (said := said_delimiter(line)):
            delimiter, skipped = said, 1
            continue
        sample.append(line)
        num_chars += len(line)
    return sample, skipped, dialect_of(sample, delimiter) if sample else Dialect()


def _records(lines: _Lines, dialect: Dialect) -> Iterator[tuple[int, list[str] | Fault]]:
    """Each record's line and cells."""
    reader = dialect.records(lines)
    while True:
        line = lines.begin_record()
        try:
            cells = next(reader, None)
        except csv.Error as error:
            lines.put_back()
            reason = "row_too_large" if isinstance(error, _TooLargeError) else "malformed_csv"
            yield line, Fault(reason, f"not valid CSV: {_explained(error)}")
            continue
        if cells is None:
            return
        yield line, cells


def _explained(error: csv.Error) -> str:
    return "a quote is opened and never closed" if "unexpected end of data" in str(error) else str(error)


def _is_blank(cells: list[str]) -> bool:
    """An empty line, or a row of delimiters alone such as spreadsheets leave behind (but a lone "" is a cell)."""
    return not cells or (len(cells) > 1 and not any(cells))


def _content(names: list[str], repeated: str | None, cells: list[str]) -> Mapping[str, Any] | Fault:
    if repeated is not None:
        return Fault("malformed_csv", f"two columns are named {repeated!r}; rename one in the header")
    if len(cells) != len(names):
        wanted = "1 column; text with delimiters in it belongs in quotes" if len(names) == 1 else f"{len(names)} columns"
        return Fault("malformed_csv", f"{len(cells)} cells in a row of a table with {wanted}")
    try:
        "".join(cells).encode("utf-8")
    except UnicodeEncodeError:
        return Fault("encoding", NOT_UTF8)
    return {name: cell or None for name, cell in zip(names, cells, strict=True)}
