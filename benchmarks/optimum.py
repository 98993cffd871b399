"""How much work a die that must stay at or below a temperature can do at most, with everything known in advance: a linear
program over the whole night, to see how near the omniscient controller that only looks one step ahead comes to it.

Power is free in each interval of 2 s; work is concave in it (the hull of what the clocks give). Leakage is that of the
temperatures which the one-step controller had, the heat model exact for constant power.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm
from scipy.optimize import linprog
from scipy.sparse import coo_array
from scipy.spatial import ConvexHull

from benchmarks.rooms import Scene, Trace, Work, hold
from tasks.governor.cards import PlantParameters
from tasks.governor.plant import Plant

Floats = NDArray[np.float64]

STEP_S = 2


def held_of_most(scene: Scene, set_c: float, work: Work) -> Floats:
    """Work under the one-step controller, of the most that can be done; of each plant."""
    held, trace = hold(scene, set_c, work)
    most = []
    for at in range(len(scene.parameters)):
        own = Trace(*(getattr(trace, name)[:, at : at + 1] for name in Trace.__dataclass_fields__))
        most.append(most_work(scene.part(at, at + 1), set_c, own))
    ratios: Floats = held.work / np.array(most)
    return ratios


def most_work(scene: Scene, set_c: float, held: Trace) -> float:
    """Of the scene's one plant, in full-clock seconds; `held` is what the one-step controller made of it. NaN where the
    solver finds no answer that it trusts."""
    (card,) = scene.parameters
    inputs = _inputs(scene)
    count = len(inputs[0])
    # Variables: power, work, die and sink at the end, each a block of `count` intervals.
    plant = scene.room().plant
    above, right = _work_below_hulls(plant, held, *inputs[2:])
    same, equal = _heat(card, (float(plant.die_c[0]), float(plant.sink_c[0])), *inputs[:2])
    power = [_power_bounds(plant, float(share), bool(busy)) for share, busy in zip(*inputs[2:], strict=True)]
    bounds = power + [(None, None)] * count + [(None, set_c)] * count + [(None, None)] * count
    gain = np.concatenate([np.zeros(count), -np.ones(count), np.zeros(2 * count)])
    for method in ("highs-ds", "highs-ipm"):
        found = linprog(gain, above, right, same, equal, bounds, method=method)
        if found.success:
            return float(-found.fun)
    return float("nan")


def _work_below_hulls(plant: Plant, held: Trace, prefill: Floats, busy: Floats) -> tuple[coo_array, list[float]]:
    """Work of each interval is below every line of its hull."""
    count, rows, right = len(prefill), list[tuple[int, int, float]](), list[float]()
    hulls: dict[tuple[float, bool, int], Floats] = {}
    for t in range(count):
        die_c = float(held.die_c[min(t * STEP_S, len(held.die_c) - 1), 0])
        key = (round(float(prefill[t]), 4), bool(busy[t]), round(die_c / 4))
        if key not in hulls:
            hulls[key] = _hull(plant, *key)
        for slope, offset in hulls[key]:
            rows += [(len(right), count + t, 1.0), (len(right), t, -slope * STEP_S)]
            right.append(offset * STEP_S)
    return _sparse(rows, len(right), 4 * count), right


def _heat(card: PlantParameters, start: tuple[float, float], inlet: Floats, fan: Floats) -> tuple[coo_array, list[float]]:
    """Die and sink at the end of each interval, by those at its beginning, its power and its inlet."""
    count, rows, right = len(inlet), list[tuple[int, int, float]](), list[float]()
    matrices = {one: _matrices(card, one) for one in set(fan.tolist())}
    for t in range(count):
        moved, heated, cooled = matrices[fan[t]]
        for node in (0, 1):
            row, known = len(right), cooled[node] * inlet[t]
            rows += [(row, (2 + node) * count + t, 1.0), (row, t, -heated[node])]
            if t:
                rows += [(row, (2 + other) * count + t - 1, -moved[node, other]) for other in (0, 1)]
            else:
                known += moved[node, 0] * start[0] + moved[node, 1] * start[1]
            right.append(known)
    return _sparse(rows, len(right), 4 * count), right


def _inputs(scene: Scene) -> tuple[Floats, Floats, Floats, Floats]:
    """Inlet, fan factor, share of prefill and whether anything runs, in the middle of each interval."""
    room = scene.room()
    found = []
    for _ in range(scene.seconds // STEP_S):
        room.plant.steps += 5 * STEP_S
        room.begin_step()
        found.append([float(of[0]) for of in (room.plant.inlet_c, room.plant.fan, room.plant.prefill, room.plant.sequences)])
        room.plant.steps += 5 * STEP_S
    return tuple(np.array(found).T)  # type: ignore[return-value]


def _matrices(card: PlantParameters, fan: float) -> tuple[Floats, Floats, Floats]:
    """[die, sink] after an interval: of what they were, of power, of the inlet."""
    die, sink = card.die_tau_s / card.die_r, card.sink_tau_s / card.sink_r
    inward, outward = 1 / card.die_r, 1 / (card.sink_r * fan)
    rate = np.zeros((4, 4))
    rate[0] = -inward / die, inward / die, 1 / die, 0
    rate[1] = inward / sink, -(inward + outward) / sink, 0, outward / sink
    step: Floats = expm(rate * STEP_S)
    return step[:2, :2], step[:2, 2], step[:2, 3]


def _set(plant: Plant, prefill: float, busy: bool) -> None:
    plant.prefill[:], plant.sequences[:] = prefill, float(busy)


def _power_bounds(plant: Plant, prefill: float, busy: bool) -> tuple[float, float]:
    _set(plant, prefill, False)
    low = float(plant.power(plant.min_clock)[0])
    _set(plant, prefill, busy)
    return low, max(low, float(plant.limit_w[0]))


def _hull(plant: Plant, prefill: float, busy: bool, quarter_c: int) -> Floats:
    """Work per second is at most slope · W + offset, for each row; shape (rows, 2)."""
    if not busy:
        return np.zeros((1, 2))
    plant.die_c[:] = 4.0 * quarter_c
    _set(plant, prefill, False)
    points = [(float(plant.power(plant.min_clock)[0]), 0.0)]
    _set(plant, prefill, True)
    for clock in np.linspace(plant.min_clock[0], 1, 60):
        speeds = plant.speed(np.array([clock]))
        points.append((float(plant.power(np.array([clock]))[0]), prefill * speeds[0][0] + (1 - prefill) * speeds[1][0]))
    xy = np.array([*points, (points[-1][0] + 500.0, points[-1][1])])
    scale = np.array([1000.0, 1.0])
    normals = ConvexHull(xy / scale).equations
    upper = normals[normals[:, 1] > 1e-9]
    lines: Floats = np.stack([-upper[:, 0] / upper[:, 1] / 1000.0, -upper[:, 2] / upper[:, 1]], axis=1)
    return lines


def _sparse(entries: list[tuple[int, int, float]], rows: int, columns: int) -> coo_array:
    row, column, value = zip(*entries, strict=True)
    return coo_array((value, (row, column)), shape=(rows, columns))
