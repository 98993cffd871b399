"""What every benchmark shares: ratios with their interval, and where results are written down."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

REPOSITORY = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
LOG = Path(__file__).parent / "LOG.md"


@dataclass(frozen=True, slots=True)
class Interval:
    """A median and the ends of its 95 % bootstrap interval."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.4f} [{self.low:.4f}, {self.high:.4f}]"


def interval(values: Sequence[float], *, draws: int = 10_000, seed: int = 0) -> Interval:
    """The median of some measurements, and how sure it is (percentile bootstrap)."""
    data = np.asarray(values, dtype=np.float64)
    rng = np.random.default_rng(seed)
    medians = np.median(rng.choice(data, (draws, len(data))), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return Interval(float(np.median(data)), float(low), float(high))


@dataclass(frozen=True, slots=True)
class Result:
    """One measured number. `goal` names the row of the list of goals, `passed` is judged by the bad end."""

    benchmark: str
    goal: str
    measure: str
    value: float
    low: float
    high: float
    target: str
    passed: bool
    detail: dict[str, Any]


def result(
    benchmark: str, goal: str, measure: str, found: Interval | float, target: str, passed: bool, **detail: Any
) -> Result:
    """A measured interval, or a number that was counted."""
    of = found if isinstance(found, Interval) else Interval(found, found, found)
    return Result(benchmark, goal, measure, of.median, of.low, of.high, target, passed, detail)


def record(results: Sequence[Result]) -> None:
    """Print the results, write them to a Parquet file of their own, and add them to the log."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    rows = [{"at": at, "machine": _machine(), "commit": _commit(), **asdict(one)} for one in results]
    table = pa.Table.from_pylist([{**row, "detail": json.dumps(row["detail"], default=str)} for row in rows])
    RESULTS.mkdir(exist_ok=True)
    pq.write_table(table, RESULTS / f"{results[0].benchmark}-{at.replace(':', '')}.parquet")
    lines = [_line(at, one) for one in results]
    sys.stdout.write("\n".join(lines) + "\n")
    with LOG.open("a", encoding="utf-8") as log:
        log.write("\n".join(lines) + "\n")


def _line(at: str, one: Result) -> str:
    span = f"{one.value:.4g}" if one.low == one.high else f"{one.value:.4g} [{one.low:.4g}, {one.high:.4g}]"
    verdict = "met" if one.passed else "**missed**"
    detail = ", ".join(f"{name} {_short(value)}" for name, value in one.detail.items())
    return f"| {at[:16]} | {one.benchmark} | {one.goal} | {one.measure} | {span} | {one.target} | {verdict} | {detail} |"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _machine() -> str:
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    return f"{len(os.sched_getaffinity(0))} x {model}"


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def command(*arguments: str) -> list[str]:
    """The `nightbatch` command of this checkout."""
    return [sys.executable, "-P", "-m", "flows.cli", *arguments]
