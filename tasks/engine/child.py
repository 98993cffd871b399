"""What makes a process an engine child: it dies with its supervisor, stops between steps on a signal, and reports.

A report is one JSON object a line on a pipe of its own, so that nothing a library prints can be mistaken for one.
"""

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any

from tasks.core.errors import RequestError
from tasks.core.plan import PlannedSequence
from tasks.core.protocols import Engine
from tasks.core.request import SamplingParams, StepOutput

_PR_SET_PDEATHSIG = 1
_REPORT_EVERY_S = 0.2


class StopRequest:
    """True once SIGTERM, SIGINT or SIGHUP came, or the supervisor is gone; asked between steps. Signals may repeat."""

    def __init__(self, supervisor_pid: int) -> None:
        self._supervisor_pid = supervisor_pid
        self._signalled = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup leaves it
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signalled = True

    def __bool__(self) -> bool:
        return self._signalled or os.getppid() != self._supervisor_pid


def die_with(supervisor_pid: int) -> None:
    """Ask the kernel for SIGKILL when the supervisor dies; exit at once if it already has. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor_pid:
        os._exit(1)


class Reporter:
    """Writes reports to the supervisor, at most five a second besides the forced ones. A closed pipe is silently accepted:
    the stop request notices the supervisor's end."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._last = 0.0

    @property
    def is_due(self) -> bool:
        """Whether a report that is not forced would be written now."""
        return time.monotonic() - self._last >= _REPORT_EVERY_S

    def __call__(self, report: dict[str, Any], *, force: bool = False) -> None:
        if force or self.is_due:
            self._last = self._last if force else time.monotonic()
            try:
                os.write(self._fd, json.dumps(report).encode() + b"\n")
            except BrokenPipeError:
                return


class WatchedEngine:
    """An engine that tells the supervisor what is in flight: of each sequence before the engine has it, and of its end. So
    a death can be laid to those that were there."""

    def __init__(self, engine: Engine, report: Reporter) -> None:
        self._engine = engine
        self._report = report

    @property
    def num_unfinished(self) -> int:
        return self._engine.num_unfinished

    def continues_exactly(self, sampling: SamplingParams) -> bool:
        return self._engine.continues_exactly(sampling)

    def add_request(self, sequence: PlannedSequence, saved_token_ids: Sequence[int]) -> None:
        self._report({"phase": "admitted", "keys": [sequence.key]}, force=True)
        try:
            self._engine.add_request(sequence, saved_token_ids)
        except RequestError:
            self._tell_ended([sequence.key])
            raise

    def step(self) -> list[StepOutput]:
        outputs = self._engine.step()
        self._tell_ended([output.key for output in outputs if output.finish_reason or output.error])
        return outputs

    def abort(self, keys: Sequence[int]) -> None:
        self._engine.abort(keys)
        self._tell_ended(keys)

    def close(self) -> None:
        self._engine.close()

    def _tell_ended(self, keys: Sequence[int]) -> None:
        if keys:
            self._report({"phase": "ended", "keys": list(keys)}, force=True)
