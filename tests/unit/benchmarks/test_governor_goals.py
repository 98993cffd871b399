"""What is said of the governor's goals is judged over plants, by the bad end."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

REPOSITORY = Path(__file__).parent.parent.parent.parent


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(REPOSITORY))
        from benchmarks import deadlines, governor, rooms

        yield SimpleNamespace(governor=governor, rooms=rooms, deadlines=deadlines)


def outcome(bench: Any, peak_c: float = 78.5, work: float = 0.99, slowed_s: float = 0.0) -> Any:
    """Forty plants, the last of which is as told."""
    ones = np.ones(40)
    peak, done, slowed = 78.2 * ones, 0.99 * ones, 0 * ones
    peak[-1], done[-1], slowed[-1] = peak_c, work, slowed_s
    return bench.rooms.Outcome(peak, slowed * 1.0, slowed, done, ones, ones, 0 * ones)


def passed(bench: Any, one: Any) -> dict[str, bool]:
    optimum = replace(outcome(bench), work=np.ones(40))
    judged = bench.governor._judged("governor", one, optimum, np.ones(40, bool))
    return {found.measure.removeprefix("governor: "): found.passed for found in judged}


def test_one_plant_that_is_too_hot_misses_the_goal(bench: Any) -> None:
    """Peak and slowdown are those of the worst plant; work is the mean, by the low end of its interval."""
    assert all(passed(bench, outcome(bench)).values())
    assert not passed(bench, outcome(bench, peak_c=79.1))["peak above set point, °C"]
    assert not passed(bench, outcome(bench, slowed_s=0.1))["s above slowdown"]
    assert not passed(bench, outcome(bench, work=0.2))["work / constrained optimum"]


def test_a_night_that_is_late_misses_the_goal_of_energy(bench: Any) -> None:
    """Saving energy by missing the deadline is no saving."""
    joules = {"hardware only": 100.0, "hysteresis 80/75": 99.0, "hysteresis 76/72": 100.0, "governor": 70.0, "oracle": 69.5}
    of = SimpleNamespace(deadline_s=np.full(10, 100.0))
    verdicts = []
    for finished in (99.0, 101.0):
        spent = {
            name: bench.deadlines.Spent(np.full(10, energy), np.full(10, finished), np.full(10, 60.0))
            for name, energy in joules.items()
        }
        verdicts.append([one.passed for one in bench.governor._compared(of, spent, np.ones(10, bool), "mix", True)])
    assert verdicts == [[True] * 3, [False] * 3]


def test_the_mean_has_an_interval_that_holds_it(bench: Any) -> None:
    """Of many draws around a value, nearly all intervals hold it; of equal values the interval is a point."""
    rng = np.random.default_rng(0)
    held = 0
    for seed in range(60):
        found = bench.governor.mean(rng.normal(5, 1, 50), draws=400, seed=seed)
        held += found.low <= 5 <= found.high
    assert held >= 52
    assert bench.governor.mean(np.full(9, 0.5), draws=100).low == 0.5
