"""Whose turn it is: urgency, fairness, and what taking turns may cost."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.config import PlanConfig
from tasks.plan.batches import Batches, Rows, batches
from tasks.plan.turns import in_turns

SIZES = st.lists(
    st.lists(st.tuples(st.integers(1, 200), st.integers(0, 60)), min_size=1, max_size=20), min_size=1, max_size=5
)


def night(sizes: list[list[tuple[int, int]]]) -> tuple[Rows, Batches]:
    """A batch for each (prompt tokens, tokens in common with the one before) of each source."""
    flat = [(of, length, shared if i else 0) for of, rows in enumerate(sizes) for i, (length, shared) in enumerate(rows)]
    source, lengths, shared = (np.array(column, np.int32) for column in zip(*flat, strict=True))
    ones = np.ones(len(flat), np.int32)
    rows = Rows(source, np.arange(len(flat)), np.minimum(shared, lengths), lengths, ones, -ones, -ones, ones)
    return rows, batches(rows, PlanConfig(max_batch_seqs=1))


def sources(rows: Rows, units: Batches, order: Any) -> list[int]:
    return [int(rows.source[units.first_rows[i]]) for i in order]


@given(SIZES, st.lists(st.integers(0, 1), min_size=5, max_size=5))
def test_all_batches_once_and_the_urgent_source_first(sizes: Any, urgency: list[int]) -> None:
    """The order is one of all batches, each source's in its own order, and none of a less urgent source before others."""
    rows, units = night(sizes)
    order = in_turns(rows, units, np.array(urgency[: len(sizes)], np.int32))
    assert sorted(order.tolist()) == list(range(len(units)))
    whose = sources(rows, units, order)
    assert all(np.diff(order[np.array(whose) == of]).min(initial=1) > 0 for of in range(len(sizes)))
    levels = [urgency[of] for of in whose]
    assert levels == sorted(levels)


@given(SIZES)
def test_no_source_waits_for_the_whole_night(sizes: Any) -> None:
    """Where nothing is shared, equally urgent sources are never further apart in work than one batch, until they end."""
    alone = [[(length, 0) for length, _ in rows] for rows in sizes]
    rows, units = night(alone)
    order = in_turns(rows, units, np.zeros(len(sizes), np.int32))
    total = [sum(length + 1 for length, _ in of) for of in alone]
    largest = max(length + 1 for of in alone for length, _ in of)
    done = [0] * len(alone)
    for i, of in zip(order.tolist(), sources(rows, units, order), strict=True):
        waiting = [done[other] for other in range(len(alone)) if done[other] < total[other]]
        assert done[of] == min(waiting)
        done[of] += int(rows.num_prompt[i]) + 1
        assert all(done[of] - done[other] <= largest for other in range(len(alone)) if done[other] < total[other])


def test_a_turn_ends_where_it_costs_next_to_nothing() -> None:
    """Two sources with a long shared prompt each run one after the other; once the work is 500 times the prefix they take
    turns."""
    close = [(300, 200)] * 40
    rows, units = night([close, close])
    assert sources(rows, units, in_turns(rows, units, np.zeros(2, np.int32))) == [0] * 40 + [1] * 40
    far = [(50_000, 20)] * 4
    rows, units = night([far, far])
    assert sources(rows, units, in_turns(rows, units, np.zeros(2, np.int32))) == [0, 1] * 4


def test_small_sources_end_early() -> None:
    """A source of two batches among a large one's hundred is done after four."""
    rows, units = night([[(10, 0)] * 100, [(10, 0)] * 2])
    whose = sources(rows, units, in_turns(rows, units, np.zeros(2, np.int32)))
    assert whose[:5] == [0, 1, 0, 1, 0]
