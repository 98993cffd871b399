"""Goal 22: what happens to the card when a sensor, a driver, a permission or the governor itself fails, on hot cards.

Each card gets one fault, as its load turns heavy or at any other time, under the governor's own loop with its calls made at
once. Safe is: from two periods after its beginning on, a governor that cannot see allows nothing more than it did before it,
or pauses; the true die never passes the line; limit and lock are as found in the end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.hot_nights import MANAGED
from benchmarks.rooms import FULL_SEQS, LINE_C, Scene, Schedule, run_scene
from tasks.core.errors import NightbatchError
from tasks.governor.cards import CARDS, randomised
from tasks.governor.events import Event, Kind
from tasks.governor.governor import Governor
from tasks.governor.hands import Answer, Hands
from tasks.governor.setting import Setting
from tasks.governor.simulated import MachineRoom, SimulatedDevice

Floats = NDArray[np.float64]

T = TypeVar("T")

FAULTS: dict[str, Kind | None] = {
    "stale sensor": Kind.FREEZE,
    "stuck temperature": Kind.STUCK,
    "no reading": Kind.NO_READING,
    "wedged call": Kind.HANG,
    "garbage with success": Kind.GARBAGE,
    "lost card": Kind.LOST,
    "writes denied": Kind.DENIED,
    "writes not obeyed": Kind.REFUSED,
    "another writer": Kind.WRITER,
    "limit out of band": Kind.OUT_OF_BAND,
    "dead governor": None,
    "wedged governor": None,
}
BLIND = ("stale sensor", "no reading", "wedged call", "garbage with success", "lost card")
"""Faults that leave the governor without a reading to believe."""

ENDED = ("lost card", "dead governor", "wedged governor")
"""After these nothing may run any more."""

_PERIODS = 2
_GUARD_S = {"dead governor": 0.0, "wedged governor": 2 * MANAGED.period_s}
"""When the guard pauses the engine and puts the card back: it sees the end of its owner at once, or misses its heartbeat for
two periods."""
_HOLDS_S = 2 * MANAGED.period_s
"""How long the engine goes on at the last word of a governor that has fallen silent."""


@dataclass(frozen=True)
class Injected:
    """One fault of each plant, shape (plants,)."""

    scene: Scene
    names: Sequence[str]
    start_s: Floats
    end_s: Floats

    def part(self, start: int, end: int) -> "Injected":
        scene = self.scene.part(start, end)
        return Injected(scene, self.names[start:end], self.start_s[start:end], self.end_s[start:end])


def injected(per_fault: int, *, spread: float = 0.4, mismatch: float = 0.15, seed: int = 22, warm_s: int = 300) -> Injected:
    """Random cards in warm air with failing fans, so that heat binds; each fault on `per_fault` of them."""
    rng = np.random.default_rng(seed)
    names = [name for _ in range(per_fault) for name in FAULTS]
    kinds = list(CARDS.values())
    # Kinds of cards go by rounds of the faults, so that each fault meets all of them.
    parameters = [randomised(kinds[at // len(FAULTS) % len(kinds)], rng, spread, mismatch) for at in range(len(names))]
    start = warm_s + rng.uniform(0, 60, len(names))
    lasts = rng.uniform(20, 180, len(names))
    events = [_night(rng, name, start[at], lasts[at], parameters[at].default_w) for at, name in enumerate(names)]
    scene = Scene(parameters, events, warm_s + 300, rng.uniform(30, 36, len(names)))
    return Injected(scene, names, start, start + lasts)


def _night(rng: np.random.Generator, name: str, start: float, lasts: float, default_w: float) -> list[Event]:
    """Hot from the start; prompts begin with the fault in half of the cases, and within it in the others."""
    load, at = [Event(Kind.LOAD, 2.0, size=1.0)], 2.0
    while at < start - 60:
        at += float(rng.uniform(20, 60))
        load.append(Event(Kind.LOAD, at, size=float(rng.choice([0.0, 0.5, 1.0]))))
    load.append(Event(Kind.LOAD, start - float(rng.uniform(10, 40)), size=float(rng.choice([0.0, 0.3, 1.0]))))
    load.append(Event(Kind.LOAD, start + float(rng.choice([0.0, rng.uniform(0, lasts)])), size=1.0))
    warmer = Event(Kind.INLET_STEP, start, size=float(rng.uniform(0, 6)))
    size = default_w if name == "another writer" else default_w * 0.7
    kind = FAULTS[name]
    fault = [] if kind is None else [Event(kind, start, for_s=lasts, size=size, every_s=30.0)]
    return [*load, warmer, *fault, Event(Kind.FAN, 0.0, size=float(rng.uniform(1.2, 1.5)))]


@dataclass(frozen=True)
class Verdict:
    """Of each fault: the highest temperature of the die from its beginning to a minute after its end, °C; periods until the
    setting was safe, inf when it was not or did not stay so; whether limit and lock are as found in the end."""

    names: Sequence[str]
    peak_c: Floats
    periods: Floats
    restored: NDArray[np.bool_]

    @property
    def safe(self) -> NDArray[np.bool_]:
        return (self.peak_c <= LINE_C) & (self.periods <= _PERIODS) & self.restored

    @staticmethod
    def joined(parts: "Sequence[Verdict]") -> "Verdict":
        arrays = (np.concatenate([getattr(part, name) for part in parts]) for name in ("peak_c", "periods", "restored"))
        return Verdict([name for part in parts for name in part.names], *arrays)


class HungError(NightbatchError):
    """A call that has not come back in its time."""


class AtOnce(Hands):
    """Calls made where they are asked for; one that hangs is given up at once, as the clock is virtual."""

    def __init__(self) -> None:
        """No thread."""

    def do(self, call: Callable[[], T], patience_s: float) -> Answer[T] | None:
        try:
            return Answer(call())
        except HungError:
            return None
        except NightbatchError as error:
            return Answer(error=error)


class Run:
    """The governor of one card, until its fault if it is its own, with what the guard and the engine do after that."""

    def __init__(self, room: MachineRoom, at: int, name: str, start_s: float) -> None:
        def hang(seconds: float) -> None:
            raise HungError(f"{seconds:g} s")

        self._room, self._board, self._guard_s = room, room.boards[at], _GUARD_S.get(name)
        self._ends_s = start_s if self._guard_s is not None else np.inf
        self._device = SimulatedDevice(room, at, wait=hang)
        self._governor = Governor(self._device, AtOnce(), MANAGED, self._publish, lambda sample, setting, state: None)
        self.setting = Setting()

    def tick(self, work: Schedule, second: int) -> None:
        now_s = self._room.now_s
        if now_s < self._ends_s:
            load = work.load(self._room.plant, second, self._board.index)
            self.setting = self._governor.tick(load, now_s)
            return
        if self._guard_s is not None and now_s >= self._ends_s + self._guard_s:
            self._guard_s = None
            if any(write.ours for write in self._board.writes):  # there is no guard before the first change
                self._pause()
                self.put_back()
        if now_s > np.floor(self._ends_s) + _HOLDS_S:
            self._pause()

    def _pause(self) -> None:
        self.setting = Setting(max_num_seqs=0)
        self._publish(self.setting)

    def put_back(self) -> None:
        """As the guard and the owner do: a lock cannot be read back, so that it is taken off wherever there may be one."""
        if not self._board.plant.lost[self._board.index] and any(write.ours for write in self._board.writes):
            self._device.unlock_clock()
            self._device.set_power_limit(self._device.card.default_w or 0.0)

    def _publish(self, setting: Setting) -> None:
        number = setting.max_num_seqs
        self._room.plant.bound[self._board.index] = 1.0 if number is None else min(number / FULL_SEQS, 1.0)


def run_faults(of: Injected) -> Verdict:
    room = of.scene.room()
    runs = [Run(room, at, name, start) for at, (name, start) in enumerate(zip(of.names, of.start_s.tolist(), strict=True))]
    work = Schedule(of.scene)
    levers: list[list[tuple[float, float, float]]] = []

    def each_second(second: int) -> None:
        for run in runs:
            run.tick(work, second)
        levers.append([_levers(run.setting) for run in runs])

    _, trace = run_scene(of.scene, room, work, each_second, lambda: None)
    for run in runs:
        run.put_back()
    times = np.arange(of.scene.seconds)[:, None]
    during = (times >= np.floor(of.start_s)) & (times <= of.end_s + 60)
    peak = np.where(during, trace.peak_c, 0).max(axis=0)
    settings = np.array(levers)
    periods = np.array([_periods(of, settings[:, at], at) for at in range(len(runs))])
    default = np.array([one.default_w for one in of.scene.parameters])
    requested = np.array([board.requested_w for board in room.boards])
    restored = (requested == default) & (room.plant.lock == 1) | room.plant.lost
    return Verdict(of.names, peak, periods, restored)


def _levers(setting: Setting) -> tuple[float, float, float]:
    """Clock, power, sequences; inf is unbounded."""
    clock, power, number = setting.clock_mhz, setting.power_w, setting.max_num_seqs
    return np.inf if clock is None else clock, np.inf if power is None else power, FULL_SEQS if number is None else number


def _periods(of: Injected, settings: Floats, at: int) -> float:
    """Settings are of one plant, shape (seconds, 3). Of what does not blind the governor, the temperature is the judge."""
    name = of.names[at]
    if name not in (*BLIND, *ENDED):
        return 0.0
    first = int(np.ceil(of.start_s[at]))
    before, after = settings[first - 1], settings[first : None if name in ENDED else int(of.end_s[at])]
    safe = after[:, 2] == 0
    if name not in ENDED:
        safe |= (after <= before).all(axis=1)
    wrong = np.flatnonzero(~safe)
    if not len(wrong):
        return 0.0
    return float(wrong[-1] + 1) if wrong[-1] + 1 < len(safe) else np.inf
