"""SimulatedEngine: what vLLM would schedule, cache, evict and preempt, without a model: for dry runs, plans and tests.

Sequences with the length of their answer go in, made-up tokens come out; counters and, if wanted, a record of each step
tell what the real engine would have done. Invariant: the tokens depend on the prompt and the position alone, so that a
sequence goes on from saved tokens as if nothing had happened.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tasks.core.errors import RequestError
from tasks.core.plan import PlannedSequence
from tasks.core.request import FinishReason, SamplingParams, StepOutput
from tasks.engine.kv_pool import next_hash
from tasks.engine.quiet import quiet_steps, run_quietly
from tasks.engine.scheduling import Counters, EngineShape, Scheduled, Scheduler

_CYCLE = tuple(range(1, 257))
"""The made-up tokens; ids that every tokenizer has."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What `num_steps` steps in a row computed, together: for a model of the time that steps take.

    `context_tokens` is, summed over all tokens computed, how many tokens each attends to. The sequences decoding are the
    same in all of these steps.
    """

    num_steps: int
    prefill_tokens: int
    decode_seqs: int
    context_tokens: int


def max_tokens_of(sequence: PlannedSequence) -> int:
    """The longest answer that a sequence may give, in tokens."""
    return sequence.sampling.max_tokens


class SimulatedEngine:
    """An engine of the given shape. `length_of` tells how many tokens a sequence's whole answer has; more than its
    max_tokens it never gets, and one that has so many saved tokens gets one more. `tokens_of` gives real answers in place of
    made-up ones. With `max_steps_per_call` above 1, one call of `step` takes the engine up to where something happens; with
    `final_only`, tokens come with the step in which their sequence ends, all at once.
    """

    def __init__(
        self,
        shape: EngineShape,
        length_of: Callable[[PlannedSequence], int] = max_tokens_of,
        *,
        tokens_of: Callable[[PlannedSequence], Sequence[int]] | None = None,
        max_steps_per_call: int = 1,
        final_only: bool = False,
        on_steps: Callable[[StepRecord], None] | None = None,
    ) -> None:
        self.shape = shape
        self._length_of, self._tokens_of = length_of, tokens_of
        self._final_only = final_only
        self._max_steps, self._on_steps = max_steps_per_call, on_steps
        self._scheduler = Scheduler(shape)
        self._sequences: dict[int, Scheduled] = {}
        self._all_decode = False

    @property
    def counters(self) -> Counters:
        return self._scheduler.counters

    @property
    def max_num_seqs(self) -> int:
        return self.shape.max_num_seqs

    @property
    def num_unfinished(self) -> int:
        return len(self._sequences)

    @property
    def running_keys(self) -> list[int]:
        """The sequences that hold KV blocks now, first admitted first."""
        return [sequence.planned.key for sequence in self._scheduler.running]

    def continues_exactly(self, sampling: SamplingParams) -> bool:
        return True

    def add_request(self, sequence: PlannedSequence, saved_token_ids: Sequence[int]) -> None:
        if sequence.key in self._sequences:
            raise RequestError(f"{sequence.request_id} is in the engine already")
        answer = self._answer(sequence, len(saved_token_ids))
        given = (*sequence.prompt_token_ids, *saved_token_ids) if saved_token_ids else sequence.prompt_token_ids
        wanted, usable = self.shape.blocks_of(len(given) + len(answer)), self.shape.usable_blocks
        if not given or wanted > usable:
            raise RequestError(f"{len(given) + len(answer)} tokens need {wanted} KV blocks, and there are {usable}")
        scheduled = self._sequences[sequence.key] = Scheduled(sequence, given, answer)
        self._scheduler.waiting.append(scheduled)

    def step(self) -> list[StepOutput]:
        steps = quiet_steps(self._scheduler, self._max_steps) if self._all_decode and self._max_steps > 1 else 0
        if steps > 1:
            self._record_quiet(steps)
            return self._outputs(run_quietly(self._scheduler, steps), steps)
        if not self._sequences:
            return []
        step = self._scheduler.schedule()
        self._record(step)
        served = self._scheduler.settle(step)
        self._all_decode = len(served) == len(step) and not self._holds_prefill()
        return self._outputs(served, 1)

    def abort(self, keys: Sequence[int]) -> None:
        for key in keys:
            if (sequence := self._sequences.pop(key, None)) is not None:
                self._scheduler.remove(sequence)

    def reset_prefix_cache(self) -> None:
        """Forget all cached blocks. Raises ValueError while a sequence holds some."""
        self._scheduler.pool.reset()

    def close(self) -> None:
        self._sequences.clear()
        self._scheduler = Scheduler(self.shape)

    def _answer(self, sequence: PlannedSequence, num_saved: int) -> Sequence[int]:
        """The tokens that it generates from here on."""
        if self._tokens_of is not None:
            return self._tokens_of(sequence)[num_saved:]
        length = max(num_saved + 1, min(self._length_of(sequence), sequence.sampling.max_tokens))
        start = next_hash(b"", sequence.prompt_token_ids)[0] + num_saved
        start, length = start % len(_CYCLE), length - num_saved
        return (_CYCLE * (1 + (start + length) // len(_CYCLE)))[start : start + length]

    def _outputs(self, served: list[Scheduled], num_new: int) -> list[StepOutput]:
        outputs = []
        for sequence in served:
            end = sequence.num_tokens - len(sequence.given)
            if sequence.num_tokens == sequence.end_tokens:
                token_ids = sequence.answer if self._final_only else sequence.answer[end - num_new :]
                outputs.append(StepOutput(sequence.planned.key, token_ids, _reason(sequence), sequence.cached_tokens))
                del self._sequences[sequence.planned.key]
            elif not self._final_only:
                outputs.append(StepOutput(sequence.planned.key, sequence.answer[end - num_new : end]))
        return outputs

    def _holds_prefill(self) -> bool:
        return any(sequence.num_tokens - sequence.num_computed != 1 for sequence in self._scheduler.running)

    def _record(self, step: list[tuple[Scheduled, int]]) -> None:
        if self._on_steps is None:
            return
        decodes = sum(new == 1 and sequence.num_generated > 0 for sequence, new in step)
        context = sum(new * sequence.num_computed + new * (new + 1) // 2 for sequence, new in step)
        self._on_steps(StepRecord(1, sum(new for _, new in step) - decodes, decodes, context))

    def _record_quiet(self, steps: int) -> None:
        if self._on_steps is None:
            return
        running = self._scheduler.running
        first = sum(sequence.num_computed + 1 for sequence in running)
        context = steps * first + len(running) * steps * (steps - 1) // 2
        self._on_steps(StepRecord(steps, 0, len(running), context))


def _reason(sequence: Scheduled) -> FinishReason:
    whole = sequence.num_tokens - len(sequence.planned.prompt_token_ids)
    return FinishReason.LENGTH if whole >= sequence.planned.sampling.max_tokens else FinishReason.STOP
