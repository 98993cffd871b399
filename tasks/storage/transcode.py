"""Text in another encoding as a stream of UTF-8, and how a file's first bytes tell which encoding it is in.

Bytes that do not decode come out as 0xFF, which UTF-8 never holds: the row that they stand in is found not to be text, and
no other.
"""

import codecs
import io
from typing import Any

_BLOCK_BYTES = 1 << 16
_MARK = "nightbatch-mark"
_BOMS = (
    (codecs.BOM_UTF8, None),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_WIDE = (("utf-32-le", 4, 0), ("utf-32-be", 4, 3), ("utf-16-le", 2, 0), ("utf-16-be", 2, 1))
_UNMARKED = {"utf-16": "utf-16-le", "utf-32": "utf-32-le"}
_SAME = ("utf-8", "utf-8-sig", "ascii")


def _mark(error: UnicodeError) -> tuple[str | bytes, int]:
    if isinstance(error, UnicodeDecodeError):
        return "\udcff", error.end
    if isinstance(error, UnicodeEncodeError):
        return b"\xff", error.end
    raise error


codecs.register_error(_MARK, _mark)


def encoding_of(head: bytes, given: str | None) -> str | None:
    """The codec that a text which begins so needs, or None where it is UTF-8. A byte order mark is right in any case."""
    for bom, encoding in _BOMS:
        if head.startswith(bom):
            return encoding
    seen = next((encoding for encoding, width, place in _WIDE if _is_wide(head, encoding, width, place)), None)
    if given is None:
        return seen
    name = codecs.lookup(given).name
    if name in _UNMARKED:  # without the mark that these want it is the bytes that tell, or else the order that is usual
        return seen if seen is not None and seen.startswith(name) else _UNMARKED[name]
    return None if name in _SAME else given


def _is_wide(head: bytes, encoding: str, width: int, place: int) -> bool:
    """Whether the first two characters are Latin ones of that many bytes, and all that follows is text as well."""
    first = [head[i : i + width] for i in (0, width) if i + width <= len(head)]
    if not first or any(not one[place] or any(one[:place] + one[place + 1 :]) for one in first):
        return False
    try:
        return "\0" not in codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeDecodeError:
        return False


class Transcoded(io.RawIOBase):
    """A stream of text in `encoding`, as one in UTF-8."""

    def __init__(self, stream: io.BufferedReader, encoding: str) -> None:
        self._stream = stream
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder(encoding)(_MARK)
        self._ready = b""
        self._is_ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and not self._is_ended:
            data = self._stream.read1(_BLOCK_BYTES)
            self._is_ended = not data
            try:
                self._ready = self._decoder.decode(data, final=not data).encode("utf-8", _MARK)
            except UnicodeError as error:  # of codecs that know no way around what they cannot decode
                raise OSError(f"not decodable as {self._encoding}: {error}") from error
        out, self._ready = self._ready[: len(buffer)], self._ready[len(buffer) :]
        buffer[: len(out)] = out
        return len(out)

    def close(self) -> None:
        self._stream.close()
        super().close()
