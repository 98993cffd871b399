"""What an order reaches on an engine of some shape: the real loop over a simulated engine, or over parts of a long night.

A night of more sequences than are simulated whole is judged by windows of neighbours, evenly spaced, each with a run-up that
fills the cache and does not count. Of an order that keeps neighbours together they tell what the cache's size adds to the
prefill that is due in any case, as each window goes through a cache without bounds as well; of another order, the share of
prompt tokens that is found in the cache.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tasks.core.plan import PlannedSequence
from tasks.core.request import StepOutput
from tasks.core.step import KVShape
from tasks.engine.scheduling import EngineShape
from tasks.engine.simulated import SimulatedEngine, StepRecord
from tasks.engine.step_time import StepTime
from tasks.generate.admission import KVAdmission
from tasks.generate.loop import generate
from tasks.generate.resume import Work

MAX_WHOLE = 6000
"""Sequences; some seconds of simulation."""
_NUM_WINDOWS, _WINDOW, _RUN_UP = 12, 1000, 300

Load = Callable[[Sequence[int]], Iterator[PlannedSequence]]
"""The sequences at these places of an order."""


@dataclass(frozen=True, slots=True)
class Reached:
    """What an order reaches. `prefill_tokens` are prompt tokens that are computed, some again after a preemption;
    `hit_rate` is the share of prompt tokens that come from the cache; `seconds` is None where no step was ever timed."""

    prefill_tokens: int
    hit_rate: float
    recomputed_tokens: int
    peak_kv_tokens: int
    kv_use: float
    seconds: float | None


class _Listener:
    """In the journal's place: hears how many tokens of each prompt were cached."""

    def __init__(self) -> None:
        self.cached: dict[int, int] = {}

    def begin(self, key: int, saved_token_ids: Sequence[int] = ()) -> None: ...

    def append(self, outputs: Sequence[StepOutput]) -> None:
        self.cached.update((output.key, output.cached_tokens) for output in outputs if output.finish_reason is not None)

    def fail(self, key: int, reason: str) -> None: ...


@dataclass(slots=True)
class _Sums:
    """Of the sequences that count: tokens of prompts, of these cached, and of answers; and what all steps worked on."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    recomputed: int = 0
    seconds: float = 0.0
    peak_blocks: int = 0
    held_blocks: float = 0.0
    windows: int = 0


def reach(
    load: Load,
    num_sequences: int,
    shape: EngineShape,
    *,
    total_prompt: int,
    total_output: int,
    least_prefill: int,
    is_ordered: bool,
    by_kv: bool,
    speed: StepTime | None,
) -> Reached:
    """Run an order of so many sequences, whose prompts and answers have so many tokens in all, of which `least_prefill` must
    be computed whatever the cache; `is_ordered` says that it keeps together what shares. `by_kv` admits by predicted KV, as
    we do, and else there is room for as many as the engine takes, as vLLM does with a list."""
    sums, boundless = _Sums(), _Sums()
    for places, run_up in _windows(num_sequences):
        sequences = list(load(places))
        _run(sequences, run_up, shape, by_kv=by_kv, speed=speed, sums=sums)
        if is_ordered and num_sequences > MAX_WHOLE:
            enough = sum(shape.blocks_of(len(one.prompt_token_ids) + _length_of(one)) + 1 for one in sequences)
            wide = replace(shape, num_blocks=max(enough, shape.num_blocks))
            _run(sequences, run_up, wide, by_kv=by_kv, speed=None, sums=boundless)
    hit_rate = sums.cached_tokens / max(sums.prompt_tokens, 1)
    if num_sequences > MAX_WHOLE:
        lost = max(0, boundless.cached_tokens - sums.cached_tokens) / max(sums.prompt_tokens, 1)
        most = 1 - least_prefill / max(total_prompt, 1)
        hit_rate = max(0.0, most - lost) if is_ordered else min(hit_rate, most)
    work = (total_prompt + total_output) / max(sums.prompt_tokens + sums.output_tokens, 1)
    recomputed = round(sums.recomputed * work)
    return Reached(
        prefill_tokens=round(total_prompt * (1 - hit_rate)) + recomputed,
        hit_rate=hit_rate,
        recomputed_tokens=recomputed,
        peak_kv_tokens=sums.peak_blocks * shape.block_size,
        kv_use=sums.held_blocks / max(sums.windows * shape.usable_blocks, 1),
        seconds=sums.seconds * work if speed else None,
    )


def _windows(number: int) -> Iterator[tuple[range, int]]:
    """The places to simulate together, and how many of them come first and do not count."""
    if number <= MAX_WHOLE:
        yield range(number), 0
        return
    for i in range(_NUM_WINDOWS):
        begin = (number - _WINDOW) * i // (_NUM_WINDOWS - 1)
        yield range(begin, begin + _WINDOW), _RUN_UP if begin else 0


def _run(
    sequences: list[PlannedSequence], run_up: int, shape: EngineShape, *, by_kv: bool, speed: StepTime | None, sums: _Sums
) -> None:
    seconds = 0.0

    def on_steps(record: StepRecord) -> None:
        nonlocal seconds
        if speed is not None:
            seconds += speed.seconds(
                steps=record.num_steps,
                prefill_tokens=record.prefill_tokens,
                decode_tokens=record.decode_seqs * record.num_steps,
                context_tokens=record.context_tokens,
            )

    engine = SimulatedEngine(shape, _length_of, max_steps_per_call=1 << 20, on_steps=on_steps)
    counted = {one.key: one for one in sequences[run_up:]}
    listener = _Listener()
    generate(
        map(Work, sequences),
        engine,
        listener,
        max_num_seqs=shape.max_num_seqs,
        should_stop=lambda: False,
        on_step=lambda tally: None,
        room=KVAdmission(KVShape(shape.usable_blocks, shape.block_size)) if by_kv else None,
    )
    share = len(counted) / max(len(sequences), 1)
    sums.prompt_tokens += sum(len(one.prompt_token_ids) for one in counted.values())
    sums.cached_tokens += sum(listener.cached.get(key, 0) for key in counted)
    sums.output_tokens += sum(map(_length_of, counted.values()))
    sums.recomputed += round(engine.counters.recomputed * share)
    sums.seconds += seconds * share
    sums.peak_blocks = max(sums.peak_blocks, engine.counters.peak_blocks)
    sums.held_blocks += engine.counters.mean_blocks
    sums.windows += 1


def _length_of(sequence: PlannedSequence) -> int:
    """The answer's length as far as it is known: predicted, else as long as it may get."""
    known = sequence.predicted_tokens
    return sequence.sampling.max_tokens if known is None else max(1, min(known, sequence.sampling.max_tokens))
