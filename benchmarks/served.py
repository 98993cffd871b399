"""The plan's sequences through the product's own loop, on a simulated engine or the real one, with their true lengths.

What a planner sees of a suite S4 (limits, and predictions learnt from an earlier night) and what only the engine knows (true
lengths) are kept apart here.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmarks.replay import SmallerCache
from benchmarks.suites import Item, Suite
from tasks.core.plan import PlannedSequence
from tasks.core.protocols import Engine, Room
from tasks.core.request import FinishReason, SamplingParams, StepOutput
from tasks.core.step import StepLoad
from tasks.engine.scheduling import Counters, EngineShape
from tasks.engine.simulated import SimulatedEngine, StepRecord
from tasks.engine.step_time import StepTime
from tasks.generate.loop import Tally, generate
from tasks.generate.resume import Work

if TYPE_CHECKING:
    from tasks.engine.vllm import VLLMEngine

Lengths = dict[int, int]


class NoJournal:
    """A journal that keeps nothing."""

    def begin(self, key: int, saved_token_ids: Sequence[int] = ()) -> None:
        return

    def append(self, outputs: Sequence[StepOutput]) -> None:
        return

    def fail(self, key: int, reason: str) -> None:
        raise AssertionError(f"{key} failed: {reason}")


class TrueLengths:
    """An engine whose answers have the lengths that are given; those short of their limit end by themselves."""

    def __init__(self, engine: Engine, lengths: Lengths) -> None:
        self._engine, self._lengths = engine, lengths
        self._limits: Lengths = {}

    @property
    def num_unfinished(self) -> int:
        return self._engine.num_unfinished

    def continues_exactly(self, sampling: SamplingParams) -> bool:
        return self._engine.continues_exactly(sampling)

    def add_request(self, sequence: PlannedSequence, saved_token_ids: Sequence[int]) -> None:
        self._limits[sequence.key] = sequence.sampling.max_tokens
        true = replace(sequence.sampling, max_tokens=self._lengths[sequence.key], ignore_eos=True)
        self._engine.add_request(replace(sequence, sampling=true), saved_token_ids)

    def step(self) -> list[StepOutput]:
        return [self._ended(output) if output.finish_reason else output for output in self._engine.step()]

    def _ended(self, output: StepOutput) -> StepOutput:
        is_short = self._lengths[output.key] < self._limits[output.key]
        return replace(output, finish_reason=FinishReason.STOP if is_short else FinishReason.LENGTH)

    def abort(self, keys: Sequence[int]) -> None:
        self._engine.abort(keys)

    def close(self) -> None:
        self._engine.close()


@dataclass(frozen=True, slots=True)
class Night:
    """What a run did: the engine's counters, each step's load, and how many steps there were, and blocks held in them, while
    more work was waiting than the loop has at hand."""

    counters: Counters
    loads: tuple[StepLoad, ...]
    fed_steps: int
    fed_blocks: int

    def seconds(self, time: StepTime) -> float:
        """How long it takes by a model of the step's time."""
        return sum(_seconds(load, time) for load in self.loads)

    def full_rate_seconds(self, time: StepTime) -> float:
        """How long it takes when the work left at its end is done as full as the steps were while there was more: in each
        step as many decode as did then in the median."""
        full = statistics.median(load.decode_seqs for load in self.loads[: self.fed_steps])
        end = self.loads[self.fed_steps :]
        saved = len(end) - sum(load.decode_seqs for load in end) / full
        return self.seconds(time) - time.step_s * max(saved, 0.0)


def _seconds(load: StepLoad, time: StepTime) -> float:
    return time.seconds(
        steps=1,
        prefill_tokens=load.prefill_tokens,
        decode_tokens=load.decode_seqs,
        context_tokens=load.context_tokens,
    )


def simulate(plan: Sequence[PlannedSequence], lengths: Lengths, shape: EngineShape, room: Room | None) -> Night:
    """A night on the simulated engine, through the loop that the product runs."""
    loads: list[StepLoad] = []

    def on_steps(record: StepRecord) -> None:
        loads.append(StepLoad(record.prefill_tokens, record.decode_seqs, record.context_tokens))

    engine = SimulatedEngine(shape, lambda sequence: lengths[sequence.key], on_steps=on_steps)
    fed = Fed(plan, engine.counters)
    generate(
        fed.work(),
        engine,
        NoJournal(),
        max_num_seqs=shape.max_num_seqs,
        should_stop=lambda: False,
        on_step=fed.on_step,
        room=room,
    )
    return Night(engine.counters, tuple(loads), fed.steps, fed.held_blocks)


def serve(
    engine: "VLLMEngine",
    cache: SmallerCache,
    plan: Sequence[PlannedSequence],
    lengths: Lengths,
    blocks: int,
    room: Room | None,
) -> Night:
    """A night on vLLM with an empty cache of so many blocks; `recomputed` is what was computed beyond what had to be."""
    cache.resize(blocks)
    before, counters, loads = engine.cache_counters(), Counters(), list[StepLoad]()
    fed = Fed(plan, counters)

    def on_step(tally: Tally) -> None:
        loads.append(engine.last_load)
        counters.steps += 1
        counters.held_blocks += blocks - 1 - cache.num_free
        fed.on_step(tally)

    generate(
        fed.work(),
        TrueLengths(engine, lengths),
        NoJournal(),
        max_num_seqs=engine.max_num_seqs,
        should_stop=lambda: False,
        on_step=on_step,
        room=room,
    )
    after = engine.cache_counters()
    counters.prefilled, counters.decoded = (
        sum(load.prefill_tokens for load in loads),
        sum(load.decode_seqs for load in loads),
    )
    once = (after.queried - before.queried) - (after.hit - before.hit) + sum(length - 1 for length in lengths.values())
    counters.recomputed, counters.preemptions = counters.computed - once, after.preemptions - before.preemptions
    return Night(counters, tuple(loads), fed.steps, fed.held_blocks)


class Fed:
    """Work that remembers up to when there was more of it: later steps are the night's end."""

    def __init__(self, plan: Sequence[PlannedSequence], counters: Counters) -> None:
        self._plan, self._counters = plan, counters
        self._is_left = True
        self.steps = self.held_blocks = 0

    def work(self) -> Iterator[Work]:
        yield from map(Work, self._plan)
        self._is_left = False

    def on_step(self, tally: Tally) -> None:
        if self._is_left:
            self.steps, self.held_blocks = self._counters.steps, self._counters.held_blocks


def kind_of(item: Item) -> tuple[str, str]:
    """The kind of question that an item of S4 asks, as anybody can tell who sees the first words."""
    return item.source, item.text.partition(":")[0]


def upper_lengths(suite: Suite) -> dict[int, float]:
    """What nineteen of twenty answers of an item's kind did not exceed on the night before, by key."""
    known = defaultdict(list)
    for item in suite.history:
        known[kind_of(item)].append(item.true_tokens)
    uppers = {kind: statistics.quantiles(lengths, n=20)[-1] for kind, lengths in known.items()}
    return {item.key: uppers[kind_of(item)] for item in suite.items}


def planned(suite: Suite, items: Sequence[Item], predicts: str) -> list[PlannedSequence]:
    """Items as the planner has them: with the limit, and the prediction that `predicts` names (none, kind or truth)."""
    known = defaultdict(list)
    for item in suite.history:
        known[kind_of(item)].append(item.true_tokens)
    medians = {kind: round(statistics.median(lengths)) for kind, lengths in known.items()}
    return [_planned(item, _prediction(item, predicts, medians.get(kind_of(item)))) for item in items]


def _prediction(item: Item, predicts: str, of_kind: int | None) -> int | None:
    return {"none": None, "kind": of_kind, "truth": item.true_tokens}[predicts]


def _planned(item: Item, predicted: int | None) -> PlannedSequence:
    key, params = item.key, SamplingParams(max_tokens=item.max_tokens)
    return PlannedSequence(key, item.request_id, 0, 0, item.prompt_token_ids, params, item.source, predicted)


def true_lengths(suite: Suite) -> Lengths:
    return {item.key: item.true_tokens for item in suite.items}
