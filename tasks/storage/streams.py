"""Files as streams of bytes, whatever they are compressed with."""

import bz2
import gzip
import io
import lzma
import zlib
from pathlib import Path
from typing import BinaryIO, cast

COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
BROKEN = (EOFError, zlib.error, lzma.LZMAError, OSError)
"""What reading raises where a compressed file is cut off or damaged."""


def uncompressed_name(path: Path) -> Path:
    """The path without the ending that tells its compression."""
    return path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path


def peek(stream: BinaryIO, size: int) -> bytes:
    """The next bytes, at most so many, without taking them."""
    return cast("io.BufferedReader", stream).peek(size)[:size]


def open_bytes(path: Path) -> BinaryIO:
    """The file's content, uncompressed, as a buffered stream with `peek`. Raises OSError when it cannot be opened."""
    match path.suffix.lower():
        case ".gz":
            return io.BufferedReader(cast("io.RawIOBase", gzip.open(path, "rb")))
        case ".bz2":
            return io.BufferedReader(cast("io.RawIOBase", bz2.open(path, "rb")))
        case ".xz":
            return io.BufferedReader(cast("io.RawIOBase", lzma.open(path, "rb")))
        case ".zst":
            import pyarrow as pa

            return io.BufferedReader(cast("io.RawIOBase", pa.input_stream(str(path), compression="zstd")))
        case _:
            return path.open("rb")
