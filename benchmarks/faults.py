"""Goal 22: what happens to the card when a sensor, a driver, or a permission fails under the governor, on hot cards.

Each card gets one fault, as its load turns heavy or at any other time. Safe is: from two periods after its beginning on, a
governor that cannot see allows nothing more than it did before it (or pauses), and the true die never passes the line.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.controllers import Governor
from benchmarks.hot_nights import MANAGED, cards_of
from benchmarks.rooms import FULL_SEQS, LINE_C, Driven, Scene, Schedule, run_scene
from tasks.governor.cards import CARDS, randomised
from tasks.governor.events import Event, Kind
from tasks.governor.setting import Setting

Floats = NDArray[np.float64]

FAULTS: dict[str, Kind] = {
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
}
BLIND = ("stale sensor", "no reading", "wedged call", "garbage with success", "lost card")
"""Faults that leave the governor without a reading to believe."""

_WARM_S, _SECONDS, _PERIODS = 300, 600, 2


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


def injected(per_fault: int, *, spread: float = 0.4, mismatch: float = 0.15, seed: int = 22) -> Injected:
    """Random cards in warm air with failing fans, so that heat binds; each fault on `per_fault` of them."""
    rng = np.random.default_rng(seed)
    names = [name for _ in range(per_fault) for name in FAULTS]
    kinds = list(CARDS.values())
    # Kinds of cards go by rounds of the faults, so that each fault meets all of them.
    parameters = [randomised(kinds[at // len(FAULTS) % len(kinds)], rng, spread, mismatch) for at in range(len(names))]
    start = _WARM_S + rng.uniform(0, 60, len(names))
    lasts = rng.uniform(20, 180, len(names))
    events = [_night(rng, name, start[at], lasts[at], parameters[at].default_w) for at, name in enumerate(names)]
    scene = Scene(parameters, events, _SECONDS, rng.uniform(30, 36, len(names)))
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
    fault = Event(FAULTS[name], start, for_s=lasts, size=size, every_s=30.0)
    return [*load, warmer, fault, Event(Kind.FAN, 0.0, size=float(rng.uniform(1.2, 1.5)))]


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


def run_faults(of: Injected) -> Verdict:
    room = of.scene.room()
    driven = Driven(room)
    driven.controller = Governor(cards_of(room), MANAGED)
    work = Schedule(of.scene, told=True)
    levers: list[list[tuple[float, float, float]]] = []

    def each_second(second: int) -> None:
        driven.act(work.loads(room.plant, second))
        levers.append([_levers(setting) for setting in driven.settings])

    _, trace = run_scene(of.scene, room, work, each_second, lambda: None)
    driven.put_back()
    count = len(of.names)
    times = np.arange(of.scene.seconds)[:, None]
    during = (times >= np.floor(of.start_s)) & (times <= of.end_s + 60)
    peak = np.where(during, trace.peak_c, 0).max(axis=0)
    settings = np.array(levers)
    periods = np.array([_periods(of, settings[:, at], at) for at in range(count)])
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
    if of.names[at] not in BLIND:
        return 0.0
    first = int(np.ceil(of.start_s[at]))
    last = of.scene.seconds if of.names[at] == "lost card" else int(of.end_s[at])
    before, after = settings[first - 1], settings[first:last]
    safe = (after <= before).all(axis=1) | (after[:, 2] == 0)
    if of.names[at] == "lost card":
        safe = after[:, 2] == 0
    wrong = np.flatnonzero(~safe)
    return 0.0 if not len(wrong) else float(wrong[-1] + 1) if wrong[-1] + 1 < len(safe) else np.inf
