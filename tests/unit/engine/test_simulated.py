"""The simulated engine on cases small enough to work out by hand; that it is right is shown against vLLM's own counters."""

from collections.abc import Sequence

import pytest

from tasks.core.errors import RequestError
from tasks.core.plan import PlannedSequence
from tasks.core.request import FinishReason, SamplingParams, StepOutput
from tasks.engine.kv_pool import KVPool
from tasks.engine.scheduling import EngineShape
from tasks.engine.simulated import SimulatedEngine, StepRecord

SHAPE = EngineShape(block_size=4, num_blocks=101, max_num_seqs=8, max_num_batched_tokens=64)


def planned(key: int, prompt: Sequence[int], max_tokens: int = 3) -> PlannedSequence:
    return PlannedSequence(key, str(key), 0, 0, tuple(prompt), SamplingParams(max_tokens=max_tokens))


def finish(engine: SimulatedEngine, *sequences: PlannedSequence) -> list[StepOutput]:
    """All outputs of these sequences, added together."""
    for sequence in sequences:
        engine.add_request(sequence, ())
    outputs = []
    while engine.num_unfinished:
        outputs += engine.step()
    return outputs


def cached(outputs: list[StepOutput]) -> dict[int, int]:
    return {output.key: output.cached_tokens for output in outputs if output.finish_reason}


def test_sequences_of_one_step_share_blocks() -> None:
    """What follows in the same step finds the full blocks of the first, whose blocks are counted once."""
    engine = SimulatedEngine(SHAPE)
    outputs = finish(engine, *(planned(key, [*range(10), key]) for key in range(100, 103)))
    assert cached(outputs) == {100: 0, 101: 8, 102: 8}
    assert (engine.counters.queried, engine.counters.hit, engine.counters.prefilled) == (33, 16, 17)
    assert engine.counters.peak_blocks == 2 + 3 * 2


def test_the_last_prompt_token_is_always_computed() -> None:
    """An equal prompt of two full blocks finds the first only; with one token more it finds both."""
    engine = SimulatedEngine(SHAPE)
    finish(engine, planned(1, range(8)))
    assert cached(finish(engine, planned(2, range(8)), planned(3, range(9)))) == {2: 4, 3: 8}


def test_generated_tokens_are_cached_too() -> None:
    """A sequence that goes on from its tokens finds the blocks that they filled; the last token was never computed."""
    engine = SimulatedEngine(SHAPE)
    tokens = [token for output in finish(engine, planned(1, range(6), 7)) for token in output.token_ids]
    engine.add_request(planned(1, range(6), 12), tokens)
    (output,) = engine.step()
    assert engine.counters.hit == 12
    assert output.token_ids != tuple(tokens[:1])


def test_what_was_used_longest_ago_goes_first_and_from_its_end() -> None:
    """With room for two of three prompts, the oldest has lost its last blocks and keeps its beginning."""
    for start, kept in ((100, 4), (200, 12), (300, 12)):
        engine = SimulatedEngine(EngineShape(4, 9, 8, 64))
        for before in (100, 200, 300):
            finish(engine, planned(before, range(before, before + 13), 1))
        assert cached(finish(engine, planned(9, range(start, start + 13), 1))) == {9: kept}


def test_the_last_admitted_is_preempted_and_computed_again() -> None:
    """Two that need the same block: the newer one goes, keeps its tokens, and finds what nobody took of its blocks."""
    engine = SimulatedEngine(EngineShape(4, 5, 8, 64))
    outputs = finish(engine, planned(1, range(7), 4), planned(2, range(50, 57), 6))
    assert [output.key for output in outputs if output.finish_reason] == [1, 2]
    assert engine.counters.preemptions == 1
    assert engine.counters.recomputed == 4  # of 8 computed tokens the first block was still there
    assert engine.counters.queried == 14
    assert sum(len(output.token_ids) for output in outputs) == 10


def test_a_long_prompt_is_computed_in_pieces_beside_the_others() -> None:
    """Running sequences get their token first, and the prompt what is left of the step."""
    records: list[StepRecord] = []
    engine = SimulatedEngine(EngineShape(4, 101, 8, 16), on_steps=records.append)
    outputs = finish(engine, planned(1, range(5), 4), planned(2, range(100, 130), 1))
    assert records == [
        StepRecord(1, 16, 0, 5 * 6 // 2 + 11 * 12 // 2),
        StepRecord(1, 15, 1, 6 + 15 * 11 + 15 * 16 // 2),
        StepRecord(1, 4, 1, 7 + 4 * 26 + 4 * 5 // 2),
        StepRecord(1, 0, 1, 8),
    ]
    assert [output.key for output in outputs] == [1, 1, 1, 2, 1]


def test_answers_have_the_length_they_are_told_to_have() -> None:
    """An answer that ends before max_tokens has stopped; none is longer; given tokens come out as they are."""
    engine = SimulatedEngine(SHAPE, lambda sequence: {1: 2, 2: 99}[sequence.key])
    outputs = finish(engine, planned(1, range(5)), planned(2, range(6)))
    assert {output.key: output.finish_reason for output in outputs if output.finish_reason} == {
        1: FinishReason.STOP,
        2: FinishReason.LENGTH,
    }
    assert len(outputs) == 2 + 3
    real = SimulatedEngine(SHAPE, tokens_of=lambda sequence: (7, 8, 9), max_steps_per_call=9, final_only=True)
    assert [tuple(output.token_ids) for output in finish(real, planned(1, range(5)))] == [(7, 8, 9)]


def test_what_can_never_fit_is_refused() -> None:
    """A sequence that needs more blocks than there are is refused by itself; so is an empty one, and one that runs."""
    engine = SimulatedEngine(EngineShape(4, 4, 8, 64))
    with pytest.raises(RequestError, match="13 tokens need 4 KV blocks, and there are 3"):
        engine.add_request(planned(1, range(10)), ())
    with pytest.raises(RequestError):
        engine.add_request(planned(1, ()), ())
    assert engine.num_unfinished == 0
    engine.add_request(planned(2, range(9)), ())
    with pytest.raises(RequestError, match="already"):
        engine.add_request(planned(2, range(8)), ())
    assert engine.num_unfinished == 1


def test_admission_waits_for_room_and_keeps_the_watermark() -> None:
    """Nobody is admitted without room for the whole prompt, though the first piece would fit, nor below the watermark."""
    first, second = planned(1, range(8), 1), planned(2, range(100, 112), 1)
    for shape, together in (
        (EngineShape(4, 7, 8, 10), True),
        (EngineShape(4, 5, 8, 10), False),
        (EngineShape(4, 5, 8, 10, reserve_full_isl=False), True),
        (EngineShape(4, 7, 8, 10, watermark=0.3), False),
    ):
        engine = SimulatedEngine(shape)
        for sequence in (first, second):
            engine.add_request(sequence, ())
        engine.step()
        assert engine.running_keys == ([2] if together else []), shape


def test_nothing_is_forgotten_while_blocks_are_held() -> None:
    """The cache is emptied between two runs only."""
    engine = SimulatedEngine(SHAPE)
    engine.add_request(planned(1, range(9)), ())
    engine.step()
    with pytest.raises(ValueError, match="3 blocks are held"):
        engine.reset_prefix_cache()
    engine.abort([1])
    engine.reset_prefix_cache()
    assert cached(finish(engine, planned(2, range(9)))) == {2: 0}


def test_blocks_without_a_hash_go_before_cached_ones() -> None:
    """The end of a sequence, in no full block, is taken again first; then cached blocks, the deepest first."""
    pool = KVPool(6)
    blocks = pool.take(4)
    for block in blocks[:3]:
        pool.cache(block, bytes([block]))
    pool.release(blocks)
    assert pool.take(5) == [blocks[3], 5, blocks[2], blocks[1], blocks[0]]
    assert pool.cached_run([bytes([block]) for block in blocks], 4) == []


def test_steps_together_end_where_an_answer_makes_room_for_a_prompt() -> None:
    """A prompt that quotes a running answer needs fewer blocks as that grows: it is admitted in the same step as ever."""
    answer = tuple(range(50, 60))
    asked, quoting = planned(1, range(5), 10), planned(2, (*range(5), *answer, 8, 9), 1)
    firsts = []
    for steps in (1, 99):
        shape = EngineShape(4, 6, 8, 64)
        engine = SimulatedEngine(shape, tokens_of=lambda s: answer[: s.sampling.max_tokens], max_steps_per_call=steps)
        outputs = finish(engine, asked, quoting)
        firsts.append([(output.key, output.cached_tokens) for output in outputs if output.finish_reason])
        assert (engine.counters.steps, engine.counters.hit) == (10, 8)
    assert firsts == [[(2, 8), (1, 0)]] * 2
