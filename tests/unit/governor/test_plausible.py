"""What cannot be is taken out of a reading, and nothing else."""

from dataclasses import replace
from typing import Any

import pytest

from tasks.governor.plausible import Plausible
from tasks.governor.sample import Card, Sample, Throttle

CARD = Card("GPU-0", "card", 0, "1", memory_bytes=80 << 30, default_w=700, min_w=200, max_w=700)
GOOD = Sample(
    10.0,
    temperature_c=36,
    memory_temperature_c=45,
    margin_c=-3,
    power_w=71,
    energy_j=1000,
    sm_clock_mhz=345,
    utilization=1.0,
    throttle=Throttle.GPU_IDLE,
    thermal_ns=0,
    power_cap_ns=0,
)


def test_a_good_reading_and_an_empty_one_stay() -> None:
    """Nothing is taken from them."""
    check = Plausible(CARD)
    assert (check(GOOD), check(Sample(11.0)), check.reasons) == (GOOD, Sample(11.0), {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature_c", 0.0),
        ("temperature_c", 255.0),
        ("memory_temperature_c", 120.0),
        ("power_w", -1.0),
        ("power_w", 4_294_967.0),
        ("power_w", float("nan")),
        ("requested_w", 0.0),
        ("utilization", 655.35),
        ("sm_clock_mhz", 4_294_967),
        ("memory_used_bytes", 81 << 30),
        ("throttle", Throttle(0xFFFF_FFFF)),
        ("energy_j", -1.0),
    ],
)
def test_what_cannot_be_is_none(name: str, value: Any) -> None:
    """It alone, and with the reason."""
    check = Plausible(CARD)
    check(GOOD)
    bad = replace(GOOD, **{name: value})
    gone: dict[str, Any] = {name: None}
    assert check(bad) == replace(bad, **gone)
    assert list(check.reasons) == [name]


def test_a_margin_of_garbage_is_garbage() -> None:
    """What was computed from a temperature goes with it."""
    check = Plausible(CARD)
    sample = check(replace(GOOD, memory_temperature_c=0.0, memory_margin_c=95.0))
    assert (sample.memory_temperature_c, sample.memory_margin_c) == (None, None)


def test_one_wrong_counter_costs_one_reading() -> None:
    """Energy that falls or runs away is no energy; the next true one is."""
    check = Plausible(CARD)
    told = [(10.0, 1000.0), (11.0, 0.0), (12.0, 2000.0), (13.0, 1e9), (14.0, 3000.0)]
    found = [check(replace(GOOD, time_s=at, energy_j=energy)).energy_j for at, energy in told]
    assert found == [1000.0, None, 2000.0, None, 3000.0]


def test_a_counter_that_begins_anew() -> None:
    """After two readings it is believed, whatever was before: the driver was loaded again."""
    check = Plausible(CARD)
    told = [(10.0, 1000.0), (11.0, 5.0), (12.0, 80.0), (13.0, 150.0)]
    found = [check(replace(GOOD, time_s=at, energy_j=energy)).energy_j for at, energy in told]
    assert found == [1000.0, None, None, 150.0]
