"""Goal 21: random cards on a hot night under the governor and its comparators; nobody is told the plants' parameters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.controllers import Controller, Governor, Nothing, Threshold
from benchmarks.rooms import Outcome, Scene, Schedule, Work, hold, simulate
from tasks.core.config import PowerConfig
from tasks.governor.cards import CARDS, randomised
from tasks.governor.events import Event, Kind
from tasks.governor.sample import Card
from tasks.governor.simulated import MachineRoom, SimulatedDevice

SET_POINT_C = 78.0
"""That of all five cards: 2 °C below the line, 5 below GPU_MAX, 7 below the slowdown, whichever is lowest."""

MINUTES = 60
_INLET_C = (22.0, 28.0)
MANAGED = PowerConfig(control="managed")


def hot_scene(count: int, *, spread: float = 0.4, mismatch: float = 0.15, seed: int = 21, minutes: int = MINUTES) -> Scene:
    """`count` cards of five kinds in turn, each with a night of its own."""
    rng = np.random.default_rng(seed)
    kinds = list(CARDS.values())
    parameters = [randomised(kinds[at % len(kinds)], rng, spread, mismatch) for at in range(count)]
    events = [_night(rng, minutes * 60) for _ in range(count)]
    return Scene(parameters, events, minutes * 60, rng.uniform(*_INLET_C, count))


def _night(rng: np.random.Generator, seconds: int) -> list[Event]:
    """Load steps between prefill, decode, both and nothing; the air 8 °C warmer from some time on, a cycle of ± 1 °C of its
    cooling; and 30 % more resistance to the air, likewise."""
    events = [
        Event(Kind.INLET_STEP, float(rng.uniform(0.1, 0.6) * seconds), size=8.0),
        Event(Kind.INLET_CYCLE, 0.0, for_s=float(rng.uniform(300, 900)), size=1.0),
        Event(Kind.FAN, float(rng.uniform(0.1, 0.7) * seconds), size=1.3),
    ]
    at = float(rng.integers(5, 30))
    while at < seconds:
        kind = rng.choice(4, p=(0.35, 0.30, 0.25, 0.10))
        share = (1.0, 0.0, float(rng.uniform(0.2, 0.8)), 0.0)[kind]
        events.append(Event(Kind.LOAD, at, size=share, sequences=0.0 if kind == 3 else 1.0))
        at += float(rng.integers(20, 240))
    return events


def cards_of(room: MachineRoom) -> list[Card]:
    return [SimulatedDevice(room, at).card for at in range(len(room.boards))]


UNTOLD, OBSERVING = "governor, not told the plan", "governor, sequences alone"
CONTROLLERS: dict[str, Callable[[MachineRoom], Controller]] = {
    "hardware only": lambda room: Nothing(),
    "hysteresis 80/75": lambda room: Threshold(cards_of(room), 80, 75, 0.6, 5),
    "hysteresis 76/72": lambda room: Threshold(cards_of(room), 76, 72, 0.5, 1),
    "governor": lambda room: Governor(cards_of(room), MANAGED),
    OBSERVING: lambda room: Governor(cards_of(room), PowerConfig(control="observe")),
    UNTOLD: lambda room: Governor(cards_of(room), MANAGED),
}
OPTIMUM, OPTIMUM_AT_LINE = "optimum at 78", "optimum at 80"


@dataclass(frozen=True)
class Job:
    """One controller over some of the plants of a scene; what a process gets."""

    scene: Scene
    controller: str
    start: int
    end: int


def run(job: Job) -> Outcome:
    scene = job.scene.part(job.start, job.end)
    work: Work = Schedule(scene, told=job.controller != UNTOLD, seed=job.start)
    if job.controller in (OPTIMUM, OPTIMUM_AT_LINE):
        return hold(scene, 80.0 if job.controller == OPTIMUM_AT_LINE else SET_POINT_C, work)[0]
    return simulate(scene, CONTROLLERS[job.controller], work)[0]


def jobs_of(scene: Scene, controllers: Sequence[str], size: int = 125) -> list[Job]:
    count = len(scene.parameters)
    return [Job(scene, name, at, min(at + size, count)) for name in controllers for at in range(0, count, size)]
