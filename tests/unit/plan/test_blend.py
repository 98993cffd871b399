"""Density blending of work units."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.plan.blend import Floats, blended_order

COSTS = st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), max_size=40)


def drift(prefill: Floats, decode: Floats) -> float:
    """The most by which what is done of the two kinds of work differs on the way, each as a share of its whole."""
    done = np.cumsum(prefill) / prefill.sum() - np.cumsum(decode) / decode.sum()
    return float(np.abs(done).max())


@given(COSTS, st.integers(1, 4))
def test_each_scanner_keeps_its_order(costs: list[tuple[float, float]], stretch: int) -> None:
    """Every unit is there once, and units on the same side of the night's mix come in the plan's order."""
    prefill, decode = np.array([a for a, _ in costs]), np.array([b for _, b in costs])
    order = blended_order(prefill, decode, stretch=stretch)
    assert sorted(order) == list(range(len(costs)))
    heavy = prefill * decode.sum() > decode * prefill.sum()
    for side in (heavy, ~heavy):
        kept = [i for i in order if side[i]]
        assert kept == sorted(kept)


@pytest.mark.parametrize("seed", range(3))
def test_each_stretch_has_the_mix_of_the_night(seed: int) -> None:
    """Where one source is all prefill and the next all decode, both kinds of work are done at nearly the same pace."""
    rng = np.random.default_rng(seed)
    prefill = np.concatenate([rng.uniform(5, 10, 300), rng.uniform(0.1, 0.5, 500)])
    decode = np.concatenate([rng.uniform(0.1, 0.5, 300), rng.uniform(5, 10, 500)])
    order = blended_order(prefill, decode)
    assert drift(prefill, decode) > 0.8
    assert drift(prefill[order], decode[order]) < 0.01


def test_one_kind_of_work_stays_as_it_is() -> None:
    """Without anything to blend the plan's order is kept."""
    assert list(blended_order(np.ones(5), np.ones(5))) == list(range(5))
    assert list(blended_order(np.ones(5), np.zeros(5))) == list(range(5))
    assert list(blended_order(np.zeros(0), np.zeros(0))) == []
