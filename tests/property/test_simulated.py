"""Whatever runs on it, the simulated engine keeps its books, and steps taken together are steps taken one by one."""

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.core.plan import PlannedSequence
from tasks.core.request import SamplingParams
from tasks.engine.scheduling import EngineShape
from tasks.engine.simulated import SimulatedEngine, StepRecord

PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=14).map(tuple)
WORK = st.lists(st.tuples(PROMPTS, st.integers(1, 20)), min_size=1, max_size=14).map(
    lambda rows: [
        PlannedSequence(key, str(key), 0, 0, prompt, SamplingParams(max_tokens=length))
        for key, (prompt, length) in enumerate(rows)
    ]
)
SHAPES = st.builds(
    EngineShape,
    block_size=st.integers(1, 5),
    num_blocks=st.integers(36, 60),
    max_num_seqs=st.integers(1, 6),
    max_num_batched_tokens=st.integers(1, 24),
    watermark=st.sampled_from([0.0, 0.1]),
    reserve_full_isl=st.booleans(),
)


def tight(shape: EngineShape) -> EngineShape:
    """With hardly more blocks than the longest sequence needs."""
    return replace(shape, num_blocks=shape.blocks_of(34) + 2 + shape.num_blocks % 5)


def run(engine: SimulatedEngine, work: list[PlannedSequence], num_fed: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The finished sequences with their cached tokens and answers, in order; at most so many are in the engine at once."""
    answers: dict[int, tuple[int, ...]] = {sequence.key: () for sequence in work}
    waiting = iter(work)
    while True:
        while engine.num_unfinished < num_fed and (sequence := next(waiting, None)):
            engine.add_request(sequence, ())
        if not engine.num_unfinished:
            return
        for output in engine.step():
            answers[output.key] += tuple(output.token_ids)
            if output.finish_reason:
                yield output.key, (output.cached_tokens, *answers[output.key])


@given(WORK, SHAPES.map(tight), st.integers(1, 14))
@settings(max_examples=400, deadline=None)
def test_steps_together_are_steps_one_by_one(work: list[PlannedSequence], shape: EngineShape, num_fed: int) -> None:
    """The order of the ends, all tokens, what was cached, every counter and the sums of the records are the same."""
    records: list[list[StepRecord]] = [[], [], []]
    engines = [
        SimulatedEngine(shape, on_steps=records[0].append),
        SimulatedEngine(shape, on_steps=records[1].append, max_steps_per_call=1 << 30),
        SimulatedEngine(shape, on_steps=records[2].append, max_steps_per_call=3, final_only=True),
    ]
    single, *others = [list(run(engine, work, num_fed)) for engine in engines]
    assert others == [single, single]
    assert [engine.counters for engine in engines[1:]] == [engines[0].counters] * 2
    assert [totals(record) for record in records[1:]] == [totals(records[0])] * 2
    assert totals(records[0])[:1] == (engines[0].counters.steps,)


def totals(records: list[StepRecord]) -> tuple[int, int, int, int]:
    """Steps, prefill tokens, decode tokens and context tokens of a whole run."""
    return (
        sum(record.num_steps for record in records),
        sum(record.prefill_tokens for record in records),
        sum(record.decode_seqs * record.num_steps for record in records),
        sum(record.context_tokens for record in records),
    )


@given(WORK, SHAPES.map(tight), st.integers(1, 14))
@settings(max_examples=200, deadline=None)
def test_the_books_are_kept(work: list[PlannedSequence], shape: EngineShape, num_fed: int) -> None:
    """Each sequence ends once with its whole answer; each token is computed or was cached; all blocks come back."""
    engine = SimulatedEngine(shape)
    answers = dict(run(engine, work, num_fed))
    assert {key: len(answer) - 1 for key, answer in answers.items()} == {s.key: s.sampling.max_tokens for s in work}
    counters = engine.counters
    assert counters.queried == sum(len(sequence.prompt_token_ids) for sequence in work)
    assert counters.hit == sum(answer[0] for answer in answers.values())
    if not counters.preemptions:
        whole = sum(len(s.prompt_token_ids) + s.sampling.max_tokens - 1 for s in work)
        assert counters.computed == whole - counters.hit
        assert counters.recomputed == 0
    assert counters.peak_blocks <= shape.usable_blocks
    assert counters.steps <= counters.computed
    engine.reset_prefix_cache()  # which refuses while a block is held


@given(WORK, st.integers(1, 8))
@settings(max_examples=100, deadline=None)
def test_saved_tokens_lead_to_the_same_end(work: list[PlannedSequence], num_saved: int) -> None:
    """A sequence that goes on from its first tokens ends like an undisturbed one."""
    engine = SimulatedEngine(EngineShape(4, 200, 8, 64))
    whole = dict(run(engine, work, 8))
    for sequence in work:
        saved = whole[sequence.key][1:][: min(num_saved, sequence.sampling.max_tokens - 1)]
        engine.add_request(sequence, saved)
        rest: list[int] = []
        while engine.num_unfinished:
            rest += (token for output in engine.step() for token in output.token_ids)
        assert (*saved, *rest) == whole[sequence.key][1:]
