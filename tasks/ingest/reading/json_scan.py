"""Where the values of a JSON stream begin and end, in the memory of one value; what is in them is for others to parse.

Brackets and quotes are counted and nothing else is checked, so that a bad value costs itself and the next one is found.
"""

import re
from typing import BinaryIO

from tasks.ingest.rows import MAX_ROW_BYTES

_BLOCK_BYTES = 1 << 17
_BLANKS = re.compile(rb"[\s,]*+")
_SCALAR = re.compile(rb"[^\s,\[\]{}\"]*+")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_FLAT = re.compile(rb'(?:[^"{}\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+', re.DOTALL)  # up to a bracket, or to an open quote


class TornError(Exception):
    """The stream ends, or what is in it, before the value does."""


class Scanner:
    """Walks over a stream of JSON. Commas are taken for blanks: values are told apart without them."""

    def __init__(self, stream: BinaryIO, max_bytes: int = MAX_ROW_BYTES) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._data = b""
        self._at = 0
        self._base = 0

    @property
    def offset(self) -> int:
        """Where in the stream it stands."""
        return self._base + self._at

    def peek(self) -> bytes:
        """The first byte of what comes next, blanks aside; empty at the end."""
        while True:
            blanks = _BLANKS.match(self._data, self._at)
            self._at = blanks.end() if blanks else self._at
            if self._at < len(self._data) or not self._grow():
                return self._data[self._at : self._at + 1]

    def enter(self) -> None:
        """Step over the bracket that `peek` showed."""
        self._at += 1

    def value(self) -> bytes:
        """The value that `peek` showed, whole."""
        end = self._end(is_kept=True)
        found, self._at = self._data[self._at : end], end
        return found

    def skip(self) -> None:
        """Step over the value that `peek` showed, however long."""
        self._at = self._end(is_kept=False)

    def key(self) -> bytes:
        """The name that stands next in an object, in its quotes, and the colon behind it."""
        name = self.value()
        if self.peek() != b":":
            raise TornError(f"no colon behind the name {name[:40].decode('utf-8', 'replace')}")
        self._at += 1
        return name

    def leave(self, depth: int) -> None:
        """Step out of that many open brackets, over all that is still in them."""
        self._at = self._end(is_kept=False, depth=depth) if depth else self._at

    def _end(self, *, is_kept: bool, depth: int = 0) -> int:
        """Where the value ends that begins here, or the brackets end that are open; in the data as it then is."""
        first = self._data[self._at : self._at + 1]
        if not depth and first not in (b"{", b"["):
            return self._end_of_flat(_STRING if first == b'"' else _SCALAR, is_kept)
        start, at = self._at, self._at
        while True:
            flat = _FLAT.match(self._data, at)
            at = flat.end() if flat else at
            byte = self._data[at : at + 1]
            if byte in (b"", b'"'):
                if not is_kept:
                    start = self._at = at
                at -= start
                self._check_size(start)
                if not self._grow():
                    raise TornError("a bracket or a quote is never closed")
                start = self._at
                at += start
                continue
            at += 1
            depth += 1 if byte in (b"{", b"[") else -1
            if depth == 0:
                return at

    def _end_of_flat(self, pattern: "re.Pattern[bytes]", is_kept: bool) -> int:
        while True:
            found = pattern.match(self._data, self._at)
            is_whole = found is not None and (pattern is _STRING or found.end() < len(self._data))
            if found is not None and is_whole:
                if found.end() == self._at:
                    raise TornError(f"{self._data[self._at : self._at + 1].decode('latin-1')!r} where a value should begin")
                return found.end()
            self._check_size(self._at)
            if not self._grow():
                if found is not None and found.end() > self._at:
                    return found.end()
                raise TornError("a quote is never closed" if self._at < len(self._data) else "it ends too early")

    def _check_size(self, start: int) -> None:
        if len(self._data) - start > self._max_bytes:
            raise TornError(f"a value is longer than {self._max_bytes:,} bytes, so that reading ends here")

    def _grow(self) -> bool:
        """Read on, twice as much as is kept, so that a long value is looked at a few times only."""
        kept = self._data[self._at :]
        more = self._stream.read(max(_BLOCK_BYTES, 2 * len(kept)))
        self._base += self._at
        self._data, self._at = kept + more, 0
        return bool(more)
