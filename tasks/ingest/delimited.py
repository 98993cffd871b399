"""A CSV or TSV file with a header to its rows, in the memory of one row. Cells stay text; an empty one is None.

Rows without any cell filled are blank and not rows. Quoting is taken at its word: a row whose quotes do not add up costs
its first line, and reading goes on with the next one, so that a quote that is never closed does not swallow the file.
"""

import csv
import io
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from tasks.ingest.rows import MAX_ROW_BYTES, Fault, Row, as_unicode, raw_text, utf16
from tasks.storage.streams import open_bytes, peek

_DELIMITERS = (",", "\t", ";", "|")
csv.field_size_limit(MAX_ROW_BYTES)


class _Lines:
    """A file's lines for csv.reader, and which of them the current record took."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._again: deque[str] = deque()
        self._taken: list[str] = []
        self._first = 1

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self._lines)
        self._taken.append(line)
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


def read_csv(path: Path, *, delimiter: str | None) -> Iterator[Row]:
    """Rows of a delimited file; the delimiter is read off the header when it is not given."""
    with open_bytes(path) as raw:
        if fault := utf16(peek(raw, 2), path.name):
            yield fault
            return
        stream = io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="")
        header_line = stream.readline()
        lines = _Lines(chain([header_line] if header_line else [], stream))
        records = _records(lines, delimiter or max(_DELIMITERS, key=header_line.count))
        line, header = next(records, (1, []))
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


def _records(lines: _Lines, delimiter: str) -> Iterator[tuple[int, list[str] | Fault]]:
    """Each record's line and cells."""
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        line = lines.begin_record()
        try:
            cells = next(reader, None)
        except csv.Error as error:
            lines.put_back()
            yield line, Fault("malformed_csv", f"not valid CSV: {_explained(error)}")
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
        return Fault("malformed_csv", f"{len(cells)} cells in a row of a table with {len(names)} columns")
    try:
        "".join(cells).encode("utf-8")
    except UnicodeEncodeError:
        return Fault("encoding", "not valid UTF-8; convert the file to UTF-8")
    return {name: cell or None for name, cell in zip(names, cells, strict=True)}
