"""Simulated cards behind the Device that NVML's are behind, on a virtual clock: for tests, benchmarks and dry runs.

A Board is what the driver keeps of one card: who asked for what outlives who asked. A SimulatedDevice is one client of it.
The clock is the plant's; it moves with `MachineRoom.advance`, and with calls that hang. Deterministic from the events and
the seed.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tasks.governor.cards import PlantParameters
from tasks.governor.device import CardError, CardLostError, RefusedError
from tasks.governor.events import Event, Kind, Surroundings
from tasks.governor.plant import DT_S, Floats, Plant
from tasks.governor.sample import Card, Sample, Throttle

_NOT_ALLOWED = "setting needs root (NVML: NoPermission)"


@dataclass(frozen=True, slots=True)
class Write:
    """A power limit in W or a clock in MHz, None where the lock came off. `ours` tells it from another writer's."""

    time_s: float
    what: str
    value: float | None
    ours: bool = True


class Board:
    """What the driver keeps of card `index` of a plant. Requested, enforced and default limit are three things."""

    def __init__(self, plant: Plant, index: int, events: Sequence[Event], seed: int, *, persistence: bool) -> None:
        self.plant, self.index, self.parameters = plant, index, plant.parameters[index]
        self.events = tuple(one for one in events if one.kind not in _SURROUNDINGS)
        self.requested_w = float(self.parameters.default_w)
        self.writes: list[Write] = []
        self.clients = 0
        self.frozen: Sample | None = None
        self.random = random.Random(f"{seed}/{index}")
        self._persistence = persistence
        self._constraint_w = float("inf")
        self._next_writes = [one.at_s for one in self.events if one.kind is Kind.WRITER]

    @property
    def enforced_w(self) -> float:
        return min(self.requested_w, self._constraint_w)

    def during(self, kind: Kind) -> Event | None:
        """The event of that kind that is on now."""
        if not self.events:
            return None
        now = self.plant.time_s
        return next((one for one in self.events if one.kind is kind and one.holds(now)), None)

    def request(self, watts: float, *, ours: bool = True) -> None:
        self.writes.append(Write(self.plant.time_s, "power", watts, ours))
        if self.during(Kind.REFUSED) is None or not ours:
            self.requested_w = watts
            self.plant.limit_w[self.index] = self.enforced_w

    def lock(self, mhz: int | None) -> None:
        self.writes.append(Write(self.plant.time_s, "clock", mhz))
        if self.during(Kind.REFUSED) is None:
            self.plant.lock[self.index] = 1.0 if mhz is None else mhz / self.parameters.max_mhz

    def tick(self) -> None:
        """What others do to the card by themselves."""
        now = self.plant.time_s
        if self.during(Kind.LOST) is not None:
            self.plant.lost[self.index] = True
        out_of_band = self.during(Kind.OUT_OF_BAND)
        self._constraint_w = float("inf") if out_of_band is None else out_of_band.size
        self.plant.limit_w[self.index] = self.enforced_w
        writers = [one for one in self.events if one.kind is Kind.WRITER]
        for at, writer in enumerate(writers):
            if self._next_writes[at] <= now < writer.end_s:
                self._next_writes[at] = now + writer.every_s
                self.request(writer.size, ours=False)

    def reload_driver(self) -> None:
        """Everything that anybody set is gone, and the counters begin anew."""
        self.requested_w = float(self.parameters.default_w)
        self.plant.limit_w[self.index], self.plant.lock[self.index] = self.enforced_w, 1.0
        self.plant.sensors.reset(self.index)

    def leave(self) -> None:
        """One client less; without persistence mode the last one takes all settings with it."""
        self.clients -= 1
        if self.clients == 0 and not self._persistence:
            self.reload_driver()


_SURROUNDINGS = (Kind.INLET_RAMP, Kind.INLET_STEP, Kind.INLET_CYCLE, Kind.FAN, Kind.LOAD)


class MachineRoom:
    """Cards, what happens to them, and the one clock of it all, in seconds."""

    def __init__(
        self,
        parameters: Sequence[PlantParameters],
        events: Sequence[Sequence[Event]] | None = None,
        *,
        inlet_c: float | Floats = 25.0,
        seed: int = 0,
        persistence: bool = True,
    ) -> None:
        all_events = events if events is not None else [()] * len(parameters)
        self.plant = Plant(parameters, inlet_c)
        self._surroundings = Surroundings(self.plant, all_events)
        self.boards = [Board(self.plant, at, own, seed, persistence=persistence) for at, own in enumerate(all_events)]
        self._moved = [board for board in self.boards if board.events]
        self._begun = -1
        self.begin_step()

    @property
    def now_s(self) -> float:
        return self.plant.time_s

    def advance(self, seconds: float) -> None:
        """Whole steps of 0.1 s; the air and the load change at their beginning."""
        for _ in range(round(seconds / DT_S)):
            self.begin_step()
            self.plant.step()

    def begin_step(self) -> None:
        """Let happen what is due by now; once a step."""
        if self._begun == self.plant.steps:
            return
        self._begun = self.plant.steps
        self._surroundings.apply()
        for board in self._moved:
            board.tick()


class SimulatedDevice:
    """One client of a card. `permitted` is that it may set anything. A call that hangs gives up after `deadline_s`; `wait`
    lets the time pass that it takes."""

    def __init__(
        self,
        room: MachineRoom,
        index: int = 0,
        *,
        permitted: bool = True,
        deadline_s: float = 1.0,
        wait: Callable[[float], None] | None = None,
    ) -> None:
        self._room, self._board = room, room.boards[index]
        self._permitted, self._deadline_s = permitted, deadline_s
        self._wait = wait if wait is not None else room.advance
        self._board.clients += 1
        self._open = True

    @property
    def card(self) -> Card:
        of = self._board.parameters
        denied = None if self._permitted else _NOT_ALLOWED
        return Card(
            uuid=f"GPU-00000000-0000-0000-0000-{self._board.index:012d}",
            name=f"simulated {of.name}",
            index=self._board.index,
            driver="simulated",
            memory_bytes=of.memory_bytes,
            clocks_mhz=of.clocks_mhz,
            default_w=float(of.default_w),
            min_w=float(of.min_w),
            max_w=float(of.default_w),
            max_c=float(of.max_c),
            slowdown_c=float(of.slowdown_c),
            shutdown_c=float(of.shutdown_c),
            memory_max_c=of.memory_max_c,
            no_clock=denied,
            no_power=denied,
        )

    def read(self) -> Sample:
        self._call()
        board, now = self._board, self._room.now_s
        if board.during(Kind.NO_READING) is not None:
            raise CardError(f"{self.card.name} could not be read (NVML: Unknown)")
        sample = _sample(board, now)
        frozen = board.during(Kind.FREEZE) is not None
        if not frozen and board.during(Kind.STUCK) is None:
            board.frozen = None
        else:
            board.frozen = board.frozen or sample
            kept = board.frozen
            sample = replace(kept, time_s=now) if frozen else _with_temperatures(sample, kept)
        return _garbled(sample, board.random) if board.during(Kind.GARBAGE) is not None else sample

    def requested_w(self) -> float | None:
        self._call()
        return self._board.requested_w

    def set_power_limit(self, watts: float) -> None:
        self._may_set()
        of, asked = self._board.parameters, round(watts * 1000) / 1000
        if not of.min_w <= asked <= of.default_w:
            raise RefusedError(f"{asked:g} W is not between {of.min_w:g} and {of.default_w:g} W (NVML: InvalidArgument)")
        self._board.request(asked)
        if self._board.requested_w != asked:
            raise CardError(f"{asked:g} W were asked for, and the card has {self._board.requested_w:g} W")

    def lock_clock(self, max_mhz: int) -> None:
        self._may_set()
        of = self._board.parameters
        if max_mhz < of.min_mhz:
            raise RefusedError(f"{max_mhz} MHz is below the lowest clock, {of.min_mhz} MHz (NVML: InvalidArgument)")
        self._board.lock(max(clock for clock in of.clocks_mhz if clock <= max_mhz))

    def unlock_clock(self) -> None:
        self._may_set()
        self._board.lock(None)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._board.leave()

    def _call(self) -> None:
        """What every call goes through. Raises CardError, CardLostError."""
        hang = self._board.during(Kind.HANG)
        if hang is not None:
            left = hang.end_s - self._room.now_s
            self._wait(min(left, self._deadline_s))
            if left > self._deadline_s:
                raise CardError(f"the driver did not answer within {self._deadline_s:g} s")
        if self._board.plant.lost[self._board.index] or self._board.during(Kind.LOST) is not None:
            raise CardLostError(f"{self.card.name} has fallen off the bus (NVML: GpuIsLost)")

    def _may_set(self) -> None:
        self._call()
        if not self._permitted or self._board.during(Kind.DENIED) is not None:
            raise RefusedError(_NOT_ALLOWED)


def _sample(board: Board, now_s: float) -> Sample:
    plant, at, of = board.plant, board.index, board.parameters
    reading = plant.sensors.reading(at)
    temperature, memory = reading.temperature_c, reading.memory_c
    running, prefill = bool(plant.sequences[at] > 0 and plant.bound[at] > 0), float(plant.prefill[at])
    busy = plant.utilization_of(at) if of.activities else 0.0
    return Sample(
        time_s=now_s,
        temperature_c=temperature,
        memory_temperature_c=memory if of.memory_max_c is not None else None,
        margin_c=of.max_c - temperature if of.margins_only else None,
        memory_margin_c=of.memory_max_c - memory if of.memory_max_c is not None else None,
        power_w=round(reading.power_w, 3),
        energy_j=round(reading.energy_j, 3),
        sm_clock_mhz=round(float(plant.clock[at]) * of.max_mhz / 15) * 15,
        memory_clock_mhz=None,
        requested_w=board.requested_w,
        enforced_w=board.enforced_w,
        utilization=1.0 if running else 0.0,
        memory_used_bytes=of.memory_bytes * 9 // 10,
        throttle=Throttle(reading.throttle),
        thermal_ns=reading.thermal_ns,
        power_cap_ns=reading.power_cap_ns,
        sm_activity=busy if of.activities else None,
        dram_activity=(0.8 - 0.4 * prefill) * running if of.activities else None,
        tensor_activity=busy * (0.1 + 0.5 * prefill) if of.activities else None,
    )


def _with_temperatures(sample: Sample, kept: Sample) -> Sample:
    """The sample, with the temperatures of another one."""
    return replace(
        sample,
        temperature_c=kept.temperature_c,
        memory_temperature_c=kept.memory_temperature_c,
        margin_c=kept.margin_c,
        memory_margin_c=kept.memory_margin_c,
    )


def _garbled(sample: Sample, rng: random.Random) -> Sample:
    """A reading as drivers have given them with success: millions of watts (MangoHud #2144), no degrees, all bits set."""
    return rng.choice(
        (
            replace(sample, power_w=rng.uniform(1e6, 5e6)),
            replace(sample, temperature_c=0.0, memory_temperature_c=0.0),
            replace(sample, temperature_c=255.0),
            replace(sample, temperature_c=-1.0, power_w=4294967.295),
            replace(sample, energy_j=0.0, power_w=float("nan")),
        )
    )
