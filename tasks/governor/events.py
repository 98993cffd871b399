"""What happens to simulated cards, as data: the air, the fans, the load, and what goes wrong with the driver."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from tasks.governor.plant import Flags, Floats, Plant

_STEP_TAU_S = 20.0
"""How fast the air of a room changes when a door opens (estimate)."""


class Kind(Enum):
    """`size` is in the unit given; without one it is not used."""

    INLET_RAMP = auto()
    """°C, reached at the end and kept."""
    INLET_STEP = auto()
    """°C, for as long as it lasts, with a time constant of 20 s."""
    INLET_CYCLE = auto()
    """°C up and down, once in `for_s`, without an end."""
    FAN = auto()
    """Factor of the resistance to the air."""
    LOAD = auto()
    """Share of prefill, with `sequences` running, until the next one."""
    FREEZE = auto()
    """All readings stay as they are, counters too."""
    STUCK = auto()
    """The temperature stays as it is, all else goes on."""
    GARBAGE = auto()
    """The driver says success, and values that cannot be."""
    NO_READING = auto()
    """Reads fail."""
    HANG = auto()
    """Calls do not return before its end."""
    LOST = auto()
    """The card falls off the bus, for good."""
    DENIED = auto()
    """Nothing may be set."""
    REFUSED = auto()
    """The driver says success, and sets nothing."""
    WRITER = auto()
    """Somebody else sets this power limit, W, again every `every_s`."""
    OUT_OF_BAND = auto()
    """The power limit that the board's controller holds, W, whatever is requested."""


@dataclass(frozen=True, slots=True)
class Event:
    """From `at_s` on for `for_s` seconds."""

    kind: Kind
    at_s: float
    for_s: float = math.inf
    size: float = 0.0
    sequences: float = 1.0
    every_s: float = math.inf

    @property
    def end_s(self) -> float:
        return self.at_s + self.for_s

    def holds(self, now_s: float) -> bool:
        return self.at_s <= now_s < self.end_s


class Surroundings:
    """The air, the fans and the load of each plant, moved along by `apply`. Inlets and fans are where the plant has them
    at the beginning, and events add to the one and multiply the other."""

    def __init__(self, plant: Plant, events: Sequence[Sequence[Event]]) -> None:
        if len(events) != len(plant):
            raise ValueError(f"events for {len(events)} plants, and there are {len(plant)}")
        self._plant = plant
        self._inlet_c, self._fan = plant.inlet_c.copy(), plant.fan.copy()
        air = (Kind.INLET_RAMP, Kind.INLET_STEP, Kind.INLET_CYCLE, Kind.FAN)
        self._air = {kind: _Columns([[one for one in own if one.kind is kind] for own in events]) for kind in air}
        loads = [(one.at_s, index, one) for index, own in enumerate(events) for one in own if one.kind is Kind.LOAD]
        self._loads = sorted(loads, key=lambda load: load[:2])
        self._next_load = 0

    def apply(self) -> None:
        """Bring the plant's inputs to its time."""
        now, plant = self._plant.time_s, self._plant
        while self._next_load < len(self._loads) and self._loads[self._next_load][0] <= now:
            _, index, load = self._loads[self._next_load]
            plant.prefill[index], plant.sequences[index] = load.size, load.sequences
            self._next_load += 1
        ramp, step, cycle = (self._air[kind] for kind in (Kind.INLET_RAMP, Kind.INLET_STEP, Kind.INLET_CYCLE))
        inlet = self._inlet_c + (ramp.size * np.clip((now - ramp.at_s) / ramp.for_s, 0, 1)).sum(axis=1)
        inlet += (step.size * (step.response(now, 0.0) - step.response(now, step.for_s))).sum(axis=1)
        turns = np.maximum(now - cycle.at_s, 0) / cycle.for_s
        plant.inlet_c = inlet + (cycle.size * np.sin(2 * np.pi * turns)).sum(axis=1)
        fan = self._air[Kind.FAN]
        plant.fan = self._fan * np.where(fan.holds(now), fan.size, 1).prod(axis=1)


class _Columns:
    """Events of one kind as arrays of shape (plants, most events of a plant); what is missing has size 0 and never comes."""

    def __init__(self, events: Sequence[Sequence[Event]]) -> None:
        shape = (len(events), max((len(own) for own in events), default=0))
        self.at_s, self.for_s, self.size = np.full(shape, 1e18), np.ones(shape), np.zeros(shape)
        for row, own in enumerate(events):
            for column, one in enumerate(own):
                self.at_s[row, column], self.for_s[row, column] = one.at_s, min(one.for_s, 1e18)
                self.size[row, column] = one.size

    def holds(self, now: float) -> Flags:
        return (self.at_s <= now) & (now < self.at_s + self.for_s)

    def response(self, now: float, after: float | Floats) -> Floats:
        """Of a step, `after` its start."""
        return 1 - np.exp(-np.maximum(now - self.at_s - after, 0) / _STEP_TAU_S)
