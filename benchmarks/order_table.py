"""What the measured rounds of the orders say: the table, and the goals that are met."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.rig import Interval, Result, interval, result

Measured = dict[str, dict[str, Any]]
"""By suite: its facts, and under "rounds" for each order a list of what each round counted and took."""
SHOWN = ("arrival", "sort", "buckets", "ours", "ideal", "ours, copies once")


def ratios(suite: dict[str, Any], above: str, below: str, what: str = "seconds") -> list[float]:
    """Seconds of one order over those of another, a round each; `what` is seconds, or cpu, those of the processor."""
    pairs = zip(suite["rounds"][above], suite["rounds"][below], strict=True)
    return [one[what] / other[what] for one, other in pairs]


def print_table(measured: Measured) -> None:
    """One line for each order of each suite: what it computed, its cached tokens by the optimum, its time by ours."""
    heads = f"{'steps':>6} {'cached':>7} {'/optimum':>8} {'preempted':>9} {'seconds':>8}"
    lines = [f"{'suite':5} {'order':18} {heads}  time / ours"]
    for name, suite in measured.items():
        lines += [_line(name, suite, order) for order in SHOWN if order in suite["rounds"]]
        noise = interval(ratios(suite, "ours again", "ours"))
        size = f"{suite['requests']} requests, {suite['prompt_tokens']} + {suite['output_tokens']} tokens"
        lines.append(f"{name:5} noise: ours / ours {noise}; {size}, {suite['num_blocks']} blocks")
    sys.stdout.write("\n".join(lines) + "\n")


def print_counts(measured: Measured) -> None:
    """One line for each order of each suite on the simulated engine: what it computed, and its time by a model of steps."""
    heads = f"{'steps':>8} {'computed':>9} {'/ideal':>7} {'cached/optimum':>14} {'preempted':>9}  time / ours"
    lines = [f"{'suite':5} {'order':18} {heads}"]
    for name, suite in measured.items():
        least = _computed(suite, "ideal")
        for order in (order for order in SHOWN if order in suite["rounds"]):
            run, computed = suite["rounds"][order][0], _computed(suite, order)
            cached = run["hit"] / max(1, suite["cacheable_tokens"])
            counts = f"{run['steps']:8} {computed:9} {computed / least:7.3f} {cached:14.4f} {run['preemptions']:9}"
            counts += f"  {ratios(suite, order, 'ours')[0]:.4f}"
            lines.append(f"{name:5} {order:18} {counts}")
    sys.stdout.write("\n".join(lines) + "\n")


def _computed(suite: dict[str, Any], order: str) -> int:
    """Prompt tokens that had to be computed."""
    run = suite["rounds"][order][0]
    return int(run["queried"] - run["hit"])


def _line(name: str, suite: dict[str, Any], order: str) -> str:
    runs = suite["rounds"][order]
    cached = runs[0]["hit"] / max(1, suite["cacheable_tokens"])
    seconds = float(np.median([run["seconds"] for run in runs]))
    ratio = interval(ratios(suite, order, "ours"))
    counts = f"{runs[0]['steps']:6} {runs[0]['hit']:7} {cached:8.4f} {runs[0]['preemptions']:9}"
    return f"{name:5} {order:18} {counts} {seconds:8.2f}  {ratio}"


def results(measured: Measured) -> list[Result]:
    """Goals 2, 3 and 4, as far as the suites for them were measured."""
    found = [one for name, suite in measured.items() for one in _of_suite(name, suite)]
    if set(measured) >= {"S1", "S2", "S3", "S4", "S5"}:
        for order, target in (("buckets", 1.25), ("sort", 1.15)):
            geomean = interval(_geomeans(measured, order))
            passed = geomean.low >= target
            found.append(_result("4", f"S1-S5: geomean of speed, ours / {order}", geomean, f">= {target}", passed))
    return found


def simulated_results(measured: Measured) -> list[Result]:
    """Goal 4 on the simulated engine, without noise and without an interval."""
    found = []
    for order, wanted in (("buckets", 1.25), ("sort", 1.15)):
        speeds = {name: ratios(suite, order, "ours")[0] for name, suite in measured.items()}
        for name, speed in speeds.items():
            target, passed = (">= 0.99", speed >= 0.99) if name == "S3" else ("-", True)
            size = measured[name]["requests"]
            measure = f"{name}, simulated, CPU's steps: speed, ours / {order}"
            found.append(_result("4", measure, speed, target, passed, requests=size))
        mean = float(np.exp(np.mean(np.log(list(speeds.values())))))
        if len(speeds) == 5:
            measure = f"S1-S5, simulated, CPU's steps: geomean of speed, ours / {order}"
            found.append(_result("4", measure, mean, f">= {wanted}", mean >= wanted))
    return found


def _of_suite(name: str, suite: dict[str, Any]) -> list[Result]:
    noise = str(interval(ratios(suite, "ours again", "ours")))
    cached = suite["rounds"]["ours"][0]["hit"] / max(1, suite["cacheable_tokens"])
    target, wanted = {"S1": (">= 3", 3.0), "S3": (">= 0.99", 0.99)}.get(name, ("-", 0.0))
    found = []
    if "arrival" in suite["rounds"]:
        speed_up = interval(ratios(suite, "arrival", "ours"))
        found.append(_result("2", f"{name}: speed, ours / arrival", speed_up, target, speed_up.low >= wanted, aa=noise))
    if "ideal" in suite["rounds"]:
        ideal = interval(ratios(suite, "ideal", "ours"))
        found.append(_result("3b", f"{name}: ideal time / ours", ideal, ">= 0.97", ideal.low >= 0.97, aa=noise))
    if suite["cacheable_tokens"]:
        found.append(_result("3a", f"{name}: cached tokens, ours / optimum", cached, ">= 0.995", cached >= 0.995))
    for order in ("buckets", "sort"):
        speed = interval(ratios(suite, order, "ours"))
        detail = {"aa": noise, "requests": suite["requests"]}
        if "cpu" in suite["rounds"]["ours"][0]:
            detail["cpu"] = str(interval(ratios(suite, order, "ours", "cpu")))
        passed = speed.low >= wanted or name != "S3"
        found.append(
            _result("4", f"{name}: speed, ours / {order}", speed, target if name == "S3" else "-", passed, **detail)
        )
    return found


def _result(goal: str, measure: str, value: Interval | float, target: str, passed: bool, **detail: object) -> Result:
    return result("order", goal, measure, value, target, passed, **detail)


def _geomeans(measured: Measured, order: str) -> Sequence[float]:
    """A round each, over all suites."""
    each = [ratios(suite, order, "ours") for suite in measured.values()]
    logs = np.log([of[: min(map(len, each))] for of in each])
    return [float(value) for value in np.exp(logs.mean(axis=0))]
