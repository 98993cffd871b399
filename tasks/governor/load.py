"""The engine's reports to what the governor goes by: how much of its time is prefill, how far the work is, how fast."""

from collections import deque
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from tasks.core.counters import EngineCounters
from tasks.core.step import PREFILL_STEPS
from tasks.governor.setting import Load

_RECENT_S = 5.0
_PACE_S = 120.0
_AHEAD_S = 60.0
_COUNTERS = ("steps", "running", "waiting", "kv_use", "prefix_queries", "prefix_hits", "preemptions", "prefilled_tokens")


class Engine:
    """What the reports of one session have said. `shares` is the plan's share of prefill, for equal slices of its
    `num_sequences`; `finish_s` is when all must be done, by the clock that the reports are stamped with."""

    def __init__(self, num_sequences: int, shares: Sequence[float], finish_s: float | None) -> None:
        self._total = max(num_sequences, 1)
        self._shares = shares
        self._finish_s = finish_s
        self._recent: deque[tuple[float, int, int]] = deque()
        self._ended: deque[tuple[float, int]] = deque()
        self._last: Mapping[str, Any] = {}
        self._heard_s: float | None = None
        self._lives = 0

    def hear(self, report: Mapping[str, Any], now_s: float) -> None:
        """A report of the engine child's; a new life begins its sums anew."""
        if report.get("phase") == "loading":
            self._lives += 1
            self._recent.clear()
        if "found_finished" not in report:
            return
        self._last, self._heard_s = report, now_s
        if "prefilled_tokens" in report:
            self._recent.append((now_s, int(report["steps"]), int(report["prefilled_tokens"])))
            _forget(self._recent, now_s - _RECENT_S)
        self._ended.append((now_s, self._num_ended))
        _forget(self._ended, now_s - _PACE_S)

    @property
    def _num_ended(self) -> int:
        return sum(int(self._last.get(name, 0)) for name in ("found_finished", "finished", "failed"))

    @property
    def _running(self) -> int:
        return int(self._last.get("running", 0)) + int(self._last.get("waiting", 0))

    def load(self, now_s: float) -> Load:
        rate = self._rate()
        begun = min((self._num_ended + self._running) / self._total, 1.0)
        return Load(
            running=self._running,
            max_num_seqs=int(self._last.get("max_num_seqs", 0)),
            prefill=self._prefill(),
            prefill_ahead=share_ahead(self._shares, begun, (rate or 0.0) * _AHEAD_S),
            done=min(self._num_ended / self._total, 1.0),
            rate=rate,
            seconds_left=None if self._finish_s is None else self._finish_s - now_s,
        )

    def counters(self) -> EngineCounters | None:
        """What the last report counted, for the record; None before there was one."""
        if "seconds" not in self._last:
            return None
        known = {name: self._last.get(name) for name in _COUNTERS}
        life, generated = max(self._lives - 1, 0), self._last.get("generated_tokens")
        return EngineCounters(life=life, counted_s=self._heard_s, generated_tokens=generated, **known)

    def _prefill(self) -> float | None:
        """The share of recent time that went into prompts."""
        if len(self._recent) < 2:
            return None
        (_, first_steps, first_tokens), (_, steps, tokens) = self._recent[0], self._recent[-1]
        spent = (tokens - first_tokens) * PREFILL_STEPS
        return spent / (spent + steps - first_steps) if steps > first_steps else None

    def _rate(self) -> float | None:
        if len(self._ended) < 2 or self._ended[-1][0] <= self._ended[0][0]:
            return None
        (began_s, before), (now_s, ended) = self._ended[0], self._ended[-1]
        return (ended - before) / self._total / (now_s - began_s)


def _forget(rows: deque[Any], before_s: float) -> None:
    """Keep one row that is older, so that what is kept spans the time."""
    while len(rows) > 2 and rows[1][0] <= before_s:
        rows.popleft()


def share_ahead(shares: Sequence[float], begun: float, ahead: float) -> float | None:
    """The mean of the slices from the share `begun` of all sequences on, over the share `ahead` of them."""
    if not shares:
        return None
    first = min(int(begun * len(shares)), len(shares) - 1)
    last = max(min(ceil((begun + ahead) * len(shares)), len(shares)), first + 1)
    return sum(shares[first:last]) / (last - first)
