"""The byte grammar: pinned, checked, and never wrong."""

import re
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.request import FinishReason, StepOutput, TokenLogprobs
from tasks.journal import format as format_module
from tasks.journal.decode import Columns, Frames, read_columns, read_frames
from tasks.journal.format import (
    HEADER,
    FailureEntry,
    FormatError,
    ResumeEntry,
    decode_header,
    encode_failure,
    encode_frame,
    encode_header,
    encode_seal,
    encode_step,
)

FINGERPRINT = bytes(range(32))
HEAD = encode_header(FINGERPRINT, 1, 0)
SEED = decode_header(HEAD).crc
KEYS = st.integers(0, 2**64 - 1)
LOGPROBS = st.builds(
    TokenLogprobs,
    st.floats(-100, 0, width=32),
    st.lists(st.tuples(st.integers(0, 2**31 - 1), st.floats(-100, 0, width=32)), max_size=3).map(tuple),
)
TOKENS = st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple)


@st.composite
def outputs(draw: st.DrawFn) -> tuple[StepOutput, int]:
    tokens = draw(TOKENS)
    finish = draw(st.sampled_from([None, *FinishReason]))
    cached = draw(st.integers(0, 2**32 - 1)) if finish else 0
    logprobs = draw(st.none() | st.lists(LOGPROBS, min_size=len(tokens), max_size=len(tokens)))
    return StepOutput(draw(KEYS), tokens, finish, cached, logprobs=logprobs), draw(st.integers(0, 2**32 - 1))


def segment(*payloads: bytes) -> bytes:
    return HEAD + b"".join(encode_frame(payload, SEED, place) for place, payload in enumerate(payloads))


def read(data: bytes) -> tuple[Frames, Columns]:
    frames = read_frames(data, SEED)
    return frames, read_columns(data, frames, 1)


def rows(columns: Columns) -> list[dict[str, Any]]:
    """The entries, one by one."""
    starts = np.cumsum(columns.lengths) - columns.lengths
    return [
        {
            "key": int(columns.keys[row]),
            "offset": int(columns.offsets[row]),
            "end": int(columns.ends[row]),
            "extra": int(columns.extra[row]),
            "token_ids": tuple(columns.token_ids[starts[row] : starts[row] + columns.lengths[row]].tolist()),
            "logprobs": columns.logprobs.get(row),
        }
        for row in range(len(columns.keys))
    ]


def row(output: StepOutput, offset: int) -> dict[str, Any]:
    code = {None: 0, FinishReason.STOP: 1, FinishReason.LENGTH: 2}[output.finish_reason]
    return {
        "key": output.key,
        "offset": offset,
        "end": code,
        "extra": output.cached_tokens,
        "token_ids": tuple(output.token_ids),
        "logprobs": output.logprobs,
    }


def test_golden_bytes() -> None:
    """The format is what it was: a header, a step with all it can hold, a failure and a seal, byte for byte."""
    ended = StepOutput(2**64 - 1, (9,), FinishReason.LENGTH, 32, logprobs=[TokenLogprobs(-0.5, ((9, -0.5),))])
    step = encode_step([StepOutput(1, (7, 8)), ended], [0, 3], [ResumeEntry(5, 4, 0xAABBCCDD)])
    assert HEAD.hex() == (
        "4e424a02000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"  # magic, version, fingerprint
        "01000000"
        "00000000"
        "01000000"
        "00000000"
        "bc9e41bd"  # epoch, part, since, 0, crc
    )
    assert step.hex() == (
        "0100000003000000"  # a step of three entries
        "0500000000000000" "04000000" "0000" "03" "ff"  # resume: key, offset, no tokens, end 3, no logprobs
        "0100000000000000" "00000000" "0200" "00" "ff"  # key, offset, two tokens, goes on, no logprobs
        "ffffffffffffffff" "03000000" "0100" "02" "01"  # key, offset, one token, ended by length, one alternative
        "ddccbbaa" "20000000"  # the resume's checksum, the cached tokens of the one that ended
        "070000000800000009000000"  # token ids
        "000000bf" "09000000" "000000bf"  # logprob, and the one alternative
    )  # fmt: skip
    assert encode_failure(FailureEntry(6, "no")).hex() == "0200000002000000" "0600000000000000" "6e6f"  # fmt: skip
    assert encode_seal(2).hex() == "03000000000000000200000000000000"
    assert encode_frame(b"\1", SEED, 1).hex() == GOLDEN_FRAME


GOLDEN_FRAME = "08000000" "3b1ead59" "0100000000000000"  # length, crc, payload # fmt: skip


def test_example_of_the_documentation() -> None:
    """The bytes that docs/journal-format.md explains are the ones that are written."""
    page = (Path(__file__).parents[3] / "docs/journal-format.md").read_text(encoding="utf-8")
    shown = bytes.fromhex("".join(re.findall(r"^    00[0-9a-f]0  ((?:[0-9a-f]{2} ?){1,16})", page, re.MULTILINE)))
    head, key = encode_header(FINGERPRINT, 2, 0), 0x1122334455667788
    seed = decode_header(head).crc
    resume = ResumeEntry(key, 2, zlib.crc32(struct.pack("<ii", 504, 338)))
    step = encode_step([StepOutput(key, (28,)), StepOutput(7, (2,), FinishReason.STOP, 32)], [2, 9], [resume])
    assert shown == head + encode_frame(step, seed, 0) + encode_frame(encode_seal(1), seed, 1)
    grammar = re.findall(r"^    (?:header|frame|step|entry|logprobs|failure|seal) +=.*$", page, re.MULTILINE)
    assert len(grammar) == 7
    assert format_module.__doc__ is not None
    assert all(re.sub(r"\s+", " ", line.split("  (")[0]) in re.sub(r"\s+", " ", format_module.__doc__) for line in grammar)


def test_header_round_trip_and_damage() -> None:
    """A header gives back whose and which segment it is; any flipped bit in it is an error."""
    assert decode_header(encode_header(FINGERPRINT, 3, 2))[:4] == (FINGERPRINT, 3, 2, 3)
    for bit in range(8 * len(HEAD)):
        damaged = bytearray(HEAD)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError):
            decode_header(bytes(damaged))


@given(st.lists(st.lists(outputs(), max_size=4) | st.builds(FailureEntry, KEYS, st.text()), max_size=5))
def test_frames_round_trip(steps: list[list[tuple[StepOutput, int]] | FailureEntry]) -> None:
    """Any sequence of steps and failures comes back entry for entry, with failures at their places."""
    payloads: list[bytes] = []
    expected: list[dict[str, Any]] = []
    failures: list[tuple[int, FailureEntry]] = []
    for step in steps:
        if isinstance(step, FailureEntry):
            failure = FailureEntry(step.key, step.reason.encode("utf-8", "replace").decode())
            payloads.append(encode_failure(failure))
            failures.append((len(expected), failure))
        else:
            payloads.append(encode_step([output for output, _ in step], [offset for _, offset in step]))
            expected += [row(output, offset) for output, offset in step]
    frames, columns = read(segment(*payloads, encode_seal(len(payloads))))
    assert rows(columns) == expected
    assert columns.failures == failures
    assert (frames.is_sealed, frames.faults) == (True, [])


def three_steps() -> tuple[bytes, list[dict[str, Any]]]:
    steps = [[StepOutput(key, (key + offset,)) for key in (1, 2)] for offset in range(3)]
    data = segment(*[encode_step(step, [offset] * 2) for offset, step in enumerate(steps)])
    return data, [row(output, offset) for offset, step in enumerate(steps) for output in step]


def test_cut_at_every_byte_gives_a_prefix() -> None:
    """Truncation anywhere leaves the entries of the whole frames before it, and is known for a torn tail."""
    data, entries = three_steps()
    for end in range(HEADER.size, len(data)):
        frames, columns = read(data[:end])
        found = rows(columns)
        assert found == entries[: len(found)]
        assert len(found) % 2 == 0
        whole = (end - HEADER.size) % ((len(data) - HEADER.size) // 3) == 0
        assert [fault.is_torn_tail for fault in frames.faults] == [] if whole else [True]


def test_flipped_bit_costs_its_frame_or_all_that_follows() -> None:
    """A flipped bit in a frame is found; the frame is left out, and what follows is read where the length still leads."""
    data, entries = three_steps()
    size = (len(data) - HEADER.size) // 3
    for bit in range(8 * HEADER.size, 8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        frames, columns = read(bytes(damaged))
        place, within = divmod(bit // 8 - HEADER.size, size)
        kept = entries[: 2 * place] if within < 4 else entries[: 2 * place] + entries[2 * place + 2 :]
        assert rows(columns) == kept
        assert f"frame {place}" in str(frames.faults[0])


def test_frames_of_another_place_or_segment_do_not_count() -> None:
    """Frames that are repeated, swapped, lost or of another epoch fail their checksum though their bytes are whole."""
    data, entries = three_steps()
    size = (len(data) - HEADER.size) // 3
    first, second, third = (data[HEADER.size + i * size :][:size] for i in range(3))
    for frames, kept in (((first, first, third), 1), ((second, first), 0), ((first, third), 1)):
        found = rows(read(HEAD + b"".join(frames))[1])
        assert found[: 2 * kept] == entries[: 2 * kept]
        assert all(entry in entries for entry in found)
    other = decode_header(encode_header(FINGERPRINT, 2, 0)).crc
    assert read_frames(data, other).starts == []


def test_bytes_behind_a_seal_and_unknown_frames_are_faults() -> None:
    """What this version cannot know is reported and never guessed at."""
    sealed = segment(encode_seal(0))
    assert str(read(sealed + b"\0" * 16)[0].faults[0]) == f"byte {len(sealed)}: bytes behind the seal"
    assert "unknown kind, 9" in str(read(segment(b"\x09"))[0].faults[0])
    assert "longer than its frame" in str(read(segment(b"\2\0\0\0\xff\0\0\0"))[0].faults[0])


def test_whole_frames_with_nonsense_in_them_are_faults() -> None:
    """A frame whose checksum holds and whose counts do not add up is left out, and the others are read."""
    good = encode_step([StepOutput(1, (5,))], [0])
    for bad in (good[:4] + b"\xff\xff\xff\xff" + good[8:], good + b"\0" * 64, good[:22] + b"\x07" + good[23:]):
        frames, columns = read(segment(bad, good))
        assert [entry["token_ids"] for entry in rows(columns)] == [(5,)]
        assert ["do not add up" in str(fault) for fault in frames.faults] == [True]


def test_too_much_for_the_format_is_refused() -> None:
    """More tokens, alternatives or fewer logprobs than an entry can hold raise before anything is written."""
    with pytest.raises(ValueError, match="65536 tokens in one entry"):
        encode_step([StepOutput(1, [0] * 65536)], [0])
    with pytest.raises(ValueError, match="1 logprobs for 2 tokens"):
        encode_step([StepOutput(1, (1, 2), logprobs=[TokenLogprobs(0.0)])], [0])
    with pytest.raises(ValueError, match="255 alternatives"):
        encode_step([StepOutput(1, (1,), logprobs=[TokenLogprobs(0.0, ((1, 0.0),) * 255)])], [0])
