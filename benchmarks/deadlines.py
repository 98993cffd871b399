"""Goal 20: energy at equal deadline. The same work, by the same time, under full speed, thresholds, the governor, and an
oracle with the true curves; what is drawn by an idle card until the deadline counts for all."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.hot_nights import CONTROLLERS
from benchmarks.rooms import FULL_SEQS, Outcome, Scene, run_scene, simulate
from tasks.governor.cards import CARDS, randomised
from tasks.governor.events import Event, Kind
from tasks.governor.plant import Plant
from tasks.governor.setting import Load

Floats = NDArray[np.float64]

MIXES = {"decode only": 0.0, "30 % prefill": 0.3, "70 % prefill": 0.7, "prefill only": 1.0}
SLACKS = (0.10, 0.30)
_BLOCKS = 20
_RATE_OVER_S = 10


@dataclass(frozen=True)
class Nights:
    """One night of each plant. `shares` of prefill in the work of each block, shape (plants, blocks); blocks are equal, and
    all of them take `work_s` at the full clock. `mix` and `slack` are what the night was drawn from. `cost_error` is how far
    off the plan is in the cost of a prompt token and of an answer token, shape (plants, 2)."""

    scene: Scene
    shares: Floats
    mix: Floats
    slack: Floats
    cost_error: Floats
    deadline_s: Floats
    work_s: float = 1500.0

    def part(self, start: int, end: int) -> "Nights":
        rest = (getattr(self, name)[start:end] for name in ("shares", "mix", "slack", "cost_error", "deadline_s"))
        shares, mix, slack, cost_error, deadline_s = rest
        return Nights(self.scene.part(start, end), shares, mix, slack, cost_error, deadline_s, self.work_s)


def nights(per_group: int, *, spread: float = 0.4, mismatch: float = 0.15, seed: int = 20) -> Nights:
    """`per_group` random cards for each mix and slack, in cool rooms, without a deadline as yet."""
    rng = np.random.default_rng(seed)
    groups = [(mix, slack) for mix in MIXES.values() for slack in SLACKS]
    count, kinds = per_group * len(groups), list(CARDS.values())
    parameters = [randomised(kinds[at % len(kinds)], rng, spread, mismatch) for at in range(count)]
    mix, slack = (np.repeat([group[part] for group in groups], per_group) for part in (0, 1))
    shares = np.array([_shares(rng, one) for one in mix])
    events = [[Event(Kind.INLET_CYCLE, 0.0, for_s=float(rng.uniform(300, 900)), size=1.0)] for _ in range(count)]
    longest = round(Nights.work_s * 1.5 * (1 + max(SLACKS)))
    scene = Scene(parameters, events, longest, rng.uniform(20.0, 26.0, count))
    error = rng.uniform(0.85, 1.15, (count, 2))
    return Nights(scene, shares, mix, slack, error, np.full(count, np.inf))


def _shares(rng: np.random.Generator, mix: float) -> Floats:
    """Of the blocks, around the mix and with its mean: a plan has stretches of longer and of shorter prompts."""
    if mix in (0.0, 1.0):
        same: Floats = np.full(_BLOCKS, mix)
        return same
    drawn = rng.beta(3 * mix, 3 * (1 - mix), _BLOCKS)
    shares: Floats = np.clip(drawn + mix - drawn.mean(), 0, 1)
    return shares


class Blocks:
    """The work of the nights: `before` tells the plants what they are at, and notes when each was through, and what it
    had drawn at its deadline."""

    def __init__(self, of: Nights) -> None:
        self.of = of
        count, self._blocks = of.shares.shape
        self._errors = of.cost_error
        totals = of.shares.mean(axis=1), 1 - of.shares.mean(axis=1)
        self._planned = of.work_s * (totals[0] * of.cost_error[:, 0] + totals[1] * of.cost_error[:, 1])
        self.finished_s, self.energy_j = np.full(count, np.inf), np.full(count, np.nan)
        self._done: list[Floats] = []

    def at(self, plant: Plant) -> NDArray[np.int64]:
        """The block that each plant is in; `blocks` when it is through."""
        done = plant.prefill_work + plant.decode_work
        block: NDArray[np.int64] = np.minimum(done / self.of.work_s * self._blocks + 1e-9, self._blocks).astype(np.int64)
        return block

    def before(self, plant: Plant) -> None:
        at = self.at(plant)
        through = at >= self._blocks
        share = np.take_along_axis(self.of.shares, np.minimum(at, self._blocks - 1)[:, None], axis=1)[:, 0]
        prefill, decode = plant.rates()
        slow = share / prefill, (1 - share) / decode
        plant.prefill = slow[0] / (slow[0] + slow[1])
        plant.sequences = np.where(through, 0.0, 1.0)
        self.finished_s = np.where(through & np.isinf(self.finished_s), plant.time_s, self.finished_s)
        due = (plant.time_s >= self.of.deadline_s - 1e-6) & np.isnan(self.energy_j)
        self.energy_j = np.where(due, plant.sensors.energy_j, self.energy_j)

    def loads(self, plant: Plant, second: int) -> list[Load]:
        of, errors = self.of, self._errors
        done = (plant.prefill_work * errors[:, 0] + plant.decode_work * errors[:, 1]) / self._planned
        self._done = [*self._done[-_RATE_OVER_S:], done]
        rate = (done - self._done[0]) / max(len(self._done) - 1, 1)
        at = np.minimum(self.at(plant), self._blocks - 1)
        ahead = of.shares[np.arange(len(at)), np.minimum(at + 1, self._blocks - 1)]
        left = np.where(np.isfinite(of.deadline_s), of.deadline_s - plant.time_s, np.nan)
        rows = (plant.running, plant.prefill, np.maximum(ahead, plant.prefill), np.minimum(done, 1), rate, left)
        return [
            Load(round(r * FULL_SEQS), FULL_SEQS, p if r else None, a, d, v, None if np.isnan(s) else s)
            for r, p, a, d, v, s in zip(*(row.tolist() for row in rows), strict=True)
        ]


@dataclass(frozen=True)
class Spent:
    """Energy until the deadline, J, when the work was done, s, and the highest temperature of the die, °C."""

    energy_j: Floats
    finished_s: Floats
    peak_c: Floats

    @staticmethod
    def joined(parts: "Sequence[Spent]") -> "Spent":
        return Spent(*(np.concatenate([getattr(part, name) for part in parts]) for name in Spent.__dataclass_fields__))


def full_speed_s(of: Nights) -> Floats:
    """How long each night takes when nothing holds the card back but itself."""
    blocks = Blocks(of)
    simulate(of.scene, CONTROLLERS["hardware only"], blocks)
    return blocks.finished_s


def with_deadlines(of: Nights, full_s: Floats) -> Nights:
    return replace(of, deadline_s=np.ceil(full_s * (1 + of.slack)))


ORACLE = "oracle"


def run_nights(of: Nights, controller: str) -> Spent:
    blocks = Blocks(of)
    if controller == ORACLE:
        outcome = _at_clocks(of, blocks, best_clocks(of))
    else:
        outcome = simulate(of.scene, CONTROLLERS[controller], blocks)[0]
    return Spent(blocks.energy_j, blocks.finished_s, outcome.peak_c)


def _at_clocks(of: Nights, blocks: Blocks, clocks: Floats) -> Outcome:
    room = of.scene.room()
    plant = room.plant
    rows = np.arange(len(plant))

    def before() -> None:
        plant.lock = clocks[rows, np.minimum(blocks.at(plant), clocks.shape[1] - 1)]

    return run_scene(of.scene, room, blocks, lambda second: None, before)[0]


def best_clocks(of: Nights, margin_s: float = 0.5) -> Floats:
    """The clock for each block, as a share of the highest, with the least energy by the deadline, from true curves; shape
    (plants, blocks). Each second costs a price, the same in all blocks of a night (the multiplier of the deadline): a block
    is done at the clock where power over idle and price, times its time, are least; the price is as low as the deadline
    allows. Temperatures, for the leakage, are those of the long run."""
    grid = np.linspace(0.2, 1.0, 321)
    seconds, joules, idle_w = _costs(of, grid)
    limit = of.deadline_s - margin_s
    low, high = np.zeros(len(limit)), np.full(len(limit), 20.0) * [one.default_w for one in of.scene.parameters]
    chosen = _choose(seconds, joules, idle_w, high)
    for step in range(40):
        price = low if step == 0 else (low + high) / 2
        clocks = _choose(seconds, joules, idle_w, price)
        takes = np.take_along_axis(seconds, clocks[:, :, None], axis=2)[:, :, 0].sum(axis=1)
        fits = takes <= limit
        chosen = np.where(fits[:, None], clocks, chosen)
        high = np.where(fits, price, high)
        low = np.where(fits, low, price)
    clocks_of: Floats = grid[chosen]
    return clocks_of


def _choose(seconds: Floats, joules: Floats, idle_w: Floats, price: Floats) -> NDArray[np.int64]:
    cost = joules + (price - idle_w)[:, None, None] * seconds
    best: NDArray[np.int64] = np.argmin(cost, axis=2)
    return best


def _costs(of: Nights, grid: Floats) -> tuple[Floats, Floats, Floats]:
    """Seconds and joules of each block at each clock, shape (plants, blocks, clocks), inf where the power limit is in the
    way; and the power of an idle card, shape (plants,)."""
    plant = Plant(of.scene.parameters, of.scene.inlet_c)
    resistance = np.array([one.steady_r for one in of.scene.parameters])
    idle_w = _settled(plant, plant.min_clock, resistance)
    plant.sequences[:] = 1.0
    work = of.work_s / of.shares.shape[1]
    shape = (*of.shares.shape, len(grid))
    seconds, joules = np.empty(shape), np.empty(shape)
    for column, clock in enumerate(grid):
        clocks = np.full(len(plant), clock)
        prefill, decode = plant.speed(clocks)
        for block in range(of.shares.shape[1]):
            share = of.shares[:, block]
            per_work = share / prefill + (1 - share) / decode
            plant.prefill = share / prefill / per_work
            watts = _settled(plant, clocks, resistance)
            seconds[:, block, column] = work * per_work
            joules[:, block, column] = np.where(watts > plant.limit_w, np.inf, work * per_work * watts)
    return seconds, joules, idle_w


def _settled(plant: Plant, clock: Floats, resistance: Floats) -> Floats:
    """Power in the long run, with the leakage of the temperature that it makes."""
    plant.die_c = plant.inlet_c + 0.5 * resistance * plant.limit_w
    for _ in range(6):
        watts = plant.power(clock)
        plant.die_c = plant.inlet_c + resistance * watts
    return watts
