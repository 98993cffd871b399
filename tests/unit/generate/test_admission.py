"""Admission: what is let in beside what is in flight."""

from collections.abc import Callable

import numpy as np

from tasks.core.plan import PlannedSequence
from tasks.core.request import FinishReason, SamplingParams, StepOutput
from tasks.core.step import KVShape
from tasks.generate.admission import KVAdmission, Unbounded

BLOCK = 16


def sequence(key: int, *, num_prompt: int = 32, max_tokens: int = 64, predicted: int | None = None) -> PlannedSequence:
    prompt = tuple(1000 * key + i for i in range(num_prompt))
    return PlannedSequence(key, str(key), 0, 0, prompt, SamplingParams(max_tokens=max_tokens), "source", predicted)


def admit(room: KVAdmission, make: Callable[[int], PlannedSequence], first: int = 0) -> int:
    """Let in what fits; the number of it."""
    key = first
    while key < first + 10_000 and room.fits(make(key), 0):
        room.begin(make(key), 0)
        key += 1
    return key - first


def run(room: KVAdmission, lengths: dict[int, int], steps: int) -> None:
    """Steps in which each sequence in flight gets a token and ends at its length."""
    for _ in range(steps):
        outputs = []
        for key in list(lengths):
            lengths[key] -= 1
            outputs.append(StepOutput(key, (1,), FinishReason.STOP if not lengths[key] else None))
            if not lengths[key]:
                del lengths[key]
        room.note(outputs)


def test_one_sequence_always_may_run() -> None:
    """What is larger than the whole pool goes to the engine when nothing else is there, and only then."""
    room, large = KVAdmission(KVShape(4, BLOCK)), sequence(1, num_prompt=500)
    assert room.fits(large, 0)
    room.begin(large, 0)
    assert not room.fits(sequence(2), 0)
    room.note([StepOutput(1, (), error="given up")])
    assert room.fits(large, 0)


def test_at_first_long_answers_are_reckoned_with() -> None:
    """Of a source of which nothing is known, no more is let in than the pool nearly holds at the answers' limit."""
    shape = KVShape(600, BLOCK)
    admitted = admit(KVAdmission(shape), lambda key: sequence(key, max_tokens=160))
    assert 600 / 12 <= admitted <= 600 / 12 * 1.35


def test_short_answers_make_room_for_more() -> None:
    """When the answers of a source turn out to be short, more of them are let in than their limit would allow."""
    shape = KVShape(600, BLOCK)
    room = KVAdmission(shape)
    at_first = admit(room, lambda key: sequence(key, max_tokens=2000))
    for turn in range(1, 30):
        run(room, dict.fromkeys(range(1000 * (turn - 1), 1000 * (turn - 1) + 4), 10), 10)
        for key in range(1000 * turn, 1000 * turn + 4):
            room.begin(sequence(key, max_tokens=2000), 0)
    later = KVAdmission(shape)
    later._lengths = room._lengths
    assert admit(later, lambda key: sequence(key, max_tokens=2000)) > 3 * at_first


def test_what_still_runs_is_evidence_of_long_answers() -> None:
    """Where some have ended early and many run on, what runs is expected to run on."""
    room = KVAdmission(KVShape(10**6, BLOCK))
    for key in range(100):
        room.begin(sequence(key, max_tokens=4000), 0)
    before = room.expected_tokens(sequence(0, max_tokens=4000))
    lengths = dict.fromkeys(range(20), 8) | dict.fromkeys(range(20, 100), 10**6)
    run(room, lengths, 1200)
    room.fits(sequence(1), 0)
    assert room.expected_tokens(sequence(0, max_tokens=4000)) > 1200 * 0.8 * 0.9
    assert before > 400


def test_a_limit_that_cuts_answers_off_says_nothing_of_where_they_end() -> None:
    """Answers cut off at their limit count as longer than it: they make no answer look short."""
    cut, ended = KVAdmission(KVShape(10**6, BLOCK)), KVAdmission(KVShape(10**6, BLOCK))
    for key in range(200):
        for room, reason in ((cut, FinishReason.LENGTH), (ended, FinishReason.STOP)):
            room.begin(sequence(key, max_tokens=50), 0)
            room.note([StepOutput(key, tuple(range(50)), reason)])
    assert cut.expected_tokens(sequence(0, max_tokens=1000)) > 5 * ended.expected_tokens(sequence(0, max_tokens=1000))


def test_a_shared_prefix_counts_once() -> None:
    """Many more sequences with one long prefix are let in than the same number of tokens would allow."""
    shape, prefix = KVShape(400, BLOCK), tuple(range(100 * BLOCK))

    def sharing(key: int) -> PlannedSequence:
        return PlannedSequence(key, "", 0, 0, (*prefix, 9000 + key), SamplingParams(max_tokens=15), "source")

    assert admit(KVAdmission(shape), sharing) > 100
    assert admit(KVAdmission(shape), lambda key: sequence(key, num_prompt=100 * BLOCK + 1, max_tokens=15)) == 3


def test_the_prefix_stays_when_the_first_that_used_it_has_ended() -> None:
    """Blocks that the next one uses too are still held when their first user is gone."""
    shape, prefix = KVShape(101, BLOCK), tuple(range(90 * BLOCK))
    room = KVAdmission(shape)
    for key in range(2):
        room.begin(PlannedSequence(key, "", 0, 0, (*prefix, 9000 + key), SamplingParams(max_tokens=15)), 0)
    room.note([StepOutput(0, (1,), FinishReason.STOP)])
    assert not room.fits(sequence(5, num_prompt=11 * BLOCK), 0)
    assert room.fits(sequence(6, num_prompt=4 * BLOCK), 0)
    room.note([StepOutput(1, (1,), FinishReason.STOP)])
    assert room.fits(sequence(5, num_prompt=11 * BLOCK), 0)


def test_saved_tokens_are_held_at_once() -> None:
    """A resumed sequence needs the blocks of its saved tokens from the beginning."""
    room = KVAdmission(KVShape(50, BLOCK))
    room.begin(sequence(0), 0)
    assert room.fits(sequence(1, max_tokens=800), 0)
    assert not room.fits(sequence(1, max_tokens=800), 770)


def test_known_lengths_keep_within_the_pool_and_fill_it() -> None:
    """With predictions that come true within a tenth, the pool is nearly full and seldom over, by little."""
    rng, shape, use = np.random.default_rng(3), KVShape(2000, BLOCK), []
    room, lengths, flight, key = KVAdmission(shape), dict[int, int](), dict[int, int](), 0
    for _ in range(2500):
        while True:
            true = int(rng.integers(50, 800)) if key not in lengths else lengths[key]
            lengths[key] = true
            one = sequence(key, max_tokens=2000, predicted=int(true * rng.uniform(0.9, 1.1)))
            if not room.fits(one, 0):
                break
            room.begin(one, 0)
            flight[key] = true
            key += 1
        run(room, flight, 1)
        use.append(sum(shape.blocks_of(32 + lengths[key] - left) for key, left in flight.items()) / shape.num_blocks)
    assert np.mean(use[800:]) > 0.9
    assert np.mean(np.array(use) > 1.0) < 0.05
    assert max(use) < 1.05


def test_without_a_bound_all_fits_and_predictions_are_believed() -> None:
    """An engine that says nothing of its memory gets what the limit of sequences allows."""
    room = Unbounded()
    assert room.fits(sequence(1), 0)
    assert room.expected_tokens(sequence(1, max_tokens=9)) == 9
    assert room.expected_tokens(sequence(1, max_tokens=9, predicted=4)) == 4
