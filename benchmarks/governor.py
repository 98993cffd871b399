"""Goals 20-22: the governor on random simulated cards, against no control, thresholds, and what the omniscient can do.

`python -m benchmarks.governor [--plants 1000] [--parts 21,22,20,21b] [--record] [--plot]`. Intervals are bootstrapped over
plants.
"""

import argparse
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from os import sched_getaffinity
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks import deadlines, faults, hot_nights
from benchmarks.deadlines import MIXES, ORACLE, SLACKS, Nights, Spent, nights
from benchmarks.faults import FAULTS, Injected, Verdict
from benchmarks.hot_nights import OBSERVING, OPTIMUM, SET_POINT_C, UNTOLD, hot_scene
from benchmarks.optimum import held_of_most
from benchmarks.rig import Interval, Result, record, result
from benchmarks.rooms import LINE_C, Outcome, Scene, Schedule
from tasks.governor.cards import CARDS

Floats = NDArray[np.float64]
_In = TypeVar("_In")
_Out = TypeVar("_Out")

COMPARED = ("hardware only", "hysteresis 80/75", "hysteresis 76/72", "governor", OPTIMUM)
SPENDERS = ("hysteresis 80/75", "hysteresis 76/72", "governor", ORACLE)
_CARDS = "/".join(CARDS)
_HEAD = (
    "| controller | peak - set point, max / p99 | s above 80, mean / max | plants above 80 | s above slowdown | "
    "work / optimum, mean / min | J per work / optimum | writes/h |"
)


def mean(values: Floats, *, draws: int = 10_000, seed: int = 0) -> Interval:
    """The mean over plants, and how sure it is (percentile bootstrap)."""
    rng = np.random.default_rng(seed)
    means = np.array([values[rng.integers(0, len(values), len(values))].mean() for _ in range(draws)])
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(float(values.mean()), float(low), float(high))


def spread_out(work: Callable[[_In], _Out], parts: Sequence[_In]) -> list[_Out]:
    """In as many processes as there are cores, in order. What the governor warns of is not shown."""
    with ProcessPoolExecutor(len(sched_getaffinity(0)), get_context("forkserver"), logging.disable) as pool:
        return list(pool.map(work, parts))


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def hot(plants: int) -> list[Result]:
    """Goal 21."""
    found = _outcomes(hot_scene(plants), COMPARED)
    binds = found["hardware only"].peak_c > SET_POINT_C
    optimum = found[OPTIMUM]
    say(f"\nhot nights: {plants} plants ({_CARDS}), R and C ± 40 %, curves ± 15 %; heat binds on {binds.sum()}")
    say(_HEAD)
    for name in COMPARED:
        say(_row(name, found[name], optimum, binds))
    return _judged("governor", found["governor"], optimum, binds)


def _outcomes(scene: Scene, names: Iterable[str]) -> dict[str, Outcome]:
    count = len(scene.parameters)
    size = max(1, min(250, -(-count // len(sched_getaffinity(0)))))
    jobs = hot_nights.jobs_of(scene, list(names), size)
    parts = spread_out(hot_nights.run, jobs)
    found: dict[str, list[Outcome]] = {}
    for job, part in zip(jobs, parts, strict=True):
        found.setdefault(job.controller, []).append(part)
    return {name: Outcome.joined(parts) for name, parts in found.items()}


def _row(name: str, one: Outcome, optimum: Outcome, binds: NDArray[np.bool_]) -> str:
    above = one.peak_c[binds] - SET_POINT_C
    share = (one.work / optimum.work)[binds]
    per_work = ((one.energy_j / one.work) / (optimum.energy_j / optimum.work))[binds]
    return (
        f"| {name} | {above.max():.2f} / {np.quantile(above, 0.99):.2f} | {one.above_line_s[binds].mean():.1f} / "
        f"{one.above_line_s.max():.1f} | {(one.above_line_s > 0).sum()} | {one.above_slowdown_s.sum():.1f} | "
        f"{mean(share)} / {share.min():.4f} | {per_work.mean():.4f} | {one.writes[binds].mean():.0f} |"
    )


def _judged(name: str, one: Outcome, optimum: Outcome, binds: NDArray[np.bool_]) -> list[Result]:
    above, share = one.peak_c - SET_POINT_C, (one.work / optimum.work)[binds]
    about = {"plants": len(above), "binds": int(binds.sum()), "controller": name}
    p99 = float(np.quantile(above, 0.99))
    worst, slowed, throughput = float(above.max()), float(one.above_slowdown_s.sum()), mean(share)
    writes, above_80 = mean(one.writes[binds]), float(one.above_line_s.sum())
    passed = throughput.low >= 0.98
    return [
        _result("21", f"{name}: peak above set point, °C", worst, "<= 1.0", worst <= 1.0, p99=p99, **about),
        _result("21", f"{name}: s above slowdown", slowed, "0", slowed == 0, above_80_s=above_80, **about),
        _result("21", f"{name}: work / constrained optimum", throughput, ">= 0.98", passed, least=share.min(), **about),
        _result("21", f"{name}: writes per hour", writes, "-", True, **about),
    ]  # fmt: skip


def apart(plants: int) -> list[Result]:
    """On fewer plants: when the plan is not known, when the curves are further from what is common, and without the right to
    set the card."""
    results, plants = [], max(plants // 5, 10)
    cases = (
        ("the plan is not told", 0.15, UNTOLD),
        ("curves ± 30 %", 0.3, "governor"),
        ("curves ± 40 %", 0.4, "governor"),
        ("sequences alone", 0.15, OBSERVING),
    )
    for words, mismatch, name in cases:
        found = _outcomes(hot_scene(plants, mismatch=mismatch, seed=211), ("hardware only", name, OPTIMUM))
        binds = found["hardware only"].peak_c > SET_POINT_C
        say(f"{words}: heat binds on {binds.sum()} of {plants}")
        say(_row(name, found[name], found[OPTIMUM], binds))
        judged = _judged(name, found[name], found[OPTIMUM], binds)[:3]
        results += [replace(one, measure=f"{words}, {one.measure}") for one in judged]
    return results + _near_most(20)


def _near_most(plants: int) -> list[Result]:
    """How near what is called the optimum here is to the most work that can be done with the whole night known."""
    scene = hot_scene(plants, seed=212)
    size = -(-plants // len(sched_getaffinity(0)))
    parts = [scene.part(at, min(at + size, plants)) for at in range(0, plants, size)]
    ratios = np.concatenate(spread_out(_held_of_most, parts))
    solved = np.isfinite(ratios)
    ratio = mean(ratios[solved])
    say(f"{OPTIMUM} / linear program over the night: {ratio}")
    return [
        _result(
            "21", f"{OPTIMUM} / linear program over the night", ratio, "-", True, plants=plants, solved=int(solved.sum())
        )
    ]


def _held_of_most(scene: Scene) -> Floats:
    return held_of_most(scene, SET_POINT_C, Schedule(scene))


def energy(plants: int) -> list[Result]:
    """Goal 20."""
    of = nights(max(plants // (len(MIXES) * len(SLACKS)), 5))
    full: Floats = np.concatenate(spread_out(deadlines.full_speed_s, _parts(of)))
    of = deadlines.with_deadlines(of, full)
    of = replace(of, scene=replace(of.scene, seconds=int(of.deadline_s.max()) + 2))
    parts = _parts(of)
    names = ("hardware only", *SPENDERS)
    spent = spread_out(_spend, [(part, name) for name in names for part in parts])
    found = {name: Spent.joined(spent[at * len(parts) : (at + 1) * len(parts)]) for at, name in enumerate(names)}
    say(f"\nenergy at equal deadline: {len(of.mix)} plants; joules / no control (and late), ours / oracle")
    results = []
    for mix_name, mix in MIXES.items():
        for slack in SLACKS:
            results += _compared(
                of, found, (of.mix == mix) & (of.slack == slack), f"{mix_name}, {slack:.0%} slack", mix <= 0.3
            )
    return results


def _parts(of: Nights) -> list[Nights]:
    count, cores = len(of.mix), len(sched_getaffinity(0))
    size = -(-count // cores)
    return [of.part(at, min(at + size, count)) for at in range(0, count, size)]


def _spend(job: tuple[Nights, str]) -> Spent:
    return deadlines.run_nights(*job)


def _compared(of: Nights, found: dict[str, Spent], group: NDArray[np.bool_], what: str, judged: bool) -> list[Result]:
    """Against no control, the better of the thresholds, and the oracle. Only decode-heavy nights have the goals' targets."""
    joules = {name: one.energy_j[group] for name, one in found.items()}
    late = {name: int((one.finished_s > of.deadline_s)[group].sum()) for name, one in found.items()}
    ours, none = joules["governor"], joules["hardware only"]
    threshold = np.minimum(joules["hysteresis 80/75"], joules["hysteresis 76/72"])
    ratios = {
        "no control": (ours / none, 0.75),
        "hysteresis": (ours / threshold, 0.92),
        "oracle": (ours / joules[ORACLE], 1.02),
    }
    say(f"{what}: " + "; ".join(f"{name} {np.mean(one / none):.3f} ({late[name]} late)" for name, one in joules.items()))
    about: dict[str, Any] = {
        "plants": int(group.sum()),
        "late": late["governor"],
        "bound": float(np.mean(joules[ORACLE] / none)),
    }
    results = []
    for name, (values, target) in ratios.items():
        found_mean = mean(values)
        met = found_mean.high <= target and late["governor"] == 0
        say(f"    ours / {name}: {found_mean}, max {values.max():.4f}")
        goal = f"<= {target}" if judged else "-"
        results.append(_result("20", f"{what}: energy, ours / {name}", found_mean, goal, met or not judged, **about))
    return results


def broken(plants: int) -> list[Result]:
    """Goal 22: at least 200 faults."""
    of = faults.injected(max(plants // len(FAULTS), 20))
    size = -(-len(of.names) // len(sched_getaffinity(0)))
    parts: list[Injected] = [of.part(at, min(at + size, len(of.names))) for at in range(0, len(of.names), size)]
    verdict = Verdict.joined(spread_out(faults.run_faults, parts))
    say(f"\nfaults: {len(of.names)} injected, each on a hot card of its own")
    say("| fault | safe | peak °C | periods until safe | restored |\n| --- | --- | --- | --- | --- |")
    results, names = [], np.array(verdict.names)
    for name in FAULTS:
        own = names == name
        safe, peak, periods = verdict.safe[own], float(verdict.peak_c[own].max()), float(verdict.periods[own].max())
        say(f"| {name} | {safe.sum()} of {own.sum()} | {peak:.2f} | {periods:g} | {verdict.restored[own].sum()} |")
        share = mean(safe.astype(float))
        results.append(
            _result("22", f"{name}: share safe", share, "1", bool(safe.all()), faults=int(own.sum()), peak_c=peak)
        )
    return results


def _result(goal: str, measure: str, value: Interval | float, target: str, passed: bool, **detail: Any) -> Result:
    return result("governor", goal, measure, value, target, bool(passed), **detail)


PARTS: dict[str, Callable[[int], list[Result]]] = {"20": energy, "21": hot, "21b": apart, "22": broken}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plants", type=int, default=1000)
    parser.add_argument("--parts", default="21,22,20,21b")
    parser.add_argument("--record", action="store_true", help="write the results down")
    parser.add_argument("--plot", action="store_true", help="draw docs/governor-*.png, and nothing else")
    options = parser.parse_args()
    if options.plot:
        from benchmarks.governor_plots import draw

        draw()
        return
    results: list[Result] = []
    for part in options.parts.split(","):
        found = PARTS[part](options.plants)
        if options.record:
            record(found)
        results += found
    missed = [one for one in results if not one.passed]
    say(f"\nline {LINE_C:g} °C, set point {SET_POINT_C:g} °C; {len(results)} results, {len(missed)} missed")
    for one in missed:
        say(f"missed: goal {one.goal}, {one.measure}: {one.value:.4g} [{one.low:.4g}, {one.high:.4g}], {one.target}")


if __name__ == "__main__":
    main()
