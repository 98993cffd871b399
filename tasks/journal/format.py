"""The byte grammar of a journal segment; pure encoding and decoding.

    segment  = header frame*
    header   = "NBJ" version:u8 fingerprint:32 bytes crc:u32        (crc of all before it)
    frame    = length:u32 crc:u32 payload                           (length and crc of the payload)
    payload  = step | failure
    step     = 1:u8 count:u32 key:u64[count] offset:u32[count] num_tokens:u16[count] finish:u8[count]
               cached:u32[number of finished] token:i32[sum of num_tokens]
    failure  = 2:u8 key:u64 reason:utf-8 to the end

All integers are little-endian; crc is CRC-32 (zlib). `offset` is the position, in the whole answer, of the entry's first
token: a gap shows, and an entry with a smaller offset than what is known replaces the rest. finish: 0 not yet, 1 stop,
2 length. A segment is valid up to its first frame that is cut off or fails its crc.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from tasks.core.request import FinishReason

MAGIC = b"NBJ"
VERSION = 1
HEADER = struct.Struct("<3sB32sI")
FRAME = struct.Struct("<II")
_FINISH: tuple[FinishReason | None, ...] = (None, FinishReason.STOP, FinishReason.LENGTH)
_FINISH_CODE = {reason: code for code, reason in enumerate(_FINISH)}
_STEP, _FAILURE = 1, 2
MAX_TOKENS_PER_ENTRY = 0xFFFF


@dataclass(frozen=True, slots=True)
class Entry:
    """New tokens of one sequence: where they begin in its answer, and how it ended, if it did."""

    key: int
    offset: int
    token_ids: Sequence[int]
    finish_reason: FinishReason | None = None
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class FailureEntry:
    """A sequence that was given up, and why."""

    key: int
    reason: str


class FormatError(ValueError):
    """These bytes are not what the grammar says; the message says at which byte of the file and why."""


def encode_header(fingerprint: bytes) -> bytes:
    """The first bytes of a segment of the run with this 32-byte fingerprint."""
    body = HEADER.pack(MAGIC, VERSION, fingerprint, 0)[:-4]
    return body + struct.pack("<I", zlib.crc32(body))


def decode_header(data: bytes) -> bytes:
    """The fingerprint. Raises FormatError when it is no header of this version or is damaged."""
    if len(data) < HEADER.size:
        raise FormatError("byte 0: the header is cut off")
    magic, version, fingerprint, crc = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise FormatError("byte 0: not a token journal")
    if zlib.crc32(data[: HEADER.size - 4]) != crc:
        raise FormatError("byte 0: the header fails its checksum")
    if version != VERSION:
        raise FormatError(f"byte 3: version {version}, and this program reads version {VERSION}")
    return bytes(fingerprint)


def encode_step(entries: Sequence[Entry]) -> bytes:
    """One frame for all new tokens of an engine step."""
    count = len(entries)
    lengths = [len(entry.token_ids) for entry in entries]
    cached = [entry.cached_tokens for entry in entries if entry.finish_reason is not None]
    payload = struct.pack(
        f"<BI{count}Q{count}I{count}H{count}B{len(cached)}I{sum(lengths)}i",
        _STEP,
        count,
        *[entry.key for entry in entries],
        *[entry.offset for entry in entries],
        *lengths,
        *[_FINISH_CODE[entry.finish_reason] for entry in entries],
        *cached,
        *chain.from_iterable(entry.token_ids for entry in entries),
    )
    return _frame(payload)


def encode_failure(entry: FailureEntry) -> bytes:
    """One frame for one failure."""
    return _frame(struct.pack("<BQ", _FAILURE, entry.key) + entry.reason.encode("utf-8", "replace"))


def _frame(payload: bytes) -> bytes:
    return FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def decode_frames(data: bytes) -> Iterator[Entry | FailureEntry]:
    """The entries of a segment's bytes. Raises FormatError at the first frame that is cut off or damaged."""
    position = HEADER.size
    while position < len(data):
        if position + FRAME.size > len(data):
            raise FormatError(f"byte {position}: the last frame is cut off")
        length, crc = FRAME.unpack_from(data, position)
        payload = data[position + FRAME.size : position + FRAME.size + length]
        if len(payload) < length:
            raise FormatError(f"byte {position}: the last frame is cut off, or its length is damaged")
        if zlib.crc32(payload) != crc:
            raise FormatError(f"byte {position}: a frame fails its checksum")
        yield from _decode_payload(payload, position)
        position += FRAME.size + length


def _decode_payload(payload: bytes, position: int) -> Iterator[Entry | FailureEntry]:
    if payload and payload[0] == _STEP:
        yield from _decode_step(payload)
    elif len(payload) >= 9 and payload[0] == _FAILURE:
        yield FailureEntry(struct.unpack_from("<Q", payload, 1)[0], payload[9:].decode("utf-8"))
    else:
        raise FormatError(f"byte {position}: a frame of an unknown kind")


def _decode_step(payload: bytes) -> Iterator[Entry]:
    (count,) = struct.unpack_from("<I", payload, 1)
    columns = struct.unpack_from(f"<{count}Q{count}I{count}H{count}B", payload, 5)
    keys, offsets, lengths, finishes = (columns[i * count : (i + 1) * count] for i in range(4))
    position = 5 + 15 * count
    num_finished = count - finishes.count(0)
    cached = iter(struct.unpack_from(f"<{num_finished}I", payload, position))
    tokens = struct.unpack_from(f"<{sum(lengths)}i", payload, position + 4 * num_finished)
    start = 0
    for key, offset, length, finish in zip(keys, offsets, lengths, finishes, strict=True):
        ended = _FINISH[finish]
        yield Entry(key, offset, tokens[start : start + length], ended, next(cached) if ended else 0)
        start += length
