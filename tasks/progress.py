"""What a person sees while the night runs: a live bar on a terminal, a log line now and then elsewhere.

Everything goes to stderr; stdout belongs to results.
"""

import logging
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

_log = logging.getLogger(__name__)
_LOG_EVERY_S = 10.0


class Display(Protocol):
    """Told what is going on; used as a context manager around the whole run."""

    def note(self, text: str) -> None:
        """Something worth a line of its own."""
        ...

    def stage(self, word: str) -> None:
        """A stage of which nothing can be counted has begun."""
        ...

    def reading(self, num_rows: int, size: int, total: int) -> None:
        """So many input rows have been read, out of `size` of all `total` bytes."""
        ...

    def grouping(self, num_rows: int, total: int) -> None:
        """So many requests have been put into order."""
        ...

    def written(self, num_rows: int, total: int) -> None:
        """So many of `total` input rows have been exported."""
        ...

    def generating(self, report: Mapping[str, Any], total: int) -> None:
        """The engine's report while it works on `total` sequences."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


def finished_of(report: Mapping[str, Any]) -> int:
    """Sequences that have ended, in this session and before."""
    return int(report.get("found_finished", 0)) + int(report.get("finished", 0)) + int(report.get("failed", 0))


def rate_of(report: Mapping[str, Any]) -> float:
    """Output tokens a second in this session."""
    seconds = float(report.get("seconds", 0.0))
    return float(report.get("generated_tokens", 0)) / seconds if seconds > 0 else 0.0


class LogDisplay:
    """Log lines through `logging`, at most one every ten seconds for progress: for flows, services and pipes."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def note(self, text: str) -> None:
        _log.info("%s", text, extra={"action": "note"})

    def stage(self, word: str) -> None:
        _log.info("%s", word, extra={"action": "stage"})

    def reading(self, num_rows: int, size: int, total: int) -> None:
        if self._is_time():
            share = 100 * size / total if total else 100
            _log.info("%d rows read, %.0f %% of the input", num_rows, share, extra={"action": "ingest"})

    def grouping(self, num_rows: int, total: int) -> None:
        if self._is_time():
            _log.info("%d of %d requests put into order", num_rows, total, extra={"action": "group"})

    def written(self, num_rows: int, total: int) -> None:
        if self._is_time():
            _log.info("%d of %d rows written", num_rows, total, extra={"action": "export"})

    def generating(self, report: Mapping[str, Any], total: int) -> None:
        if not self._is_time():
            return
        done, seconds = finished_of(report), float(report.get("seconds", 0.0))
        here = done - int(report.get("found_finished", 0))
        eta = f"about {seconds * (total - done) / here:.0f} s left" if here else "no estimate yet"
        card = f", GPU {report['card']}" if report.get("card") else ""
        _log.info(
            "%d of %d answered, %.0f tokens/s, %s%s", done, total, rate_of(report), eta, card, extra={"action": "generate"}
        )

    def _is_time(self) -> bool:
        now = time.monotonic()
        due = now - self._last >= _LOG_EVERY_S
        if due:
            self._last = now
        return due

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return


class BarDisplay:
    """A live progress bar with tokens a second and the time left."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None

    def note(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)

    def stage(self, word: str) -> None:
        self._show(word, 0, None, "")

    def reading(self, num_rows: int, size: int, total: int) -> None:
        self._show("reading, in MB", size // 1_000_000, -(-total // 1_000_000), f"{num_rows:,} rows")

    def grouping(self, num_rows: int, total: int) -> None:
        self._show("grouping", num_rows, total, "")

    def written(self, num_rows: int, total: int) -> None:
        self._show("writing rows", num_rows, total, "")

    def generating(self, report: Mapping[str, Any], total: int) -> None:
        rate = f"{rate_of(report):,.0f} tokens/s" if report.get("seconds") else ""
        rate = ", ".join(filter(None, (rate, str(report.get("card", "")))))
        word = "generating" if report["phase"] in ("running", "done", "stopped") else str(report["phase"])
        self._show(word, finished_of(report), total, rate)

    def _show(self, word: str, done: int, total: int | None, rate: str) -> None:
        if self._task is not None and self._bar.tasks[0].total != total:
            self._bar.remove_task(self._task)
            self._task = None
        if self._task is None:
            self._task = self._bar.add_task(word, total=total, rate=rate)
        self._bar.update(self._task, description=word, completed=done, rate=rate)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.stop()


def terminal_display() -> Display:
    """The bar when stderr is a terminal, plain lines otherwise."""
    console = Console(stderr=True)
    if console.is_terminal:
        return BarDisplay(console)
    ours = logging.getLogger("tasks")
    ours.handlers = [logging.StreamHandler(sys.stderr)]  # in place of Prefect's, which is for flow runs
    ours.setLevel(logging.INFO)
    ours.propagate = False
    return LogDisplay()
