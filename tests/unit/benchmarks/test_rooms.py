"""The simulated machine rooms of the governor's benchmark: comparators, oracles and verdicts do what they are called."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tasks.governor.cards import H100, L40S
from tasks.governor.events import Event, Kind
from tasks.governor.sample import Sample
from tasks.governor.setting import Load, Setting

REPOSITORY = Path(__file__).parent.parent.parent.parent
HOT = (Event(Kind.LOAD, 0, size=1.0), Event(Kind.FAN, 0, size=1.8))


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(REPOSITORY))
        from benchmarks import controllers, deadlines, faults, hot_nights, optimum, rooms

        named = {"controllers": controllers, "deadlines": deadlines, "faults": faults, "hot": hot_nights, "optimum": optimum}
        yield SimpleNamespace(rooms=rooms, **named)


def scene(bench: Any, *events: Event, seconds: int = 150, cards: Sequence[Any] = (H100,)) -> Any:
    return bench.rooms.Scene(cards, [events] * len(cards), seconds, np.full(len(cards), 33.0))


def test_the_omniscient_controller_holds_the_die_and_works_more_than_a_safe_threshold(bench: Any) -> None:
    """It comes to the set point, never passes it, and does more work than who stays as safe by a threshold."""
    hot = scene(bench, *HOT)
    work = bench.rooms.Schedule(hot)
    held, trace = bench.rooms.hold(hot, 78.0, work)
    free, _ = bench.rooms.simulate(hot, bench.hot.CONTROLLERS["hardware only"], work)
    safe, _ = bench.rooms.simulate(hot, bench.hot.CONTROLLERS["hysteresis 76/72"], work)
    assert free.peak_c[0] > 82 and safe.peak_c[0] < 80
    assert held.peak_c[0] == pytest.approx(78.0, abs=0.01)
    assert trace.die_c[-1, 0] == pytest.approx(78.0, abs=0.01)
    assert free.work[0] > held.work[0] > safe.work[0]
    assert held.energy_j[0] == pytest.approx(trace.power_w.sum(), rel=0.01)


def test_the_hottest_of_a_second_and_the_seconds_above_are_of_the_true_die(bench: Any) -> None:
    """What is counted as above the line is what the trace shows."""
    hot = scene(bench, *HOT)
    free, trace = bench.rooms.simulate(hot, bench.hot.CONTROLLERS["hardware only"], bench.rooms.Schedule(hot))
    assert free.peak_c[0] == trace.peak_c.max()
    assert free.above_line_s[0] == pytest.approx((trace.die_c > 80).sum(), abs=2) and free.above_line_s[0] > 20


def test_a_threshold_waits_for_its_lower_end(bench: Any) -> None:
    """At 80 °C the limit goes down, and it comes back at 75 °C, not before."""
    card = SimpleNamespace(default_w=700.0, min_w=200.0)
    controller = bench.controllers.Threshold([card], 80, 75, 0.6, 1)
    found = []
    for now, temperature in enumerate((79, 80, 79, 76, 75, 79)):
        (setting,) = controller.decide([Sample(now, temperature_c=temperature)], [Load()], float(now))
        found.append(setting.power_w)
    assert found == [700, 420, 420, 420, 700, 700]


def test_no_schedule_does_more_than_the_linear_program(bench: Any) -> None:
    """What it finds is what the card does where heat does not bind, and over minutes at most a percent less than that of
    one who knows everything where it does."""
    loads = [Event(Kind.LOAD, float(at), size=share) for at, share in ((0, 1.0), (60, 0.0), (100, 1.0))]
    hot = scene(bench, *loads, HOT[1], cards=(H100, L40S))
    free = bench.optimum.held_of_most(hot, 200.0, bench.rooms.Schedule(hot))
    held = bench.optimum.held_of_most(hot, 70.0, bench.rooms.Schedule(hot))
    assert free == pytest.approx(1, abs=0.005)
    assert (held < 1.01).all() and (held > 0.9).all()


def test_the_plan_ahead_is_the_mean_of_the_minute_to_come(bench: Any) -> None:
    """Idle seconds do not count, and without being told there is none."""
    events = (Event(Kind.LOAD, 0, size=1.0), Event(Kind.LOAD, 30, sequences=0.0), Event(Kind.LOAD, 60, size=0.0))
    quiet = scene(bench, *events)
    told, untold = bench.rooms.Schedule(quiet, error=0.0), bench.rooms.Schedule(quiet, told=False)
    plant = quiet.room().plant
    assert [told.loads(plant, at)[0].prefill_ahead for at in (0, 15, 29, 60)] == pytest.approx([1, 0.5, 1 / 30, 0])
    assert untold.loads(plant, 0)[0].prefill_ahead is None


def test_the_oracle_of_clocks_is_the_best_of_all_constant_clocks(bench: Any) -> None:
    """With one kind of block the clocks chosen cost least of all that are fast enough, found by trying each."""
    of = bench.deadlines.nights(1, seed=4).part(0, 2)
    of = replace(of, deadline_s=np.array([1800.0, 1620.0]))
    clocks = bench.deadlines.best_clocks(of)
    grid = np.linspace(0.2, 1.0, 321)
    seconds, joules, idle_w = bench.deadlines._costs(of, grid)
    for plant in (0, 1):
        assert (clocks[plant] == clocks[plant, 0]).all()
        takes, costs = seconds[plant].sum(axis=0), joules[plant].sum(axis=0)
        whole = costs + idle_w[plant] * (of.deadline_s[plant] - takes)
        best = grid[np.argmin(np.where(takes <= of.deadline_s[plant] - 0.5, whole, np.inf))]
        assert clocks[plant, 0] == pytest.approx(best, abs=0.006)


def test_the_work_of_a_night_is_the_same_at_any_speed(bench: Any) -> None:
    """Both phases come out in the shares of the blocks, and energy is taken at the deadline, idle time included."""
    of = bench.deadlines.nights(1, seed=4).part(2, 3)
    of = replace(of, shares=np.full((1, 20), 0.3), deadline_s=np.array([190.0]), work_s=150.0)
    of = replace(of, scene=replace(of.scene, seconds=192))
    done = {}
    for name in ("hardware only", bench.deadlines.ORACLE):
        done[name] = bench.deadlines.run_nights(of, name)
    free, slow = done.values()
    assert free.finished_s[0] < slow.finished_s[0] <= 190
    assert slow.energy_j[0] < 0.8 * free.energy_j[0]


def test_faults_are_found_unsafe_when_they_are(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that goes on at full speed without a reading fails the verdict, and ours on the same faults does not."""
    kept = [at for at, name in enumerate(bench.faults.injected(1).names) if name in ("no reading", "garbage with success")]
    of = bench.faults.injected(1, warm_s=120).part(kept[0], kept[-1] + 1)
    ours = bench.faults.run_faults(of)
    assert ours.restored.all() and ours.safe[[0, -1]].all()
    monkeypatch.setattr("tasks.governor.policy.decide", lambda state, sample, load, now_s: (state, Setting()))
    careless = bench.faults.run_faults(of)
    assert not careless.safe[[0, -1]].any()
