"""Drivers have said millions of watts, with success (MangoHud #2144): what cannot be is taken out of a reading.

Samples go in, and come out with None in place of what is implausible, and with the reason. No clock but the samples' own.
"""

import math
from dataclasses import replace
from typing import Any

from tasks.governor.sample import Card, Sample

MAX_C = 120.0
"""No silicon works above; 0 °C and less is "no reading" (gpu-power-notes 1)."""

MAX_POWER_SHARE = 1.5
"""Of the highest limit: above it only garbage has been seen (gpu-power-notes 1)."""

_KNOWN_BITS = 0x1FF
"""The clocks event reasons that nvml.h has; garbage has them all."""

_SLACK_S = 1.0
"""Counters move in steps of about 0.1 s, and a reading takes its time."""


class Plausible:
    """What a card may say of itself; None it may always say. After a call, `reasons` has what was taken out, and why."""

    def __init__(self, card: Card) -> None:
        watts = MAX_POWER_SHARE * (card.max_w or card.default_w or math.inf)
        self.reasons: dict[str, str] = {}
        self._ranges = _ranges(watts, card.memory_bytes)
        self._rises = {
            "energy_j": watts,
            "thermal_ns": 2e9,
            "power_cap_ns": 1e9,
        }  # a second; software and hardware slow down
        self._bases: dict[str, tuple[float, float]] = {}
        self._suspects: set[str] = set()

    def __call__(self, sample: Sample) -> Sample:
        reasons = {
            name: f"{value:g} is not between {least:g} and {most:g}"
            for name, (least, most) in self._ranges.items()
            if (value := getattr(sample, name)) is not None and not least <= value <= most
        }
        for name in self._rises:
            if (value := getattr(sample, name)) is not None and not self._is_rising(name, value, sample.time_s):
                reasons[name] = f"{value:g} after {self._bases[name][1]:g} is not how a counter rises"
        if "memory_temperature_c" in reasons and sample.memory_margin_c is not None:
            reasons["memory_margin_c"] = f"memory_temperature_c {reasons['memory_temperature_c']}"
        self.reasons = reasons
        gone: dict[str, Any] = dict.fromkeys(reasons)
        return replace(sample, **gone) if gone else sample

    def _is_rising(self, name: str, value: float, now_s: float) -> bool:
        """Whether a counter neither falls nor runs. The second value in a row that does is where it begins anew: the driver
        has been loaded again."""
        at_s, base = self._bases.get(name, (now_s, value))
        rises = base <= value <= base + self._rises[name] * (max(now_s - at_s, 0.0) + _SLACK_S)
        if rises or name in self._suspects:
            self._bases[name] = (now_s, value)
            self._suspects.discard(name)
        else:
            self._suspects.add(name)
            self._bases.setdefault(name, (now_s, 0.0))
        return rises


def _ranges(watts: float, memory_bytes: int) -> dict[str, tuple[float, float]]:
    """The least and the most of each value, by its name in Sample."""
    temperature, margin, clock, share = (0.1, MAX_C - 0.1), (-MAX_C, MAX_C), (0.0, 10_000.0), (0.0, 1.1)
    return {
        "temperature_c": temperature,
        "memory_temperature_c": temperature,
        "margin_c": margin,
        "memory_margin_c": margin,
        "power_w": (0.0, watts),
        "requested_w": (0.001, watts),
        "enforced_w": (0.001, watts),
        "sm_clock_mhz": clock,
        "memory_clock_mhz": clock,
        "utilization": share,
        "sm_activity": share,
        "dram_activity": share,
        "tensor_activity": share,
        "memory_used_bytes": (0.0, float(memory_bytes or math.inf)),
        "throttle": (0.0, float(_KNOWN_BITS)),
    }
