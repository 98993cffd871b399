"""A JSON-lines stream in blocks of whole lines, for readers that take many at a time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

from tasks.ingest.reading.jsonl import row_of, skip_line
from tasks.ingest.rows import MAX_ROW_BYTES, Row
from tasks.storage.streams import BROKEN, OnBytes, is_transcoded, open_bytes

_MAX_LINES = 2048
_MAX_BYTES = 1 << 20


@dataclass(slots=True)
class Block:
    """Lines as they stand in the file, line ends included; the first one's number, from 1, and its byte offset.

    With `is_cut` the last line is longer than a row may be, and only its beginning is here.
    """

    first_line: int
    offset: int | None
    lines: list[bytes]
    is_cut: bool = False
    explained: Callable[[Row], Row] = lambda row: row
    """What more can be said of a faulty row."""

    @property
    def offsets(self) -> Sequence[int | None]:
        """Of each line's first byte, where they are known."""
        if self.offset is None:
            return [None] * len(self.lines)
        return list(accumulate(map(len, self.lines[:-1]), initial=self.offset))

    @property
    def last_line(self) -> int:
        """The number of the last line."""
        return self.first_line + len(self.lines) - 1

    def row(self, place: int, offset: int | None) -> Row | None:
        """One of the lines as a row, with its offset; None when it is blank."""
        number = self.first_line + place
        is_cut = self.is_cut and number == self.last_line
        row = row_of(self.lines[place], number, offset, len(self.lines[place]) if is_cut else None)
        return row and self.explained(row)


def read_jsonl_blocks(path: Path, encoding: str | None = None, on_bytes: OnBytes | None = None) -> Iterator[Block]:
    """The lines of a file. Offsets are those in the uncompressed file; None where it is not UTF-8."""
    with open_bytes(path, encoding, on_bytes) as stream:
        yield from read_blocks(stream, has_offset=not is_transcoded(stream))


def read_blocks(stream: BinaryIO, max_row_bytes: int = MAX_ROW_BYTES, *, has_offset: bool = True) -> Iterator[Block]:
    """All lines, in blocks of some megabyte."""
    first_line, offset = 1, 0
    lines: list[bytes] = []
    size = 0
    try:
        for line in iter(partial(stream.readline, max_row_bytes), b""):
            lines.append(line)
            size += len(line)
            is_cut = len(line) == max_row_bytes and not line.endswith(b"\n")
            if is_cut or size >= _MAX_BYTES or len(lines) >= _MAX_LINES:
                block, lines = Block(first_line, offset if has_offset else None, lines, is_cut), []
                yield block
                first_line, offset = first_line + len(block.lines), offset + size + (skip_line(stream) if is_cut else 0)
                size = 0
    except BROKEN:
        if lines:
            yield Block(first_line, offset if has_offset else None, lines)
        raise
    if lines:
        yield Block(first_line, offset if has_offset else None, lines)
