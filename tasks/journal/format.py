"""The byte grammar of a journal segment; pure encoding. docs/journal-format.md has it with its reasons and an example.

    segment  = header frame* seal?
    header   = "NBJ" version:u8 fingerprint:32 bytes epoch:u32 part:u32 since:u32 0:u32 crc:u32     (crc of all before it)
    frame    = length:u32 crc:u32 payload:bytes[length]                     (length is a multiple of 8)
    payload  = (step | failure | seal) zero*                                (zeros up to a multiple of 8)
    step     = 1:u8 0:u8 0:u16 count:u32 entry[count] extra:u32[number of end != 0] token:i32[sum of num_tokens] logprobs
    entry    = key:u64 offset:u32 num_tokens:u16 end:u8 num_top:u8
    logprobs = for each entry whose num_top is not 255, for each of its tokens: logprob:f32 (token:i32 logprob:f32)[num_top]
    failure  = 2:u8 0:u8 0:u16 size:u32 key:u64 reason:utf-8[size]
    seal     = 3:u8 0:u8 0:u16 0:u32 num_frames:u64

All numbers are little-endian; crc is CRC-32 (zlib). A frame's crc covers, in this order: the header's crc, the frame's place
in the segment (0, 1, ... as u32), its length, and the payload; so a frame of another run, another segment or another place
is not taken for one of this. A segment that ends with a seal is whole; one without may end in a torn frame, which is what a
kill leaves.

`epoch` counts the starts of a process that writes, `part` the segments that it filled; a segment holds what is known of the
epochs from `since` to its own, which is more than one after compaction. `offset` is the position, in the
whole answer, of the entry's first token. `end` is 0 (more is to come), 1 (stop) or 2 (length), and `extra` then the prompt
tokens that came out of the prefix cache; or it is 3, which says that from here on the sequence goes on from its first
`offset` tokens, and `extra` is the CRC-32 of those (as i32). Within an epoch the entries of a key form a chain: it begins at
offset 0, which replaces all that was known of the key, or with such a resume entry whose tokens are there; each entry begins
where the one before it ended. An entry outside a chain is not used.
"""

import struct
import zlib
from array import array
from collections.abc import Sequence
from typing import NamedTuple

from tasks.core.request import FinishReason, StepOutput, TokenLogprobs

MAGIC = b"NBJ"
VERSION = 2
HEADER = struct.Struct("<3sB32sIIIII")
FRAME = struct.Struct("<II")
PREFIX = struct.Struct("<BBHI")
ENTRY = struct.Struct("<QIHBB")
FINISHES: tuple[FinishReason | None, ...] = (None, FinishReason.STOP, FinishReason.LENGTH)
RESUME = len(FINISHES)
STEP, FAILURE, SEAL = 1, 2, 3
MAX_TOKENS_PER_ENTRY = 0xFFFF
NO_LOGPROBS = 0xFF
NO_TOKEN = -1
"""Fills the places of alternatives that the engine did not give."""
_CODES = {reason: code for code, reason in enumerate(FINISHES)}
_PLACE = struct.Struct("<II")


class FailureEntry(NamedTuple):
    """A sequence that was given up, and why."""

    key: int
    reason: str


class ResumeEntry(NamedTuple):
    """A sequence that goes on from its first `num_saved` tokens, and their checksum."""

    key: int
    num_saved: int
    crc: int


class FormatError(ValueError):
    """These bytes are not what the grammar says; the message says at which byte of the file and why."""


class Header(NamedTuple):
    """Whose segment it is, and which; `crc` seeds the checksums of its frames."""

    fingerprint: bytes
    epoch: int
    part: int
    since: int
    crc: int


def encode_header(fingerprint: bytes, epoch: int, part: int, since: int | None = None) -> bytes:
    """The first bytes of a segment of the run with this 32-byte fingerprint."""
    body = HEADER.pack(MAGIC, VERSION, fingerprint, epoch, part, epoch if since is None else since, 0, 0)[:-4]
    return body + struct.pack("<I", zlib.crc32(body))


def decode_header(data: bytes) -> Header:
    """What a segment begins with. Raises FormatError when it is no header of this version or is damaged."""
    if len(data) < HEADER.size:
        raise FormatError("byte 0: the header is cut off")
    magic, version, fingerprint, epoch, part, since, _, crc = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise FormatError("byte 0: not a token journal")
    if version != VERSION:
        raise FormatError(f"byte 3: version {version}, and this program reads version {VERSION}")
    if zlib.crc32(data[: HEADER.size - 4]) != crc:
        raise FormatError("byte 0: the header fails its checksum")
    return Header(bytes(fingerprint), epoch, part, since, crc)


def encode_frame(payload: bytes, seed: int, place: int) -> bytes:
    """A payload as the frame at this place of the segment whose header's checksum is `seed`."""
    payload += bytes(-len(payload) % 8)
    return FRAME.pack(len(payload), frame_crc(payload, seed, place)) + payload


def frame_crc(payload: bytes | memoryview, seed: int, place: int) -> int:
    """The checksum that a frame must have."""
    return zlib.crc32(payload, zlib.crc32(_PLACE.pack(place, len(payload)), seed))


class Framer:
    """Payloads to the frames of the segment that begins with this header, each in its place."""

    def __init__(self, header: bytes) -> None:
        self._seed = decode_header(header).crc
        self._num_frames = 0

    def frame(self, payload: bytes) -> bytes:
        """The payload as the next frame."""
        self._num_frames += 1
        return encode_frame(payload, self._seed, self._num_frames - 1)

    def seal(self) -> bytes:
        """The frame that ends the segment."""
        return self.frame(encode_seal(self._num_frames))


def crc_of(token_ids: "array[int]") -> int:
    """The checksum by which a resume entry names the tokens it goes on from."""
    return zlib.crc32(token_ids.tobytes())


def encode_step(outputs: Sequence[StepOutput], offsets: Sequence[int], resumed: Sequence[ResumeEntry] = ()) -> bytes:
    """The payload for all new tokens of an engine step; `offsets` are where each output's first token stands, `resumed` are
    the sequences that went to the engine with saved tokens since the last step.

    Raises ValueError when an output has more tokens than an entry can count, or logprobs for some of its tokens only.
    """
    pack = ENTRY.pack
    entries = bytearray().join(pack(entry.key, entry.num_saved, 0, RESUME, NO_LOGPROBS) for entry in resumed)
    extra, tokens, logprobs = array("I", [entry.crc for entry in resumed]), array("i"), bytearray()
    for output, offset in zip(outputs, offsets, strict=True):
        ids, finish, num_top = output.token_ids, output.finish_reason, NO_LOGPROBS
        if len(ids) > MAX_TOKENS_PER_ENTRY:
            raise ValueError(f"{len(ids)} tokens in one entry; the format holds {MAX_TOKENS_PER_ENTRY}")
        if output.logprobs is not None:
            num_top = _encode_logprobs(output, logprobs)
        if finish is not None:
            extra.append(output.cached_tokens)
        entries += pack(output.key, offset, len(ids), _CODES[finish], num_top)
        tokens.extend(ids)
    prefix = PREFIX.pack(STEP, 0, 0, len(resumed) + len(outputs))
    return b"".join((prefix, entries, extra.tobytes(), tokens.tobytes(), logprobs))


def _encode_logprobs(output: StepOutput, into: bytearray) -> int:
    logprobs = output.logprobs or ()
    if len(logprobs) != len(output.token_ids):
        raise ValueError(f"{len(logprobs)} logprobs for {len(output.token_ids)} tokens")
    num_top = max((len(at.top) for at in logprobs), default=0)
    if num_top >= NO_LOGPROBS:
        raise ValueError(f"{num_top} alternatives to a token; the format holds {NO_LOGPROBS - 1}")
    for at in logprobs:
        padding = ((NO_TOKEN, 0.0),) * (num_top - len(at.top))
        pairs = [value for pair in (*at.top, *padding) for value in pair]
        into += struct.pack("<f" + "if" * num_top, at.logprob, *pairs)
    return num_top


def decode_logprobs(data: memoryview, num_tokens: int, num_top: int) -> list[TokenLogprobs]:
    """What `_encode_logprobs` wrote for one entry, from its first byte."""
    pattern = struct.Struct("<f" + "if" * num_top)
    found = []
    for values in pattern.iter_unpack(data[: num_tokens * pattern.size]):
        pairs = zip(values[1::2], values[2::2], strict=True)
        found.append(TokenLogprobs(values[0], tuple(pair for pair in pairs if pair[0] != NO_TOKEN)))
    return found


def encode_failure(entry: FailureEntry) -> bytes:
    """The payload for one failure."""
    reason = entry.reason.encode("utf-8", "replace")
    return PREFIX.pack(FAILURE, 0, 0, len(reason)) + struct.pack("<Q", entry.key) + reason


def decode_failure(payload: bytes | memoryview) -> FailureEntry:
    """What `encode_failure` wrote. Raises FormatError when the sizes do not fit."""
    _, _, _, size = PREFIX.unpack_from(payload)
    if len(payload) < 16 + size:
        raise FormatError("a failure is longer than its frame")
    return FailureEntry(struct.unpack_from("<Q", payload, 8)[0], bytes(payload[16 : 16 + size]).decode("utf-8", "replace"))


def encode_seal(num_frames: int) -> bytes:
    """The payload that ends a whole segment of so many frames."""
    return PREFIX.pack(SEAL, 0, 0, 0) + struct.pack("<Q", num_frames)
