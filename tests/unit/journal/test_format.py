"""The byte grammar: pinned, checked, and never wrong."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.request import FinishReason
from tasks.journal.format import (
    HEADER,
    Entry,
    FailureEntry,
    FormatError,
    decode_frames,
    decode_header,
    encode_failure,
    encode_header,
    encode_step,
)

FINGERPRINT = bytes(range(32))
ENTRIES = st.builds(
    Entry,
    key=st.integers(0, 2**64 - 1),
    offset=st.integers(0, 2**32 - 1),
    token_ids=st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple),
    finish_reason=st.sampled_from([None, FinishReason.STOP, FinishReason.LENGTH]),
).map(lambda entry: entry)


def test_golden_bytes() -> None:
    """The format is what it was: a header and a step of two sequences, byte for byte."""
    step = encode_step([Entry(1, 0, (7, 8)), Entry(2**64 - 1, 3, (9,), FinishReason.LENGTH, 32)])
    assert encode_header(FINGERPRINT).hex() == (
        "4e424a01000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f8cbf85de"
    )
    assert step.hex() == (
        "330000009cb66837"  # length, crc
        "0102000000"  # step of two
        "0100000000000000ffffffffffffffff"  # keys
        "0000000003000000"  # offsets
        "020001000002"  # numbers of tokens, finish codes
        "20000000"  # cached tokens of the one that ended
        "070000000800000009000000"  # token ids
    )


def test_header_round_trip_and_damage() -> None:
    """A header gives its fingerprint back; any flipped bit in it is an error."""
    header = encode_header(FINGERPRINT)
    assert decode_header(header) == FINGERPRINT
    for bit in range(8 * len(header)):
        damaged = bytearray(header)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError):
            decode_header(bytes(damaged))


@given(st.lists(st.one_of(st.lists(ENTRIES, max_size=4), st.builds(FailureEntry, st.integers(0, 2**64 - 1), st.text()))))
def test_frames_round_trip(steps: list[list[Entry] | FailureEntry]) -> None:
    """Any sequence of steps and failures comes back entry for entry."""
    data = encode_header(FINGERPRINT)
    expected: list[Entry | FailureEntry] = []
    for step in steps:
        if isinstance(step, FailureEntry):
            step = FailureEntry(step.key, step.reason.encode("utf-8", "replace").decode())
            data += encode_failure(step)
            expected.append(step)
        else:
            data += encode_step(step)
            expected += step
    assert list(decode_frames(data)) == expected


def frames() -> tuple[bytes, list[Entry]]:
    entries = [Entry(key, offset, (key + offset,)) for offset in range(3) for key in (1, 2)]
    return encode_header(FINGERPRINT) + b"".join(encode_step(entries[i : i + 2]) for i in (0, 2, 4)), entries


def readable(data: bytes) -> list[Entry | FailureEntry]:
    """What can be read of damaged bytes."""
    found: list[Entry | FailureEntry] = []
    with contextlib.suppress(FormatError):
        found.extend(decode_frames(data))
    return found


def test_cut_at_every_byte_gives_a_prefix() -> None:
    """Truncation anywhere leaves the entries of the whole frames before it, and nothing else."""
    data, entries = frames()
    for end in range(HEADER.size, len(data)):
        found = readable(data[:end])
        assert found == entries[: len(found)]
        assert len(found) % 2 == 0


def test_flipped_bit_anywhere_gives_a_prefix() -> None:
    """A flipped bit in any frame leaves the frames before it readable, and never a wrong entry."""
    data, entries = frames()
    for bit in range(8 * HEADER.size, 8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        found = readable(bytes(damaged))
        assert found == entries[: len(found)]
        assert len(found) < len(entries)
