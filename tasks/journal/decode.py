"""A segment's bytes to columns: one row per entry, as NumPy arrays, in the order in which they were written.

Frames are walked one by one for their checksums; what is in them is then read all at once. A frame that fails is reported
and left out; reading goes on behind it only where its length leads to a frame that is whole, else it stops there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.core.request import TokenLogprobs
from tasks.journal.format import (
    ENTRY,
    FAILURE,
    FRAME,
    HEADER,
    NO_LOGPROBS,
    PREFIX,
    RESUME,
    SEAL,
    STEP,
    FailureEntry,
    FormatError,
    decode_failure,
    decode_logprobs,
    frame_crc,
)

Ints = NDArray[np.int64]
_META = np.dtype([("offset", "<u4"), ("num_tokens", "<u2"), ("end", "u1"), ("num_top", "u1")])
"""The second half of an entry."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Bytes that could not be read, and whether a kill explains them: a torn tail is no loss of acknowledged tokens."""

    position: int
    reason: str
    is_torn_tail: bool

    def __str__(self) -> str:
        return f"byte {self.position}: {self.reason}"


@dataclass(slots=True)
class Frames:
    """The frames of a segment that are whole: where the payloads of its steps begin, and their sizes in bytes."""

    starts: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    failures: list[tuple[int, FailureEntry]] = field(default_factory=list)
    """Each with the number of step frames before it."""
    faults: list[Fault] = field(default_factory=list)
    is_sealed: bool = False


@dataclass(frozen=True, slots=True)
class Columns:
    """The entries of one or more segments. Shapes: (entries,) but for `token_ids`, which is (all tokens,). The names are
    those of the grammar."""

    epochs: Ints
    keys: NDArray[np.uint64]
    offsets: Ints
    lengths: Ints
    ends: NDArray[np.uint8]
    extra: NDArray[np.uint32]
    token_ids: NDArray[np.int32]
    logprobs: dict[int, list[TokenLogprobs]]
    """By row, where they were asked for."""
    failures: list[tuple[int, FailureEntry]]
    """Each with the number of entries before it."""

    @staticmethod
    def joined(parts: Sequence["Columns"]) -> "Columns":
        """Several segments as one."""
        bases = [0, *accumulate(len(part.keys) for part in parts)]
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ("epochs", "keys", "offsets", "lengths", "ends", "extra", "token_ids")
        }
        logprobs = {base + row: at for base, part in zip(bases, parts, strict=False) for row, at in part.logprobs.items()}
        failures = [(base + row, entry) for base, part in zip(bases, parts, strict=False) for row, entry in part.failures]
        return Columns(**columns, logprobs=logprobs, failures=failures)


def read_frames(data: bytes, seed: int) -> Frames:
    """Walk a segment whose header is good and has the checksum `seed`."""
    frames, view, end = Frames(), memoryview(data), len(data)
    position, place = HEADER.size, 0
    while position < end:
        if frames.is_sealed:
            frames.faults.append(Fault(position, "bytes behind the seal", is_torn_tail=False))
            break
        if not _is_whole(view, position, place, seed):
            following = _following(view, position)
            torn = following is None or following >= end or not any(view[position:])
            frames.faults.append(Fault(position, _complaint(view, position, place), is_torn_tail=torn))
            if following is None or not _is_whole(view, following, place + 1, seed):
                break
            position, place = following, place + 1
            continue
        length = FRAME.unpack_from(view, position)[0]
        _file(frames, view[position + FRAME.size : position + FRAME.size + length], position + FRAME.size)
        position, place = position + FRAME.size + length, place + 1
    return frames


def _is_whole(view: memoryview, position: int, place: int, seed: int) -> bool:
    if position + FRAME.size > len(view):
        return False
    length, crc = FRAME.unpack_from(view, position)
    payload = view[position + FRAME.size : position + FRAME.size + length]
    fits = len(payload) == length and length >= PREFIX.size and length % 8 == 0
    return bool(fits and frame_crc(payload, seed, place) == crc)


def _following(view: memoryview, position: int) -> int | None:
    """Where a frame that is not whole says that the next one begins; None when that is beyond the end."""
    if position + FRAME.size > len(view):
        return None
    following = position + FRAME.size + int(FRAME.unpack_from(view, position)[0])
    return following if following <= len(view) else None


def _complaint(view: memoryview, position: int, place: int) -> str:
    if _following(view, position) is None:
        return f"frame {place} is cut off, or its length is damaged"
    return f"frame {place} fails its checksum"


def _file(frames: Frames, payload: memoryview, start: int) -> None:
    """Put a whole frame where it belongs. One of a kind that this version does not know is a fault."""
    kind = payload[0]
    if kind == STEP:
        frames.starts.append(start)
        frames.sizes.append(len(payload))
    elif kind == SEAL:
        frames.is_sealed = True
    elif kind == FAILURE:
        try:
            frames.failures.append((len(frames.starts), decode_failure(payload)))
        except FormatError as error:
            frames.faults.append(Fault(start, str(error), is_torn_tail=False))
    else:
        frames.faults.append(Fault(start, f"a frame of an unknown kind, {kind}", is_torn_tail=False))


def read_columns(data: bytes, frames: Frames, epoch: int) -> Columns:
    """All entries of these frames, of a segment of that epoch. A frame whose sizes do not add up becomes a fault."""
    words = np.frombuffer(data, dtype="<u8", count=len(data) // 8)
    halves = np.frombuffer(data, dtype="<i4", count=len(data) // 4)
    starts, sizes = np.array(frames.starts, dtype=np.int64), np.array(frames.sizes, dtype=np.int64)
    counts = (words[starts // 8] >> np.uint64(32)).astype(np.int64)
    fits = PREFIX.size + ENTRY.size * counts <= sizes
    layout = _Layout(words, starts, np.where(fits, counts, 0))
    sound = fits & (layout.sizes() <= sizes) & (sizes < layout.sizes() + 8) & ~layout.has_unknown_end()
    if not sound.all():
        for start in starts[~sound]:
            frames.faults.append(Fault(int(start), "a frame whose sizes do not add up", is_torn_tail=False))
        starts, counts = starts[sound], counts[sound]
        frames.failures = [(int(sound[:place].sum()), entry) for place, entry in frames.failures]
        layout = _Layout(words, starts, counts)
    before = np.concatenate([[0], np.cumsum(counts)])
    return Columns(
        epochs=np.full(len(layout.keys), epoch, dtype=np.int64),
        keys=layout.keys,
        offsets=layout.offsets,
        lengths=layout.lengths,
        ends=layout.ends,
        extra=layout.extra(halves),
        token_ids=halves[spans(layout.token_starts(), layout.lengths)],
        logprobs=layout.logprobs(data),
        failures=[(int(before[place]), entry) for place, entry in frames.failures],
    )


class _Layout:
    """Where everything of some step frames stands. Positions of tokens are in units of four bytes."""

    def __init__(self, words: NDArray[np.uint64], starts: Ints, counts: Ints) -> None:
        self._starts, self._counts = starts, counts
        self._last = np.cumsum(counts)
        first = starts // 8 + 1 - 2 * (self._last - counts)
        rows = np.repeat(first, counts) + np.arange(0, 2 * int(counts.sum()), 2)
        self.keys = words[rows]
        meta = words[rows + 1].view(_META)
        self.offsets, self.ends = meta["offset"].astype(np.int64), meta["end"].copy()
        self.lengths, self._num_top = meta["num_tokens"].astype(np.int64), meta["num_top"].copy()
        wants = self._num_top != NO_LOGPROBS
        self._logprob_sizes = np.where(wants, self.lengths * (1 + 2 * self._num_top.astype(np.int64)), 0)
        self._num_extra = self._per_frame(self.ends > 0)

    def _per_frame(self, values: NDArray[Any]) -> Ints:
        """The sum over each frame's entries."""
        sums = np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
        return np.asarray(sums[self._last] - sums[self._last - self._counts])

    def _within(self, first: Ints, values: Ints) -> Ints:
        """For each entry, its frame's `first` plus the `values` of the entries before it in that frame."""
        sums = np.concatenate([[0], np.cumsum(values)])
        return np.asarray(sums[:-1] + np.repeat(first - sums[self._last - self._counts], self._counts))

    def _tails(self) -> Ints:
        return np.asarray((self._starts + PREFIX.size + ENTRY.size * self._counts) // 4)

    def sizes(self) -> Ints:
        """The bytes that each frame's content takes."""
        fours = self._num_extra + self._per_frame(self.lengths) + self._per_frame(self._logprob_sizes)
        return np.asarray(PREFIX.size + ENTRY.size * self._counts + 4 * fours)

    def has_unknown_end(self) -> NDArray[np.bool_]:
        return np.asarray(self._per_frame(self.ends > RESUME) > 0)

    def token_starts(self) -> Ints:
        return self._within(self._tails() + self._num_extra, self.lengths)

    def extra(self, halves: NDArray[np.int32]) -> NDArray[np.uint32]:
        has_extra = self.ends > 0
        places = self._within(self._tails(), has_extra.astype(np.int64))[has_extra]
        found = np.zeros(len(self.keys), dtype=np.uint32)
        found[has_extra] = halves[places].view(np.uint32)
        return found

    def logprobs(self, data: bytes) -> dict[int, list[TokenLogprobs]]:
        rows = np.flatnonzero(self._num_top != NO_LOGPROBS)
        if not len(rows):
            return {}
        first = self._tails() + self._num_extra + self._per_frame(self.lengths)
        places, view = self._within(first, self._logprob_sizes), memoryview(data)
        return {
            int(row): decode_logprobs(view[4 * int(places[row]) :], int(self.lengths[row]), int(self._num_top[row]))
            for row in rows
        }


def spans(starts: Ints, lengths: Ints) -> Ints:
    """The indices start, start + 1, ... of each span, one span behind the other."""
    if (lengths == 1).all():
        return starts
    ends = np.cumsum(lengths)
    total = int(ends[-1])
    return np.asarray(np.repeat(starts - (ends - lengths), lengths) + np.arange(total, dtype=np.int64))
