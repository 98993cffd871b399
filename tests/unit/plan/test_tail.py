"""The end of the night runs full."""

import heapq

import numpy as np
import pytest

from tasks.plan.tail import Floats, full_rate, tail_order

SLOTS = 32


def makespan(duration: Floats, slots: int = SLOTS) -> float:
    """When the last ends, each slot taking the next as soon as it is free."""
    free = [0.0] * slots
    for seconds in duration:
        heapq.heappush(free, heapq.heappop(free) + seconds)
    return max(free)


def night(number: int, seed: int) -> Floats:
    found: Floats = np.minimum(np.random.default_rng(seed).lognormal(4.5, 1.1, number), 2000.0)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_the_end_is_as_full_as_with_the_longest_first(seed: int) -> None:
    """The night lasts hardly longer than its work at the full rate, and no longer than with the longest first."""
    duration = night(3000, seed)
    order = tail_order(duration / SLOTS, duration)
    ours, full = makespan(duration[order]), float(duration.sum()) / SLOTS
    assert sorted(order) == list(range(3000))
    assert ours / full - 1 <= 0.02
    assert ours <= 1.01 * makespan(np.sort(duration)[::-1])


def test_little_is_moved() -> None:
    """All but the end of the night keeps its place, and what is moved there keeps its order but for what is late."""
    duration = night(20_000, 1)
    order = tail_order(duration / SLOTS, duration)
    first_moved = int(np.argmax(order != np.arange(len(order))))
    moved = int(np.sum(np.diff(order) != 1))
    assert first_moved > 0.9 * len(order)
    assert moved < 0.05 * len(order)


def test_without_predictions_nothing_is_moved() -> None:
    """What is not known is not guessed."""
    cost, duration = full_rate(
        np.full(500, 100), np.full(500, np.nan), np.full(500, np.nan), num_in_flight=32, prefill_token_s=1e-4, step_s=0.05
    )
    assert list(tail_order(cost, duration)) == list(range(500))
    assert list(tail_order(np.array([]), np.array([]))) == []


def test_only_what_is_known_is_moved() -> None:
    """A long one with a prediction is moved ahead of others that have none; these keep their order."""
    predicted = np.full(400, np.nan)
    predicted[[10, 20, 30]], predicted[-1] = 50.0, 1500.0
    cost, duration = full_rate(
        np.full(400, 100), predicted, 2 * predicted, num_in_flight=16, prefill_token_s=1e-4, step_s=0.05
    )
    order = tail_order(cost, duration)
    place = int(np.flatnonzero(order == 399)[0])
    assert place < 399
    others = [i for i in order if np.isnan(predicted[i])]
    assert others == sorted(others)
