"""A JSON-lines stream in blocks of whole lines, for readers that take many at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

from tasks.ingest.jsonl import row_of, skip_line
from tasks.ingest.rows import MAX_ROW_BYTES, Row, utf16
from tasks.storage.streams import open_bytes, peek

_MAX_LINES = 2048
_MAX_BYTES = 1 << 20


@dataclass(slots=True)
class Block:
    """Lines as they stand in the file, line ends included; the first one's number, from 1, and its byte offset.

    With `is_cut` the last line is longer than a row may be, and only its beginning is here.
    """

    first_line: int
    offset: int
    lines: list[bytes]
    is_cut: bool = False

    @property
    def offsets(self) -> list[int]:
        """Of each line's first byte."""
        return list(accumulate(map(len, self.lines[:-1]), initial=self.offset))

    @property
    def last_line(self) -> int:
        """The number of the last line."""
        return self.first_line + len(self.lines) - 1

    def row(self, place: int) -> Row | None:
        """One of the lines as a row; None when it is blank."""
        number, offset = self.first_line + place, self.offset + sum(map(len, self.lines[:place]))
        is_cut = self.is_cut and number == self.last_line
        return row_of(self.lines[place], number, offset, len(self.lines[place]) if is_cut else None)


def read_jsonl_blocks(path: Path) -> Iterator[Block | Row]:
    """The lines of a file; one row, a fault, when it is not to be read."""
    with open_bytes(path) as stream:
        if fault := utf16(peek(stream, 2), path.name):
            yield fault
            return
        yield from read_blocks(stream)


def read_blocks(stream: BinaryIO, max_row_bytes: int = MAX_ROW_BYTES) -> Iterator[Block]:
    """All lines, in blocks of some megabyte."""
    first_line, offset = 1, 0
    lines: list[bytes] = []
    size = 0
    for line in iter(partial(stream.readline, max_row_bytes), b""):
        lines.append(line)
        size += len(line)
        is_cut = len(line) == max_row_bytes and not line.endswith(b"\n")
        if is_cut or size >= _MAX_BYTES or len(lines) >= _MAX_LINES:
            yield Block(first_line, offset, lines, is_cut)
            first_line, offset = first_line + len(lines), offset + size + (skip_line(stream) if is_cut else 0)
            lines, size = [], 0
    if lines:
        yield Block(first_line, offset, lines)
