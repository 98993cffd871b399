"""What simulated cards say of themselves: slow, rounded down, averaged. Arrays of shape (plants,)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.governor.sample import Throttle

Floats = NDArray[np.float64]

LAG_S = 0.8
"""How far a thermal sensor is behind the die (estimate)."""

_DT_S = 0.1
_THERMAL = int(Throttle.SW_THERMAL | Throttle.HW_THERMAL)


class Reading(NamedTuple):
    """What one card says now: °C, W, J, NVML's bits, ns."""

    temperature_c: float
    memory_c: float
    power_w: float
    energy_j: float
    throttle: int
    thermal_ns: int
    power_cap_ns: int


class Sensors:
    """Readings, brought forward by 0.1 s at a time. Temperatures are whole °C, rounded down; power is a mean over
    `mean_s` (NVML's manual: one second, but for GA100); energy moves every 100 ms (ml.energy); counters in ns."""

    def __init__(self, count: int, mean_s: Floats, die_c: Floats, memory_c: Floats, power_w: Floats) -> None:
        self._die, self._memory = die_c.copy(), memory_c.copy()
        self._window = np.maximum(np.rint(mean_s / _DT_S).astype(int), 1)
        self._past = np.tile(power_w, (int(self._window.max()), 1))
        self._mean_of_all = np.arange(len(self._past))[:, None] < self._window
        self.energy_j = np.zeros(count)
        self.thermal_ns = np.zeros(count, np.int64)
        self.power_cap_ns = np.zeros(count, np.int64)
        self.throttle = np.full(count, int(Throttle.GPU_IDLE))
        self._read: list[Reading] | None = None

    def reading(self, index: int) -> Reading:
        """Of one card; those of all are made at the first one after a step."""
        if self._read is None:
            temperatures = (self.temperature_c.tolist(), self.memory_c.tolist(), self.power_w.tolist())
            counters = (self.energy_j.tolist(), self.throttle.tolist(), self.thermal_ns.tolist(), self.power_cap_ns.tolist())
            self._read = [Reading(*values) for values in zip(*temperatures, *counters, strict=True)]
        return self._read[index]

    def reset(self, index: int) -> None:
        """The counters of one card begin anew."""
        self.energy_j[index], self.thermal_ns[index], self.power_cap_ns[index] = 0, 0, 0
        self._read = None

    @property
    def temperature_c(self) -> Floats:
        return np.floor(self._die)

    @property
    def memory_c(self) -> Floats:
        return np.floor(self._memory)

    @property
    def power_w(self) -> Floats:
        mean: Floats = (self._past * self._mean_of_all).sum(axis=0) / self._window
        return mean

    def step(self, die_c: Floats, memory_c: Floats, power_w: Floats, throttle: NDArray[np.int64]) -> None:
        share = 1 - np.exp(-_DT_S / LAG_S)
        self._die = self._die + share * (die_c - self._die)
        self._memory = self._memory + share * (memory_c - self._memory)
        self._past = np.roll(self._past, 1, axis=0)
        self._past[0] = power_w
        self.energy_j = self.energy_j + power_w * _DT_S
        step_ns = int(_DT_S * 1e9)
        self.thermal_ns = self.thermal_ns + step_ns * ((throttle & _THERMAL) != 0)
        self.power_cap_ns = self.power_cap_ns + step_ns * ((throttle & int(Throttle.SW_POWER_CAP)) != 0)
        self.throttle = throttle
        self._read = None
