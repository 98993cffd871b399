"""Admission by predicted KV need: whether the next sequence of the plan fits beside what is in flight until the end of all.

Each sequence in flight will hold, t tokens from now, its blocks at that length times the chance that it still runs then
(lengths.py). The sum's mean plus `caution` standard deviations must stay within the pool at every t: the peak to come
decides, not the sum of the longest answers possible, as the short ones will be gone when the long ones are at their longest
(the future peak is an idea of arXiv 2507.10150). Blocks of a prefix that neighbours in the plan share count once
(neighbours.py).

An estimate that was too hopeful makes the engine preempt; one sequence may always run. No clock and no engine: told what
began and what came out, it answers.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.core.plan import PlannedSequence
from tasks.core.request import FinishReason, StepOutput
from tasks.core.step import KVShape
from tasks.generate.lengths import LengthClasses, bin_of, places, scale_of
from tasks.generate.neighbours import InFlight, Neighbours

CAUTION = 2.75
_ALIKE = 2.0
"""The variance of lengths that nobody predicted counts for more: neighbours in the plan are alike, and err together."""
_NUM_LIMITS = 8
_LOOK_EVERY = 8
_ENDED_SHARE = 32
"""All that is in flight is looked at anew when more than this part of it has ended, or so many steps have passed."""

Floats = NDArray[np.float64]
_AHEAD: Floats = np.concatenate([[0.0, 1.0, 2.0, 4.0], 8 * 2.0 ** (np.arange(23) / 2)])
"""Times looked at whatever is in flight, in tokens from now: up to 16,384, each half an octave after the one before."""


class KVAdmission:
    """Says whether work fits; to be told of all that begins and of every step's outputs."""

    def __init__(self, shape: KVShape, *, caution: float = CAUTION) -> None:
        self._shape, self._caution = shape, caution
        self._lengths = LengthClasses()
        self._flight = Neighbours(shape.block_size)
        self._steps = 0
        self._looked = 0
        self._ended = 0
        self._asked: InFlight | None = None
        self._refused: int | None = None
        self._is_stale = True
        self._times = _AHEAD
        self._mean: Floats = np.zeros_like(_AHEAD)
        self._variance: Floats = np.zeros_like(_AHEAD)
        self._most: Floats = np.zeros_like(_AHEAD)

    def fits(self, sequence: PlannedSequence, num_saved: int) -> bool:
        """Whether a sequence with so many saved tokens may join what is in flight now; always when nothing is."""
        if not self._flight.by_key:
            return True
        if self._is_stale or self._is_due:
            self._look()
        if self._refused == sequence.key:
            return False
        one, last = self._entry(sequence, num_saved), self._flight.last
        one.need = mean, variance, most = self._forecast([one])
        self._asked = one
        if last is not None and (also := one.shared - last.shared) > 0:
            mean = mean + also * (1 - self._running([last])[0])
        likely = self._mean + mean + self._caution * np.sqrt(self._variance + variance)
        peak = np.minimum(likely, self._most + most)
        if peak[self._times >= self._steps - self._looked].max(initial=0.0) <= self._shape.num_blocks:
            return True
        self._refused = sequence.key
        return False

    def begin(self, sequence: PlannedSequence, num_saved: int) -> None:
        """It has gone to the engine."""
        one = self._asked
        if one is None or one.key != sequence.key:
            one = self._entry(sequence, num_saved)
        self._flight.join(one, sequence.prompt_token_ids)
        self._lengths.reach(one.class_, one.bin, one.bin)
        if one.need is None or (one.before is not None and one.before.also_used):
            self._is_stale = True
        else:
            self._count(one.need)

    def note(self, outputs: Iterable[StepOutput]) -> None:
        """What a step gave."""
        for output in outputs:
            one = self._flight.by_key.get(output.key)
            if one is None:
                continue
            one.num_tokens += len(output.token_ids)
            if output.finish_reason is not None or output.error is not None:
                self._end(one, by_itself=output.finish_reason is FinishReason.STOP)
        self._steps += 1

    def expected_tokens(self, sequence: PlannedSequence) -> float:
        """How long its answer gets, in the mean, saved tokens among them."""
        class_ = self._lengths.class_of(sequence.source, sequence.predicted_tokens)
        scale = scale_of(sequence.predicted_tokens)
        return self._lengths.expected_tokens(class_, scale, sequence.sampling.max_tokens)

    def _entry(self, sequence: PlannedSequence, num_saved: int) -> InFlight:
        class_ = self._lengths.class_of(sequence.source, sequence.predicted_tokens)
        scale = scale_of(sequence.predicted_tokens)
        prompt = sequence.prompt_token_ids
        shared = self._flight.shared_with_last(prompt)
        limit = sequence.sampling.max_tokens
        is_predicted = sequence.predicted_tokens is not None
        bin_ = bin_of(num_saved * scale)
        return InFlight(sequence.key, len(prompt), num_saved, limit, class_, scale, bin_, is_predicted, shared)

    def _end(self, one: InFlight, *, by_itself: bool) -> None:
        self._reach(one, bin_of(one.num_tokens * one.scale))
        if by_itself:
            self._lengths.end(one.class_, one.bin)
        self._ended += 1
        self._flight.leave(one)

    @property
    def _is_due(self) -> bool:
        share = len(self._flight.by_key) // _ENDED_SHARE
        return self._ended > share or self._steps - self._looked >= _LOOK_EVERY

    def _reach(self, one: InFlight, bin_: int) -> None:
        if bin_ > one.bin:
            self._lengths.reach(one.class_, one.bin + 1, bin_)
            one.bin = bin_

    def _look(self) -> None:
        """Look at all that is in flight anew."""
        flight = list(self._flight.by_key.values())
        for one in flight:
            self._reach(one, bin_of(one.num_tokens * one.scale))
        self._lengths.look(np.array([one.class_ for one in flight]), np.array([one.bin for one in flight]))
        left = np.sort([max(one.max_tokens - one.num_tokens - 1, 0) for one in flight])
        limits = left[np.linspace(0, len(left) - 1, _NUM_LIMITS).astype(int)]
        self._times = np.concatenate([_AHEAD, limits])
        self._mean, self._variance, self._most = self._forecast(flight)
        self._is_stale, self._looked, self._ended, self._refused = False, self._steps, 0, None

    def _count(self, need: tuple[Floats, Floats, Floats]) -> None:
        """Add it to the sums. An end is not taken out of them: it was foreseen, so that counting it again would make the
        need look smaller than it is."""
        mean, variance, most = need
        self._mean, self._variance, self._most = self._mean + mean, self._variance + variance, self._most + most

    def _forecast(self, flight: Sequence[InFlight]) -> tuple[Floats, Floats, Floats]:
        """Mean, variance and upper bound of the blocks that these will hold at the times looked at."""
        running = self._running(flight)
        tokens = np.array([one.num_prompt + one.num_tokens for one in flight])[:, None]
        also = np.array([one.also_used for one in flight])
        not_own = also + np.array([one.shared for one in flight])
        blocks = np.ceil((tokens + self._times) / self._shape.block_size) - not_own[:, None]
        kept, held = float(also.sum()), running * blocks
        alike = np.array([1.0 if one.is_predicted else _ALIKE for one in flight])
        return kept + held.sum(axis=0), alike @ (held * (blocks - held)), kept + ((running > 0) * blocks).sum(axis=0)

    def _running(self, flight: Sequence[InFlight]) -> Floats:
        """The chance of each that it still runs at the times looked at."""
        scale = np.array([one.scale for one in flight])[:, None]
        now = np.array([one.num_tokens for one in flight])[:, None]
        left = np.array([one.max_tokens - one.num_tokens for one in flight])[:, None]
        classes = np.array([one.class_ for one in flight])[:, None]
        then = self._lengths.log_survival(classes, places((now + self._times) * scale))
        chance: Floats = np.exp(then - then[:, :1]) * (self._times < left)
        return chance


class Unbounded:
    """An engine whose memory sets no bound. Nothing is learnt; what is expected is what was predicted, else the limit."""

    def fits(self, sequence: PlannedSequence, num_saved: int) -> bool:
        return True

    def begin(self, sequence: PlannedSequence, num_saved: int) -> None:
        return

    def note(self, outputs: Sequence[StepOutput]) -> None:
        return

    def expected_tokens(self, sequence: PlannedSequence) -> float:
        limit = sequence.sampling.max_tokens
        return limit if sequence.predicted_tokens is None else min(sequence.predicted_tokens, limit)
