"""Telemetry: what the governor sees and does, with the engine's counters beside it, as rows of a table of the run.

A thread of its own writes them, so that no disk can hold the governor up: taking a row in costs some microseconds. A row is
in the kernel's hands a moment later and survives SIGKILL; see tasks/storage/series.py for how it becomes Parquet.
"""

import logging
import queue
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from tasks.core.counters import EngineCounters
from tasks.governor.sample import Card, Sample, Throttle
from tasks.governor.setting import Setting
from tasks.storage.layout import Run
from tasks.storage.parquet import TELEMETRY, Row
from tasks.storage.series import SeriesWriter, TakenIn, take_in

_log = logging.getLogger(__name__)

_MAX_WAITING = 8192
"""Rows that may wait for the disk, some 8 MB; more are dropped and counted."""
_CLOSE_S = 10.0
_NO_SAMPLE = dict.fromkeys(field.name for field in fields(Sample))
_NO_COUNTERS = dict.fromkeys(field.name for field in fields(EngineCounters))


def session_name(began: datetime, engine: int, pid: int) -> str:
    """What a session is called: names sort by the time at which it began."""
    return f"{began.astimezone(UTC):%Y%m%dT%H%M%S.%f}Z-{engine}-{pid}"


def take_in_telemetry(run: Run) -> TakenIn:
    """Add to the table what killed sessions of this run left behind. Raises OSError."""
    return take_in(run.telemetry_spool, run.telemetry, TELEMETRY)


class Recorder:
    """Records one session of one engine. What goes wrong with the disk is said in the log once and never raised: a run does
    not end because its temperatures cannot be written."""

    def __init__(self, run: Run, engine: int, session: str, *, part_every_s: float = 60.0) -> None:
        self._told = {"run_id": run.run_id, "session": session, "engine": engine}
        self._writer = SeriesWriter(run.telemetry_spool, run.telemetry, TELEMETRY, session, part_every_s=part_every_s)
        self._rows: queue.Queue[tuple[Row, float] | None] = queue.Queue(_MAX_WAITING)
        self._has_complained = False
        self.num_dropped = 0
        self._thread = threading.Thread(target=self._write, name="telemetry", daemon=True)
        self._thread.start()

    def record(
        self,
        time: datetime,
        time_s: float,
        *,
        card: Card | None = None,
        sample: Sample | None = None,
        setting: Setting | None = None,
        state: str | None = None,
        counters: EngineCounters | None = None,
    ) -> None:
        """One row: a moment by the wall clock and by the monotonic one, and what is known of it. Never waits."""
        row = self._told | row_of(time, time_s, card, sample, setting, state, counters)
        try:
            self._rows.put_nowait((row, time_s))
        except queue.Full:
            self.num_dropped += 1

    def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Make all of it durable; on a disk that hangs, wait for so long and no longer."""
        with suppress(queue.Full):
            self._rows.put(None, timeout=timeout_s)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            _log.warning("the disk does not take the last rows of telemetry: what the spool has of them is kept")
        if self.num_dropped:
            _log.warning("%d rows of telemetry were dropped, as the disk was too slow", self.num_dropped)

    def _write(self) -> None:
        while (item := self._rows.get()) is not None:
            try:
                self._writer.append(*item)
            except (OSError, TypeError) as error:  # the disk refuses, or a value is of a kind that nobody can write down
                self._complain(error)
        try:
            self._writer.close()
        except OSError as error:
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        if not self._has_complained:
            _log.warning("telemetry cannot be written, and the run goes on: %s", error)
            self._has_complained = True


def row_of(
    time: datetime,
    time_s: float,
    card: Card | None,
    sample: Sample | None,
    setting: Setting | None,
    state: str | None,
    counters: EngineCounters | None,
) -> dict[str, Any]:
    """A row of the table without the names of its run and session. `time_s` is the sample's own where there is one."""
    return {
        "time": time,
        "card_uuid": card and card.uuid,
        "card_index": card and card.index,
        "card_name": card and card.name,
        **(_fields(sample) if sample else _NO_SAMPLE | {"time_s": time_s}),
        "throttle": None if sample is None or sample.throttle is None else throttle_names(sample.throttle),
        "set_clock_mhz": setting and setting.clock_mhz,
        "set_power_w": setting and setting.power_w,
        "set_max_num_seqs": setting and setting.max_num_seqs,
        "state": state,
        "reason": (setting and setting.reason) or None,
        **(_fields(counters) if counters else _NO_COUNTERS),
    }


def _fields(of: Sample | EngineCounters) -> dict[str, Any]:
    """What is not a number is no reading: in a table it would be the largest one."""
    values = {name: getattr(of, name) for name in of.__slots__}
    return {name: None if isinstance(value, float) and not isfinite(value) else value for name, value in values.items()}


def throttle_names(throttle: Throttle) -> Sequence[str]:
    """The reasons in words; bits that have no name as a number."""
    names = [reason.name.lower() for reason in Throttle if reason in throttle and reason.name]
    rest = throttle & ~sum(Throttle)
    return [*names, f"0x{int(rest):x}"] if rest else names
