"""How many sequences may run now: a word that one process writes and the engine's process reads between two steps.

36 bytes, little-endian: the number (int64), the number that holds when the writer falls silent (int64), when it was written
(float64, seconds of the machine's monotonic clock), for how many seconds it holds (float64), and the CRC-32 of these 32
bytes (uint32): a word that is being written is not taken for one.
"""

import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

UNBOUNDED = 2**31 - 1
_WORD = struct.Struct("<qqdd")
_SUM = struct.Struct("<I")


def write_limit(path: Path, number: int, *, fallback: int, holds_s: float, now_s: float) -> None:
    """Put a limit into force; `fallback` is what holds from `holds_s` seconds on."""
    word = _WORD.pack(number, fallback, now_s, holds_s)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(fd, word + _SUM.pack(crc32(word)), 0)
    finally:
        os.close(fd)


class Limit:
    """The limit in a file, as the engine's process sees it; without a file nothing is limited. It costs a pread a step."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._fd: int | None = None
        self._known = (UNBOUNDED, UNBOUNDED, 0.0, float("inf"))

    def max_num_seqs(self) -> int:
        """How many sequences may run now; 0 is a pause."""
        if self._fd is None:
            try:
                self._fd = os.open(self._path, os.O_RDONLY)
            except FileNotFoundError:
                return UNBOUNDED
        data = os.pread(self._fd, _WORD.size + _SUM.size, 0)
        if len(data) == _WORD.size + _SUM.size and crc32(data[: _WORD.size]) == _SUM.unpack_from(data, _WORD.size)[0]:
            self._known = _WORD.unpack_from(data)
        number, fallback, written_s, holds_s = self._known
        return number if self._clock() - written_s <= holds_s else fallback
