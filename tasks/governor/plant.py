"""The physics of simulated cards, many at once: heat, power, clock, throughput, and what the hardware does by itself.

What is asked for goes in (power limit, clock lock, load, inlet, fans), arrays of shape (plants,); `step` moves all by 0.1 s.
Invariants: no randomness, so that the same inputs give the same outputs to the bit; heat is conserved in each step; the
energy counter is the sum of power times time.

Sources: two-pole thermal model, power and throughput curves fitted to a public sweep of an RTX 3090 at 150-350 W
(llmgarage.ai, February 2026); thresholds and what happens at them as NVML's manual describes; rates are estimates.
"""

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from tasks.governor.cards import PlantParameters
from tasks.governor.sample import Throttle
from tasks.governor.sensors import Sensors

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

DT_S = 0.1
"""One step. Shorter than a third of the fastest time constant, the power cap's apart."""

CAP_LAG_S = 0.2
"""How fast the card's own power control moves the clock (estimate)."""

_SLOWER_MHZ, _FASTER_MHZ = 30.0, 15.0
"""Software slowdown, per step above the limit and back below it (estimate)."""

_HW_SHARE, _HW_RELEASE_C = 0.45, 3.0
"""Hardware slowdown halves the clock or worse (NVML's manual), until it is so much cooler (estimate)."""

_CLIFF_SHARE, _CLIFF_SLOPE = 0.43, 3.7
"""An RTX 3090 decodes at 17 % of its best at a cap of 100 W of 350 W, where the curve that fits from 150 W up says 36 %:
below 0.43 of the default limit, so much throughput goes for each share of the limit taken away (same sweep)."""

_FULL_BATCH_PREFILL = 1 / 32
"""A few long prompts fill a step's token budget: 8 sequences of 1,000 tokens of 256 (8,192 tokens a step; estimate)."""


def voltage_squared(clock: Floats, floor: Floats, knee: Floats) -> Floats:
    """Of the highest: flat up to the knee, then linear to one. `clock` as a share of the highest."""
    voltage = floor + (1 - floor) * np.maximum(clock - knee, 0) / (1 - knee)
    squared: Floats = voltage * voltage
    return squared


class Plant:
    """Simulated cards, `len(parameters)` of them. Arrays have shape (plants,).

    To be set from outside, before a step: `limit_w` (the enforced power limit), `lock` (the highest clock allowed, as a
    share of the card's highest), `prefill` (share of time in prompts), `sequences` (share of the full batch that there
    are; 0 is idle), `bound` (share of it that may run), `inlet_c`, `fan` (resistance to the air, 1 is as built), and
    `clock_share` (how much of its way the clock goes in a step). Read: everything else.
    """

    def __init__(self, parameters: Sequence[PlantParameters], inlet_c: float | Floats = 25.0) -> None:
        count = len(parameters)
        self.parameters = tuple(parameters)
        self._of = {
            field.name: np.array([float(getattr(one, field.name) or 0) for one in parameters])
            for field in fields(PlantParameters)
            if field.name not in ("name", "margins_only", "activities")
        }
        self.has_memory_sensor = np.array([one.memory_max_c is not None for one in parameters])
        self._memory_max_c = np.where(self.has_memory_sensor, self._of["memory_max_c"], np.inf)
        self.limit_w, self.lock = self._of["default_w"].copy(), np.ones(count)
        self.prefill, self.sequences, self.bound = np.zeros(count), np.zeros(count), np.ones(count)
        self.clock_share = np.full(count, 1 - np.exp(-DT_S / CAP_LAG_S))
        self.inlet_c, self.fan = np.full(count, 1.0) * inlet_c, np.ones(count)
        self.min_clock = self._of["min_mhz"] / self._of["max_mhz"]
        self._thermal_clock, self._hot = np.ones(count), np.zeros(count, bool)
        self.clock = self.min_clock.copy()
        self.lost = np.zeros(count, bool)
        self.prefill_work, self.decode_work = np.zeros(count), np.zeros(count)
        self.steps = 0
        self._utilizations: tuple[int, list[float]] = (-1, [])
        idle_w = self._of["idle_w"]
        self.sink_c = self.inlet_c + idle_w * self._of["sink_r"]
        self.die_c = self.sink_c + idle_w * self._of["die_r"]
        self.memory_c = self.sink_c.copy()
        self.power_w = self.power(self.clock)
        self.sensors = Sensors(count, self._of["power_mean_s"], self.die_c, self.memory_c, self.power_w)

    def __len__(self) -> int:
        return len(self.parameters)

    @property
    def time_s(self) -> float:
        return self.steps * DT_S

    @property
    def clock_mhz(self) -> Floats:
        mhz: Floats = self.clock * self._of["max_mhz"]
        return mhz

    @property
    def running(self) -> Floats:
        """Sequences in flight, as a share of the full batch."""
        return np.minimum(self.sequences, self.bound)

    @property
    def utilization(self) -> Floats:
        """Share of the full batch's rate that the sequences allow, over the phases."""
        prefill, decode = self._fills()
        return self.prefill * prefill + (1 - self.prefill) * decode

    def utilization_of(self, index: int) -> float:
        """Of one card; those of all are made at the first one after a step."""
        if self._utilizations[0] != self.steps:
            self._utilizations = self.steps, self.utilization.tolist()
        return self._utilizations[1][index]

    def power(self, clock: Floats) -> Floats:
        """W drawn at a clock, as a share of the highest, with the load, temperature and voltage curve of now:
        `0.7 idle + leak V² + memory + switching · clock · V²`; leakage doubles about every 58 °C."""
        fixed, leak, switching = self._power_terms()
        return fixed + (leak + switching * clock) * voltage_squared(clock, self._of["v_floor"], self._of["v_knee"])

    def run(self, seconds: float) -> None:
        """As many whole steps as fit."""
        for _ in range(round(seconds / DT_S)):
            self.step()

    def step(self) -> None:
        """0.1 s. A card that has fallen off the bus does not work and draws nothing that it would tell."""
        busy = (self.running > 0) & ~self.lost
        capped, held = self._clock_limits()
        target = np.where(busy, np.minimum(capped, held), self.min_clock)
        self.clock = self.clock + (target - self.clock) * self.clock_share
        self.power_w = np.where(self.lost, 0.0, self.power(self.clock))
        self._work(busy, capped)
        self._heat()
        self._slow_down()
        self.steps += 1
        self.sensors.step(self.die_c, self.memory_c, self.power_w, self._throttle(busy, capped, held))

    def speed(self, clock: Floats) -> tuple[Floats, Floats]:
        """Prefill and decode per second of the full clock's, at a clock: part of the time scales with it, μ does not."""
        prefill, decode = self._of["prefill_mu"], self._of["decode_mu"]
        return 1 / ((1 - prefill) / clock + prefill), 1 / ((1 - decode) / clock + decode)

    def _fills(self) -> tuple[Floats, Floats]:
        """Shares of the full batch's rate in prefill and in decode that so many sequences reach. A decode step reads the
        weights once and each sequence's keys and values: its time is `weights_share` and the rest times the sequences (8B
        model in bf16: 16 GB against 33 GB for 256 sequences of 1,000 tokens). A few long prompts fill a prefill step."""
        weights, running = self._of["weights_share"], self.running
        decode = running / (weights + (1 - weights) * running)
        return np.minimum(1, running / _FULL_BATCH_PREFILL), decode

    def rates(self) -> tuple[Floats, Floats]:
        """Prefill and decode per second of the full clock's and batch's, if all the time went into the one or the other."""
        prefill, decode = self.speed(self.clock)
        prompts, answers = self._fills()
        return np.maximum(prefill * prompts, 1e-9), np.maximum(decode * answers, 1e-9)

    def _power_terms(self) -> tuple[Floats, Floats, Floats]:
        of, busy = self._of, self.running > 0
        utilization, prefill = self.utilization, self.prefill
        leak = of["leak_share"] * of["default_w"] * np.exp(0.012 * (self.die_c - 60))
        memory = prefill * of["prefill_memory_share"] + (1 - prefill) * of["decode_memory_share"]
        switching = prefill * of["prefill_share"] + (1 - prefill) * of["decode_share"]
        fixed = 0.7 * of["idle_w"] + of["default_w"] * memory * busy
        return fixed, leak, of["default_w"] * switching * utilization

    def _clock_limits(self) -> tuple[Floats, Floats]:
        """The highest clock within the power limit, and the one that a lock and the slowdowns allow."""
        held = np.minimum(self.lock, self._thermal_clock)
        held = np.where(self._hot, np.minimum(held, _HW_SHARE), held)
        return self.clock_within(self.limit_w), np.maximum(held, self.min_clock)

    def clock_within(self, limit_w: Floats) -> Floats:
        """The highest clock that draws no more, as a share of the highest; at least the lowest clock, which may draw more.

        Newton from above: power is convex in the clock, so that it never passes the root.
        """
        fixed, leak, switching = self._power_terms()
        floor, knee = self._of["v_floor"], self._of["v_knee"]
        clock = np.ones(len(self))
        slope_v = (1 - floor) / (1 - knee)
        for _ in range(4):
            voltage = floor + slope_v * np.maximum(clock - knee, 0)
            excess = fixed + (leak + switching * clock) * voltage * voltage - limit_w
            above = (clock > knee) * 2 * slope_v * voltage
            slope = switching * voltage * voltage + (leak + switching * clock) * above
            clock = np.clip(clock - excess / np.maximum(slope, 1e-9), self.min_clock, 1)
        return clock

    def _work(self, busy: Flags, capped: Floats) -> None:
        """Full-clock, full-batch seconds of work done."""
        prefill, decode = self.rates()
        short = np.maximum(_CLIFF_SHARE - self.limit_w / self._of["default_w"], 0)
        cliff = 1 - _CLIFF_SLOPE * short * np.clip((1 - capped) / 0.3, 0, 1)
        rate = busy * np.maximum(cliff, 0) * DT_S
        self.prefill_work = self.prefill_work + rate * self.prefill * prefill
        self.decode_work = self.decode_work + rate * (1 - self.prefill) * decode

    def power_to_reach(self, die_c: Floats) -> Floats:
        """W that take the die to such a temperature by the end of the next step: what only the omniscient know."""
        a, b, c, capacity = self._conductances()
        wanted = die_c * ((1 + a) * (1 + b + c) - a * b)
        die, sink = self.die_c, self.sink_c
        right_sink = sink + b * (die - sink) - c * (sink - 2 * self.inlet_c)
        right_die = (wanted - a * right_sink) / (1 + b + c)
        watts: Floats = (right_die - die + a * (die - sink)) * capacity / DT_S
        return watts

    def _conductances(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Of half a step: die to sink per die's capacity, and per sink's, sink to air per sink's; and the die's capacity."""
        of = self._of
        inward, outward = 1 / of["die_r"], 1 / (of["sink_r"] * self.fan)
        die_capacity, sink_capacity = of["die_tau_s"] / of["die_r"], of["sink_tau_s"] / of["sink_r"]
        half = DT_S / 2
        return half * inward / die_capacity, half * inward / sink_capacity, half * outward / sink_capacity, die_capacity

    def _heat(self) -> None:
        """The two-pole model, by the trapezoidal rule; memory over the heatsink by its traffic, first order."""
        of = self._of
        a, b, c, die_capacity = self._conductances()
        die, sink = self.die_c, self.sink_c
        right_die = die - a * (die - sink) + DT_S * self.power_w / die_capacity
        right_sink = sink + b * (die - sink) - c * (sink - 2 * self.inlet_c)
        determinant = (1 + a) * (1 + b + c) - a * b
        self.die_c = (right_die * (1 + b + c) + a * right_sink) / determinant
        self.sink_c = ((1 + a) * right_sink + b * right_die) / determinant
        traffic = (self.running > 0) * (1 - 0.5 * self.prefill) * ~self.lost
        target = self.sink_c + of["memory_rise_c"] * traffic
        self.memory_c = self.memory_c + (target - self.memory_c) * (1 - np.exp(-DT_S / of["memory_tau_s"]))

    def _slow_down(self) -> None:
        """Above GPU_MAX or MEM_MAX the software takes the clock down; at SLOWDOWN the hardware; at SHUTDOWN it is lost."""
        of = self._of
        warm = (self.die_c > of["max_c"]) | (self.memory_c > self._memory_max_c)
        lower = np.minimum(self._thermal_clock, self.clock) - _SLOWER_MHZ / of["max_mhz"]
        higher = self._thermal_clock + _FASTER_MHZ / of["max_mhz"]
        self._thermal_clock = np.clip(np.where(warm, lower, higher), self.min_clock, 1)
        self._hot = (self.die_c >= of["slowdown_c"]) | (self._hot & (self.die_c > of["slowdown_c"] - _HW_RELEASE_C))
        self.lost = self.lost | (self.die_c >= of["shutdown_c"])

    def _throttle(self, busy: Flags, capped: Floats, held: Floats) -> NDArray[np.int64]:
        """NVML's bits. A lock sets none."""
        software = self._thermal_clock < np.minimum(self.lock, 1)
        bits: NDArray[np.int64] = np.where(busy, 0, int(Throttle.GPU_IDLE))
        bits |= np.where(busy & (capped < held), int(Throttle.SW_POWER_CAP), 0)
        bits |= np.where(software, int(Throttle.SW_THERMAL), 0)
        bits |= np.where(self._hot, int(Throttle.HW_THERMAL | Throttle.HW_SLOWDOWN), 0)
        return bits
