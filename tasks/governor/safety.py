"""Whether a reading can be believed: a driver says "success" with garbage, and a frozen sensor looks like a steady one.

Pure: the last good reading and a sample in, a Reading or the words for what is wrong with it out.
"""

from dataclasses import dataclass
from math import isfinite

from tasks.governor.limits import Limits
from tasks.governor.sample import Sample, Throttle

MIN_C, MAX_C = 1.0, 120.0
"""A chip that works is in between (gpu-power-notes section 1: millions of W and 0 °C were reported with success)."""

MAX_POWER = 1.5
"""Times the highest power limit: spikes of the supply are shorter than what is averaged over."""

FALL_C_S = 15.0
"""No heatsink cools a die by more in a second, nor heats it: 700 W into the smallest heat capacity is 8 °C/s. What falls
faster is not believed; what rises faster is, as that is the safe side."""

MOVING_W = 1.0
"""A card that draws so much has an energy counter that moves within a period."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A sample that was believed. `power_w` is what was drawn since the reading before, None if the card does not say;
    `slowed_s` how long the card slowed itself down because of heat since then, and `hot` that it says it does so now."""

    time_s: float
    temperature_c: float
    memory_c: float | None
    margin_c: float | None
    memory_margin_c: float | None
    power_w: float | None
    energy_j: float | None
    clock_mhz: float | None
    requested_w: float | None
    thermal_ns: int | None
    slowed_s: float
    hot: bool


def judged(limits: Limits, last: Reading | None, sample: Sample | None, now_s: float) -> Reading | str:
    """The reading, or why it is none."""
    if sample is None:
        return "the card gave no reading"
    if not isfinite(sample.time_s) or abs(now_s - sample.time_s) > 2 * limits.period_s:
        return "the card's last reading is old"
    temperature = sample.temperature_c
    if temperature is None:
        return "the card does not tell its temperature any more"
    if not MIN_C <= temperature <= MAX_C:
        return f"the card says it has {temperature:g} °C"
    wrong = _implausible(limits, sample) or (_against(last, sample, temperature) if last else None)
    return wrong or _reading(limits, last, sample, temperature)


def _implausible(limits: Limits, sample: Sample) -> str | None:
    memory, power, energy = sample.memory_temperature_c, sample.power_w, sample.energy_j
    if memory is not None and not MIN_C <= memory <= MAX_C:
        return f"the card says its memory has {memory:g} °C"
    if power is not None and not 0 <= power <= MAX_POWER * limits.max_w:
        return f"the card says it draws {power:g} W"
    if energy is not None and not (isfinite(energy) and energy >= 0):
        return f"the card says it has used {energy:g} J"
    for margin in (sample.margin_c, sample.memory_margin_c):
        if margin is not None and not -MAX_C <= margin <= MAX_C:
            return f"the card says it is {margin:g} °C below its limit"
    return None


def _against(last: Reading, sample: Sample, temperature_c: float) -> str | None:
    """What cannot be after the reading before."""
    passed_s = sample.time_s - last.time_s
    if passed_s <= 0:
        return "the card gave the same reading again"
    if sample.energy_j is not None and last.energy_j is not None:
        used = sample.energy_j - last.energy_j
        if used < 0:
            return "the card's energy counter went back"
        if used == 0 and (sample.power_w or 0) > MOVING_W and passed_s >= 0.2:
            return "the card's readings stand still"
    if temperature_c < last.temperature_c - FALL_C_S * max(passed_s, 0.2) - 2:
        return f"the card says it cooled from {last.temperature_c:g} to {temperature_c:g} °C in {passed_s:.1f} s"
    return None


def _reading(limits: Limits, last: Reading | None, sample: Sample, temperature_c: float) -> Reading:
    slowed_s = 0.0
    if last is not None and last.thermal_ns is not None and sample.thermal_ns is not None:
        slowed_s = max((sample.thermal_ns - last.thermal_ns) / 1e9, 0.0)
    clock = sample.sm_clock_mhz
    return Reading(
        time_s=sample.time_s,
        temperature_c=temperature_c,
        memory_c=sample.memory_temperature_c,
        margin_c=sample.margin_c,
        memory_margin_c=sample.memory_margin_c,
        power_w=_power(limits, last, sample),
        energy_j=sample.energy_j,
        clock_mhz=float(clock) if clock is not None and 0 < clock <= 10_000 else None,
        requested_w=sample.requested_w,
        thermal_ns=sample.thermal_ns,
        slowed_s=slowed_s,
        hot=bool((sample.throttle or 0) & (Throttle.SW_THERMAL | Throttle.HW_THERMAL)),
    )


def _power(limits: Limits, last: Reading | None, sample: Sample) -> float | None:
    """What the card says, or else what its energy counter says."""
    if sample.power_w is not None:
        return sample.power_w
    if last is None or last.energy_j is None or sample.energy_j is None:
        return None
    used = (sample.energy_j - last.energy_j) / (sample.time_s - last.time_s)
    return used if used <= MAX_POWER * limits.max_w else None
