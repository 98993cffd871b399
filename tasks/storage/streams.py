"""Files as streams of bytes: uncompressed, and of text in UTF-8, whatever they are compressed with or encoded in.

A plain file in UTF-8 has no layer of ours in its way. Compressed files may hold several members one after another, as
`cat` leaves them; what stands behind the last one and is none is damage.
"""

import bz2
import io
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from tasks.storage.transcode import Transcoded, encoding_of

COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
BROKEN = (EOFError, zlib.error, lzma.LZMAError, OSError)
"""What reading raises where a compressed file is cut off or damaged."""

OnBytes = Callable[[int], None]
BUFFER_BYTES = 1 << 17
"""What `peek` can see at most, and what is read at a time."""

_MAGIC = {b"\x1f\x8b": ".gz", b"\xfd7zXZ\0": ".xz", b"\x28\xb5\x2f\xfd": ".zst"}
_BZ2, _BZ2_BLOCKS = b"BZh", (b"1AY&SY", b"\x17rE8P\x90")  # three letters alone may be text


def uncompressed_name(path: Path) -> Path:
    """The path without the ending that tells its compression."""
    return path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path


def compression_of(head: bytes) -> str | None:
    """The ending of the compression that a file's first bytes show."""
    if head.startswith(_BZ2) and head[4:10] in _BZ2_BLOCKS:
        return ".bz2"
    return next((ending for magic, ending in _MAGIC.items() if head.startswith(magic)), None)


def peek(stream: BinaryIO, size: int) -> bytes:
    """The next bytes, at most so many, without taking them."""
    return cast("io.BufferedReader", stream).peek(size)[:size]


def is_transcoded(stream: BinaryIO) -> bool:
    """Whether positions in the stream are none in the file, which is in another encoding than UTF-8."""
    return isinstance(getattr(stream, "raw", None), Transcoded)


def open_bytes(path: Path, encoding: str | None = None, on_bytes: OnBytes | None = None) -> BinaryIO:
    """The file's content as a buffered stream with `peek`; text comes out in UTF-8.

    `encoding` is what the text is in, unless a byte order mark says better; without it UTF-16 and UTF-32 are told by
    themselves. `on_bytes` hears of the file's bytes as they are read. Raises OSError when the file cannot be opened.
    """
    raw = path.open("rb", BUFFER_BYTES) if on_bytes is None else io.BufferedReader(_Counted(path, on_bytes), BUFFER_BYTES)
    stream: BinaryIO = raw
    try:
        ending = path.suffix.lower()
        if compression := ending if ending in COMPRESSIONS else compression_of(peek(raw, 10)):
            stream = io.BufferedReader(cast("io.RawIOBase", _uncompressed(raw, compression)), BUFFER_BYTES)
        if codec := encoding_of(peek(stream, BUFFER_BYTES), encoding):
            stream = io.BufferedReader(Transcoded(cast("io.BufferedReader", stream), codec), BUFFER_BYTES)
    except BaseException:
        stream.close()
        raise
    return stream


class _Counted(io.FileIO):
    """A file that says how many of its bytes are read."""

    def __init__(self, path: Path, on_bytes: OnBytes) -> None:
        super().__init__(path, "rb")
        self._on_bytes = on_bytes

    def readinto(self, buffer: Any) -> int:
        size = super().readinto(buffer) or 0
        if size:
            self._on_bytes(size)
        return size


def _uncompressed(raw: BinaryIO, compression: str) -> Any:
    match compression:
        case ".gz":
            return _Members(raw, _GzipMember)
        case ".bz2":
            return _Members(raw, bz2.BZ2Decompressor)
        case ".xz":
            return _Members(raw, lzma.LZMADecompressor)
        case _:
            import pyarrow as pa

            return pa.input_stream(raw, compression="zstd")


class _Member(Protocol):
    """One compressed stream, as the standard library's decompressors have it."""

    eof: bool
    needs_input: bool
    unused_data: bytes

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _GzipMember:
    """zlib's decompressor with the manners of the other two."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=31)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inflate.eof

    @property
    def unused_data(self) -> bytes:
        return self._inflate.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        out = self._inflate.decompress(self._inflate.unconsumed_tail + data, max_length)
        self.needs_input = not self._inflate.unconsumed_tail and len(out) < max_length
        return out


class _Members(io.RawIOBase):
    """What one or more compressed streams hold together. Zeros between and behind them are padding."""

    def __init__(self, raw: BinaryIO, member: Callable[[], Any]) -> None:
        self._raw = cast("io.BufferedReader", raw)
        self._new = member
        self._member: _Member | None = None
        self._input = b""
        self._is_first = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while self._member is not None or self._begin():
            out = self._more(len(buffer))
            if out:
                buffer[: len(out)] = out
                return len(out)
        return 0

    def _begin(self) -> bool:
        """Open the next member; whether there is one."""
        while not self._input:
            if not (data := self._raw.read1(BUFFER_BYTES)):
                return False
            self._input = data if self._is_first else data.lstrip(b"\0")
        self._member, self._is_first = self._new(), False
        return True

    def _more(self, size: int) -> bytes:
        member = cast("_Member", self._member)
        if member.needs_input and not self._input:
            self._input = self._raw.read1(BUFFER_BYTES)
            if not self._input:
                raise EOFError("the compressed data ends too early")
        data = self._input if member.needs_input else b""
        out = member.decompress(data, size)
        self._input = b"" if member.eof or data else self._input
        if member.eof:
            self._input = member.unused_data.lstrip(b"\0")
            self._member = None
        return out

    def close(self) -> None:
        self._raw.close()
        super().close()
