"""Streams of bytes: members that are put together, damage that is not passed over, text in any encoding, bytes counted."""

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tasks.storage.streams import BROKEN, compression_of, is_transcoded, open_bytes
from tasks.storage.transcode import encoding_of

TEXT = "".join(f"{i} naïve 日本 🌶\n" for i in range(20_000)).encode()


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
}
ENDINGS = pytest.mark.parametrize("ending", COMPRESS)


def content(path: Path, encoding: str | None = None) -> bytes:
    with open_bytes(path, encoding) as stream:
        return b"".join(iter(lambda: stream.read(10_000), b""))


@ENDINGS
def test_members_one_after_another(tmp_path: Path, ending: str) -> None:
    """Compressed files that were put together are read together, under any name."""
    for name in (f"in.jsonl{ending}", "in.jsonl"):
        path = tmp_path / name
        path.write_bytes(COMPRESS[ending](TEXT) + COMPRESS[ending](b"more\n"))
        assert content(path) == TEXT + b"more\n"


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz"])
def test_zeros_behind_the_end_are_padding(tmp_path: Path, ending: str) -> None:
    """Zeros that fill a block of a tape or a disk are no damage, nor are they content."""
    path = tmp_path / f"in{ending}"
    path.write_bytes(COMPRESS[ending](b"a\n") + bytes(300_000) + COMPRESS[ending](b"b\n") + bytes(512))
    assert content(path) == b"a\nb\n"


@ENDINGS
@pytest.mark.parametrize("tail", [b"garbage behind it", b"\0\0\0\0garbage"])
def test_garbage_behind_the_end_is_damage(tmp_path: Path, ending: str, tail: bytes) -> None:
    """What stands behind the compressed data and is none is not passed over; what is before it is read, if not of .zst."""
    path = tmp_path / f"in{ending}"
    path.write_bytes(COMPRESS[ending](b"a\n") + tail)
    read = b""
    with pytest.raises(BROKEN), open_bytes(path) as stream:
        while line := stream.readline():
            read += line
    assert read == (b"" if ending == ".zst" else b"a\n")


@ENDINGS
@pytest.mark.parametrize("lost", [1, 5, 9])
def test_an_end_that_is_missing_is_damage(tmp_path: Path, ending: str, lost: int) -> None:
    """A file without its last bytes does not pass for a whole one."""
    path = tmp_path / f"in{ending}"
    path.write_bytes(COMPRESS[ending](TEXT)[:-lost])
    with pytest.raises(BROKEN):
        content(path)


def test_an_empty_compressed_file(tmp_path: Path) -> None:
    """No bytes at all are no content, and compressed nothing is nothing."""
    (tmp_path / "a.gz").write_bytes(b"")
    (tmp_path / "b.gz").write_bytes(gzip.compress(b""))
    assert content(tmp_path / "a.gz") == content(tmp_path / "b.gz") == b""


def test_compression_is_told_by_its_first_bytes() -> None:
    """Each kind is known, and three letters of text are none."""
    for ending, compress in COMPRESS.items():
        assert compression_of(compress(TEXT)[:10]) == ending
    assert compression_of(b"BZh is a word") is None
    assert compression_of(b"") is None


@pytest.mark.parametrize("ending", ["", *COMPRESS])
def test_bytes_are_counted_as_they_lie_in_the_file(tmp_path: Path, ending: str) -> None:
    """`on_bytes` hears of the compressed bytes, a part at a time, in sum the size of the file."""
    path = tmp_path / f"in{ending}"
    path.write_bytes(COMPRESS.get(ending, bytes)(TEXT + pa.py_buffer(TEXT[::-1]).to_pybytes()))
    heard: list[int] = []
    with open_bytes(path, None, heard.append) as stream:
        while stream.readline():
            pass
    assert sum(heard) == path.stat().st_size
    assert len(heard) > 1 or path.stat().st_size < 1 << 17


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("text", ["a", "prompt\nhi\n", '{"prompt": "日本 🌶"}\n' * 40_000])
def test_wide_encodings_are_decoded(tmp_path: Path, encoding: str, text: str) -> None:
    """UTF-16 and UTF-32 are told by their mark or by their zeros, and come out as UTF-8."""
    path = tmp_path / "in.txt"
    path.write_bytes(text.encode(encoding))
    assert content(path).decode() == text


def test_utf8_has_no_layer(tmp_path: Path) -> None:
    """A file in UTF-8 is read as it is, its mark included, also where its encoding is given."""
    path = tmp_path / "in.txt"
    for data in (b"plain", "naïve".encode(), b"\xef\xbb\xbfmarked", bytes(100), b"a\0bc", b"a\0b\0\n"):
        path.write_bytes(data)
        for encoding in (None, "utf-8", "UTF8", "ascii"):
            with open_bytes(path, encoding) as stream:
                assert not is_transcoded(stream) or data == b"a\0b\0\n", data
                assert stream.read() == data or is_transcoded(stream)


@pytest.mark.parametrize(
    ("encoding", "text"),
    [("cp1252", "naïve €"), ("shift_jis", "日本語"), ("gb18030", "中文"), ("utf-16-le", "日本"), ("utf-7", "ä")],
)
def test_a_given_encoding(tmp_path: Path, encoding: str, text: str) -> None:
    """Any codec decodes, in pieces, and a mark of the file's own goes before it."""
    path = tmp_path / "in.txt"
    path.write_bytes((text * 50_000).encode(encoding))
    assert content(path, encoding).decode() == text * 50_000
    path.write_bytes(text.encode("utf-8-sig"))
    assert content(path, encoding).decode("utf-8-sig") == text
    path.write_bytes(text.encode("utf-16"))
    assert content(path, encoding).decode() == text


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("cp1252", b"a \x81\nb"),
        ("utf-16-le", "a\ud83d\nb".encode("utf-16-le", "surrogatepass")),
        ("utf-16", b"\xff\xfea\0\n\0b\0c"),
        ("shift_jis", b"a\x80\nb"),
        ("unicode_escape", b"a \\ud83d\nb"),
    ],
)
def test_what_does_not_decode_is_no_utf8(tmp_path: Path, encoding: str, data: bytes) -> None:
    """Bytes that are no text make their own line unreadable, and no other."""
    path = tmp_path / "in.txt"
    path.write_bytes(data)
    bad = [line for line in content(path, encoding).split(b"\n") if b"\xff" in line]
    assert len(bad) == 1


def test_a_name_that_python_takes_for_utf8_is_no_codec() -> None:
    """Aliases of UTF-8 need nothing."""
    assert encoding_of(b"abc", "U8") is None
    assert encoding_of(b"abc", "latin-1") == "latin-1"
