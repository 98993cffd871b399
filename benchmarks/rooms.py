"""A simulated machine room under a controller, second by second, and what came of it: heat, work, energy, writes.

The controller sees what a driver tells and nothing of the plants' parameters. Deterministic.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.controllers import Controller
from tasks.core.config import PowerConfig
from tasks.governor.cards import PlantParameters
from tasks.governor.device import CardError, CardLostError
from tasks.governor.events import Event, Kind
from tasks.governor.plant import DT_S, Plant
from tasks.governor.sample import Sample
from tasks.governor.setting import Load, Setting
from tasks.governor.simulated import MachineRoom, SimulatedDevice

Floats = NDArray[np.float64]
_Value = TypeVar("_Value", int, float)

LINE_C = PowerConfig().max_temperature_c
FULL_SEQS = 256
_STEPS_A_SECOND = round(1 / DT_S)


@dataclass(frozen=True)
class Scene:
    """Cards, and what happens to them, for so many seconds."""

    parameters: Sequence[PlantParameters]
    events: Sequence[Sequence[Event]]
    seconds: int
    inlet_c: Floats

    def room(self) -> MachineRoom:
        return MachineRoom(self.parameters, self.events, inlet_c=self.inlet_c)

    def part(self, start: int, end: int) -> "Scene":
        return Scene(self.parameters[start:end], self.events[start:end], self.seconds, self.inlet_c[start:end])


class Work(Protocol):
    """What the engine has to do. `before` is called before each step, `loads` before each second."""

    def before(self, plant: Plant) -> None: ...

    def loads(self, plant: Plant, second: int) -> list[Load]: ...


class Schedule:
    """Work by the clock, as the LOAD events have it. The plan ahead is the mean share of prefill in the minute to come
    while anything runs, wrong by up to `error`; without `told` there is none."""

    def __init__(self, scene: Scene, *, told: bool = True, error: float = 0.15, seed: int = 0) -> None:
        self._ahead = _planned(scene) if told else None
        self._error = np.random.default_rng(seed).uniform(1 - error, 1 + error, len(scene.parameters))

    def before(self, plant: Plant) -> None:
        """The events do it."""

    def load(self, plant: Plant, second: int, at: int) -> Load:
        """Of one plant."""
        running = round(float(min(plant.sequences[at], plant.bound[at])) * FULL_SEQS)
        ahead = None if self._ahead is None else min(float(self._ahead[second, at] * self._error[at]), 1.0)
        return Load(running, FULL_SEQS, float(plant.prefill[at]) if running else None, ahead)

    def loads(self, plant: Plant, second: int) -> list[Load]:
        running = np.rint(plant.running * FULL_SEQS).astype(int).tolist()
        prefill = plant.prefill.tolist()
        none = [None] * len(plant)
        ahead = none if self._ahead is None else np.clip(self._ahead[second] * self._error, 0, 1).tolist()
        return [Load(r, FULL_SEQS, p if r else None, a) for r, p, a in zip(running, prefill, ahead, strict=True)]


@dataclass(frozen=True)
class Trace:
    """Of each second, shape (seconds, plants); `peak_c` is the die's highest within it, the rest its end or its sum."""

    peak_c: Floats
    die_c: Floats
    clock_mhz: Floats
    power_w: Floats
    work: Floats
    tokens: Floats


@dataclass(frozen=True)
class Outcome:
    """Of each plant, shape (plants,): `peak_c` of the true die, seconds above the line and above hardware's slowdown, work
    done in full-clock seconds, energy in J, how often clock or power limit were written, and lost cards."""

    peak_c: Floats
    above_line_s: Floats
    above_slowdown_s: Floats
    work: Floats
    energy_j: Floats
    writes: Floats
    lost: Floats

    @staticmethod
    def joined(parts: "Sequence[Outcome]") -> "Outcome":
        names = Outcome.__dataclass_fields__
        return Outcome(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


class Driven:
    """A room whose devices a controller reads and sets."""

    def __init__(self, room: MachineRoom, controller: Controller | None = None) -> None:
        self.room, self.controller = room, controller
        no_wait: Callable[[float], None] = lambda seconds: None  # noqa: E731 - the clock is the room's alone
        self.devices = [SimulatedDevice(room, at, wait=no_wait) for at in range(len(room.boards))]
        self._applied = [Setting()] * len(self.devices)
        self.settings = list(self._applied)
        self._gone: dict[int, str] = {}

    def act(self, loads: Sequence[Load]) -> None:
        """One period: read, decide, set."""
        if self.controller is None:
            return
        self._gone.clear()
        samples = [self._read(at) for at in range(len(self.devices))] if self.controller.reads else [None] * len(loads)
        self.settings = self.controller.decide(samples, loads, self.room.now_s)
        for at, words in self._gone.items():
            self.settings[at] = self.controller.lost(at, words)
        for at, (setting, applied) in enumerate(zip(self.settings, self._applied, strict=True)):
            if _levers(setting) != _levers(applied):
                self._apply(at, setting, applied)

    def put_back(self) -> None:
        """As a run does at its end, for every card whose settings were ever touched: a clock lock cannot be read back, so
        that whether it is on is not known. A card that is lost stays as it is."""
        for device, board in zip(self.devices, self.room.boards, strict=True):
            if board.plant.lost[board.index] or not any(write.ours for write in board.writes):
                continue
            device.unlock_clock()
            device.set_power_limit(device.card.default_w or 0.0)

    def _read(self, at: int) -> Sample | None:
        try:
            return self.devices[at].read()
        except CardLostError as error:
            self._gone[at] = str(error)
        except CardError:
            pass
        return None

    def _apply(self, at: int, setting: Setting, applied: Setting) -> None:
        """Write what has changed; what failed is tried again with the next setting."""
        number = setting.max_num_seqs
        self.room.plant.bound[at] = 1.0 if number is None else min(number / FULL_SEQS, 1.0)
        clock, power, device = applied.clock_mhz, applied.power_w, self.devices[at]
        if (setting.clock_mhz, setting.power_w) != (clock, power):
            refusal = None
            try:
                clock = _moved(clock, setting.clock_mhz, device.lock_clock, device.unlock_clock)
                as_found = device.card.default_w or 0.0
                power = _moved(power, setting.power_w, device.set_power_limit, lambda: device.set_power_limit(as_found))
            except (CardError, CardLostError) as error:
                refusal = str(error)
            if self.controller is not None:
                self.controller.told(at, refusal)
        self._applied[at] = Setting(clock, power, number)


def _levers(setting: Setting) -> tuple[int | None, float | None, int | None]:
    return setting.clock_mhz, setting.power_w, setting.max_num_seqs


def _moved(
    had: _Value | None, wanted: _Value | None, put: Callable[[_Value], None], back: Callable[[], None]
) -> _Value | None:
    """A lever where it is wanted; None puts it back."""
    if wanted is not None and wanted != had:
        put(wanted)
    elif wanted is None and had is not None:
        back()
    return wanted


def simulate(scene: Scene, controller_of: Callable[[MachineRoom], Controller], work: Work) -> tuple[Outcome, Trace]:
    """The whole scene under one controller."""
    driven = Driven(room := scene.room())
    driven.controller = controller_of(room)
    return run_scene(scene, room, work, lambda second: driven.act(work.loads(room.plant, second)), lambda: None)


def hold(scene: Scene, set_c: float, work: Work) -> tuple[Outcome, Trace]:
    """The omniscient controller: knows the true die and everything else, acts at once and ten times a second, and lets the
    die come to `set_c` and no further at the highest clock that does; where no clock will, it pauses for a step."""
    room = scene.room()
    plant = room.plant
    plant.clock_share[:] = 1.0

    def before() -> None:
        plant.bound[:] = 1.0
        watts = plant.power_to_reach(np.full(len(plant), set_c))
        plant.lock = plant.clock_within(watts)
        plant.bound = np.where(plant.power(plant.min_clock) > np.maximum(watts, 0), 0.0, 1.0)

    return run_scene(scene, room, work, lambda second: None, before)


def run_scene(
    scene: Scene, room: MachineRoom, work: Work, each_second: Callable[[int], None], each_step: Callable[[], None]
) -> tuple[Outcome, Trace]:
    """Step by step, with what is to be done each second and before each step."""
    plant, count = room.plant, len(room.plant)
    slowdown = np.array([one.slowdown_c for one in scene.parameters])
    peak, above, slowed = (np.zeros(count) for _ in range(3))
    rows: list[tuple[Floats, ...]] = []
    for second in range(scene.seconds):
        work.before(plant)
        each_second(second)
        before = plant.prefill_work, plant.decode_work
        hottest = np.zeros(count)
        for _ in range(_STEPS_A_SECOND):
            work.before(plant)
            room.begin_step()
            each_step()
            room.advance(DT_S)
            hottest = np.maximum(hottest, plant.die_c)
            above += DT_S * (plant.die_c > LINE_C)
            slowed += DT_S * (plant.die_c >= slowdown)
        peak = np.maximum(peak, hottest)
        rows.append((hottest, *_row(plant, *before)))
    trace = Trace(*(np.array(column) for column in zip(*rows, strict=True)))
    writes = np.array([float(len(board.writes)) for board in room.boards])
    done = plant.prefill_work + plant.decode_work
    energy = plant.sensors.energy_j
    return Outcome(peak, above, slowed, done, energy, writes, plant.lost.astype(float)), trace


def _row(plant: Plant, prefill_before: Floats, decode_before: Floats) -> tuple[Floats, ...]:
    prefill, decode = plant.prefill_work - prefill_before, plant.decode_work - decode_before
    per_s = np.array([(one.prefill_tokens_s, one.decode_tokens_s) for one in plant.parameters])
    tokens = prefill * per_s[:, 0] + decode * per_s[:, 1]
    return plant.die_c, plant.clock_mhz, plant.power_w, prefill + decode, tokens


def _planned(scene: Scene) -> Floats:
    """Mean share of prefill of the minute from each second on, while anything runs; shape (seconds, plants)."""
    shape = (scene.seconds + 61, len(scene.parameters))
    prefill, busy = np.zeros(shape), np.zeros(shape)
    for at, own in enumerate(scene.events):
        for load in sorted((one for one in own if one.kind is Kind.LOAD), key=lambda one: one.at_s):
            start = round(load.at_s)
            busy[start:, at] = load.sequences > 0
            prefill[start:, at] = load.size * (load.sequences > 0)
    sums = [np.concatenate([np.zeros((1, shape[1])), np.cumsum(part, axis=0)]) for part in (prefill, busy)]
    minute = [part[60:] - part[:-60] for part in sums]
    planned: Floats = (minute[0] / np.maximum(minute[1], 1))[: scene.seconds]
    return planned
