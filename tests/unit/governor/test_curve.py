"""Curves of power and speed: their shapes, and that they are learnt."""

import pytest

from tasks.governor import curve
from tasks.governor.curve import DECODE_MU, PREFILL_MU, Curve, clock_for, drive, heaviest, prior, refitted, speed

CLOCKS = tuple(range(345, 1981, 15))


def test_curves_meet_their_ends() -> None:
    """At the highest clock all is one; at half the clock the voltage is at its floor, and time goes by Amdahl's rule."""
    assert drive(1.0) == pytest.approx(1.0)
    assert drive(0.5) == pytest.approx(0.5 * 0.65**2)
    assert speed(1.0, PREFILL_MU) == pytest.approx(1.0)
    assert speed(0.5, DECODE_MU) == pytest.approx(1 / (0.24 / 0.5 + 0.76))


def test_a_curve_is_learnt_from_readings_at_several_clocks() -> None:
    """Readings of a load that has quite another curve than expected end in that curve."""
    known = Curve(*curve.DECODE_SHARES)
    for step in range(300):
        clock = 0.5 + 0.5 * (step % 10) / 9
        known = known.learnt(clock, 0.12 + 0.25 * drive(clock))
    assert known.fixed == pytest.approx(0.12, abs=0.01)
    assert known.switching == pytest.approx(0.25, abs=0.02)


def test_a_phase_is_learnt_from_its_own_readings() -> None:
    """Prefill changes the curve of prefill and leaves that of decode; a reading in which the clock moved changes neither."""
    curves = refitted(prior(), 0.8, 0.9, 1.0)
    moved = refitted(curves, 0.6, 0.9, 1.0)
    assert moved.prefill == curves.prefill
    steady = curves
    for _ in range(20):
        steady = refitted(steady, 0.8, 0.9, 1.0)
    assert steady.prefill.at(0.8) == pytest.approx(0.9, abs=0.02)
    assert steady.decode == prior().decode


def test_the_clock_for_a_power_draws_no_more_and_the_next_one_does() -> None:
    """The clock is the highest of the card's that the curve has within the power; the lowest if none is."""
    curves = refitted(refitted(prior(), 0.8, 0.7, 1.0), 0.8, 0.7, 1.0)
    clock = clock_for(curves, CLOCKS, 0.6, 1.0, curves.now)
    draws = [curves.prefill.fixed + curves.now * drive(at / CLOCKS[-1]) for at in (clock, clock + 15)]
    assert draws[0] <= 0.6 < draws[1]
    assert clock_for(curves, CLOCKS, 0.0, 1.0, curves.now) == CLOCKS[0]


def test_what_nobody_planned_may_be_a_prompt() -> None:
    """An unknown plan counts as prefill, a plan of decode alone as the load of now."""
    curves = prior()
    for _ in range(5):
        curves = refitted(curves, 0.8, 0.4, 0.0)
    assert heaviest(curves, None) == curves.prefill.switching
    assert heaviest(curves, 0.0) == max(curves.now, curves.decode.switching)
    assert heaviest(curves, 0.0) < heaviest(curves, 0.5) < heaviest(curves, 1.0)
