"""Energy mode: clocks, the price of time, and the bound, against searching every clock."""

import itertools

import pytest

from tasks.governor import deadline
from tasks.governor.curve import DECODE_MU, PREFILL_MU, prior, speed
from tasks.governor.deadline import Pace, bound, cheapest, clock_at, price, priced, worked
from tasks.governor.setting import Load

CURVES = prior()
GRID = deadline._GRID


def spent(work: tuple[float, float], clocks: tuple[float, float], seconds: float, idle: float) -> float:
    """Energy by the deadline with one clock for each phase; too late is infinite."""
    times = work[0] / speed(clocks[0], PREFILL_MU), work[1] / speed(clocks[1], DECODE_MU)
    if sum(times) > seconds:
        return float("inf")
    drawn = CURVES.prefill.at(clocks[0]) * times[0] + CURVES.decode.at(clocks[1]) * times[1]
    return drawn + idle * (seconds - sum(times))


@pytest.mark.parametrize("work", [(1000.0, 0.0), (700.0, 300.0), (300.0, 700.0), (0.0, 1000.0)])
@pytest.mark.parametrize("slack", [1.02, 1.1, 1.3, 3.0])
def test_the_price_finds_the_cheapest_pair_of_clocks(work: tuple[float, float], slack: float) -> None:
    """The clocks at the price take at most 2 % more energy than the best pair, and are in time."""
    fastest = cheapest(((1.0, CURVES.prefill, PREFILL_MU),), 1e3, 0.0, 1.0)
    seconds = slack * (work[0] / speed(fastest, PREFILL_MU) + work[1])
    paid = price(CURVES, work, seconds, 0.1, 1.0)
    assert paid is not None
    phases = ((CURVES.prefill, PREFILL_MU), (CURVES.decode, DECODE_MU))
    clocks = tuple(cheapest(((1.0, curve, mu),), paid, 0.1, 1.0) for curve, mu in phases)
    allowed = [clock for clock in GRID if CURVES.prefill.at(clock) <= 1.0], GRID
    best = min(spent(work, pair, seconds, 0.1) for pair in itertools.product(*allowed))
    assert spent(work, (clocks[0], clocks[1]), seconds, 0.1) <= 1.02 * best


def test_too_little_time_has_no_price() -> None:
    """Where full speed is too slow, nothing is held back."""
    assert price(CURVES, (1000.0, 0.0), 900.0, 0.1, 1.0) is None


def test_more_time_never_costs_more() -> None:
    """The bound falls with slack down to where idling is all that is left, and is higher for prefill than for decode."""
    for prefill in (0.0, 0.3, 1.0):
        bounds = [bound(prefill, slack) for slack in (0.0, 0.05, 0.1, 0.2)]
        assert bounds[0] == pytest.approx(1.0, abs=0.03)
        assert bounds == sorted(bounds, reverse=True)
    assert bound(0.0, 0.1) < 0.75 < bound(1.0, 0.1) < 0.95


def test_the_work_left_is_told_by_the_work_done() -> None:
    """A tenth done in 100 s at the clock of now leaves 900 s of it, however wrong the curves of speed are."""
    pace = Pace()
    for second in range(101):
        pace = worked(pace, Load(running=5, prefill=0.0, done=second / 1000), 0.7, 0.5, 1.0)
    left = deadline._left(pace, Load(running=5, prefill=0.0, done=0.1))
    assert left is not None
    assert left[0] == 0.0
    assert left[1] / speed(0.7, DECODE_MU) == pytest.approx(900, rel=0.02)


def test_the_price_rises_when_time_gets_short() -> None:
    """A run that falls behind is given a higher clock, and one that is late the highest."""
    pace = worked(Pace(), Load(running=5, prefill=0.0, done=0.0), 0.7, 0.5, 1.0)
    for second in range(1, 200):
        pace = worked(pace, Load(running=5, prefill=0.0, done=second / 1000), 0.7, 0.5, 1.0)
    clocks = []
    for left in (1500.0, 800.0, 740.0, 100.0):
        load = Load(running=5, prefill=0.0, done=0.2, seconds_left=left)
        paid = priced(pace, CURVES, load, 1000.0, 1.0).price
        clocks.append(1.0 if paid is None else clock_at(CURVES, paid, 0.0, 0.7, 0.1, 1.0))
    assert clocks == sorted(clocks)
    assert clocks[0] < 0.75 < clocks[2] and clocks[3] == 1.0


def test_an_idle_card_tells_its_idle_power() -> None:
    """Power while nothing runs is what a finished run will cost."""
    pace = Pace()
    for _ in range(60):
        pace = worked(pace, Load(done=0.0), 0.2, 0.2, 1.0)
    assert pace.idle == pytest.approx(0.2, abs=0.01)
    assert pace.worked_s == 0.0
