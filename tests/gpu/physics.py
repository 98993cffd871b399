"""The physics of simulated cards behind the stub driver, in real time: what any process sets through NVML acts on them.

The simulation moves on by 0.1 s at a time, takes limits and locks from the mapped state, and puts there what the cards say.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Self

from tasks.governor.cards import PlantParameters
from tasks.governor.device import CardError, CardLostError
from tasks.governor.events import Event, Kind
from tasks.governor.plant import DT_S
from tasks.governor.sample import Sample, Throttle
from tasks.governor.simulated import MachineRoom, SimulatedDevice
from tests.gpu.layout import Card
from tests.gpu.stub import LOST, Stub

LINE_C = 80.0
_MIX_S = (30.0, 60.0)
"""Prefill and decode in turns."""


def as_stub(card: PlantParameters, name: str | None = None) -> dict[str, Any]:
    """What the stub driver says that such a card is."""
    return {
        "name": f"NVIDIA {name or card.name} (simulated)".encode(),
        "memory_bytes": card.memory_bytes,
        "clocks_mhz": card.clocks_mhz,
        "default_mw": round(card.default_w * 1000),
        "min_mw": round(card.min_w * 1000),
        "max_mw": round(card.default_w * 1000),
        "threshold_shutdown_c": round(card.shutdown_c),
        "threshold_slowdown_c": round(card.slowdown_c),
        "threshold_memory_c": round(card.memory_max_c or 0),
        "memory_temperature_c": 0,
        "threshold_gpu_c": round(card.max_c),
        "tlimit": int(card.margins_only),
        "gpm": int(card.activities),
        "links": 18 if card.activities else 0,
        "links_active": 18 if card.activities else 0,
    }


def load(kind: str, for_s: float = 12 * 3600.0) -> list[Event]:
    """What runs on the card: prompts, answers, or both in turns."""
    if kind == "idle":
        return []
    if kind != "mix":
        return [Event(Kind.LOAD, 0.0, size=float(kind == "prefill"))]
    events, at = [], 0.0
    while at < for_s:
        events += [Event(Kind.LOAD, at, size=1.0), Event(Kind.LOAD, at + _MIX_S[0], size=0.0)]
        at += sum(_MIX_S)
    return events


@dataclass
class Seen:
    """What a card went through. Temperatures are the true ones of the die, times those of the physics."""

    seconds: float = 0.0
    peak_c: float = 0.0
    above_line_s: float = 0.0
    peak_w: float = 0.0
    energy_j: float = 0.0
    work_s: float = 0.0
    """Of the full clock and the full batch, over prompts and answers."""
    lowest_clock_mhz: int | None = None
    lowest_limit_w: float | None = None
    """Of those that any process has set; None is that none has."""
    sets: dict[str, int] = field(default_factory=dict)
    """How often which call set something; refused ones as well."""
    is_put_back: bool = True
    """Whether the limit is what it was at the beginning, and no lock is on."""


class Physics:
    """Moves the stub's cards in real time, or `speed` times as fast, from `with` to its end. Energy and counters of time are
    those of the clock on the wall, so that watts times seconds are joules for who reads them. `bound` tells which share of
    the batch may run now. `late_s` is how late a step was at most: the computer was busy."""

    def __init__(
        self,
        stub: Stub,
        parameters: Sequence[PlantParameters],
        events: Sequence[Sequence[Event]],
        *,
        inlet_c: float = 25.0,
        speed: float = 1.0,
        bound: Callable[[], float] = lambda: 1.0,
    ) -> None:
        self.room = MachineRoom(parameters, events, inlet_c=inlet_c)
        self.seen = [Seen() for _ in parameters]
        self.late_s = 0.0
        self._stub, self._speed, self._bound = stub, speed, bound
        self._devices = [SimulatedDevice(self.room, at) for at in range(len(parameters))]
        self._found_mw = [card.requested_mw for card in stub.cards]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="physics", daemon=True)
        for card, device in zip(stub.cards, self._devices, strict=True):
            _tell(card, device.read(), self._speed)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        self._sum_up()

    @property
    def is_put_back(self) -> bool:
        """Whether all cards have the limits that they had at the beginning, and no locks."""
        return all(map(self._is_put_back, range(len(self.seen))))

    def _is_put_back(self, at: int) -> bool:
        card = self._stub.cards[at]
        return bool(card.requested_mw == self._found_mw[at] and card.lock_max_mhz == 0)

    def await_restored(self, patience_s: float) -> None:
        """Leave the time to put things back to whoever does so when their owner has died."""
        until_s = time.monotonic() + patience_s
        while not self.is_put_back and time.monotonic() < until_s:
            time.sleep(0.01)

    def _run(self) -> None:
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, -10)  # of this thread: a card heats up however busy the computer is
        due = time.monotonic()
        while not self._stop.wait(max(due - time.monotonic(), 0.0)):
            self.late_s = max(self.late_s, time.monotonic() - due)
            due += DT_S / self._speed
            self.step()

    def step(self) -> None:
        """0.1 s of the cards: what was set acts, and what they say then is there to be read."""
        plant = self.room.plant
        for at, (card, board) in enumerate(zip(self._stub.cards, self.room.boards, strict=True)):
            board.requested_w = card.requested_mw / 1000
            plant.limit_w[at] = min(card.requested_mw, card.outside_mw or card.requested_mw) / 1000
            plant.lock[at] = min(card.lock_max_mhz / board.parameters.max_mhz, 1.0) if card.lock_max_mhz else 1.0
            plant.bound[at] = self._bound()
        before = [board.requested_w for board in self.room.boards]
        self.room.advance(DT_S)
        for at, card in enumerate(self._stub.cards):
            if self.room.boards[at].requested_w != before[at]:  # another writer, of the events
                card.requested_mw = round(self.room.boards[at].requested_w * 1000)
            self._publish(at, card)
            self._watch(at)

    def _publish(self, at: int, card: Card) -> None:
        try:
            _tell(card, self._devices[at].read(), self._speed)
        except CardLostError:
            card.error = LOST
        except CardError:
            return

    def _watch(self, at: int) -> None:
        plant, seen = self.room.plant, self.seen[at]
        die_c = float(plant.die_c[at])
        seen.seconds += DT_S
        seen.peak_c = max(seen.peak_c, die_c)
        seen.above_line_s += DT_S * (die_c > LINE_C)
        seen.peak_w = max(seen.peak_w, float(plant.power_w[at]))
        seen.energy_j = float(plant.sensors.energy_j[at])
        seen.work_s = float(plant.prefill_work[at] + plant.decode_work[at])

    def _sum_up(self) -> None:
        calls = self._stub.calls
        for at, seen in enumerate(self.seen):
            own = [call for call in calls if call.card == at]
            seen.sets = dict(Counter(call.name for call in own))
            limits = [call.arguments[0] / 1000 for call in own if "PowerManagementLimit" in call.name and not call.code]
            clocks = [call.arguments[1] for call in own if "SetGpuLockedClocks" in call.name and not call.code]
            seen.lowest_limit_w, seen.lowest_clock_mhz = min(limits, default=None), min(clocks, default=None)
            seen.is_put_back = self._is_put_back(at)


def _tell(card: Card, sample: Sample, speed: float) -> None:
    """Put a sample where the stub driver reads it. Numbers that are none stay as they were."""
    bits = sample.throttle or Throttle(0)
    passed_ns = round(sample.time_s * 1e9 / speed) - card.time_ns
    hot_ns = card.hw_thermal_ns + passed_ns * bool(bits & Throttle.HW_THERMAL)
    values = {
        "temperature_c": sample.temperature_c,
        "memory_temperature_c": sample.memory_temperature_c,
        "margin_c": sample.margin_c,
        "power_mw": _times(sample.power_w, 1000),
        "instant_mw": _times(sample.power_w, 1000),
        "energy_mj": _times(sample.energy_j, 1000 / speed),
        "sm_clock_mhz": sample.sm_clock_mhz,
        "memory_clock_now_mhz": card.memory_clock_mhz,
        "utilization": _times(sample.utilization, 100),
        "memory_utilization": _times(sample.dram_activity, 100),
        "reasons": int(bits),
        "power_cap_ns": _times(sample.power_cap_ns, 1 / speed),
        "sw_thermal_ns": max(card.sw_thermal_ns, (sample.thermal_ns or 0) / speed - hot_ns),
        "hw_thermal_ns": hot_ns,
        "sm_ns": card.sm_ns + passed_ns * (sample.sm_activity or 0),
        "dram_ns": card.dram_ns + passed_ns * (sample.dram_activity or 0),
        "tensor_ns": card.tensor_ns + passed_ns * (sample.tensor_activity or 0),
        "time_ns": card.time_ns + passed_ns,
    }
    for name, value in values.items():
        if value is not None and isfinite(value):
            setattr(card, name, round(value))


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
