"""What makes a process an engine child: it dies with its supervisor, stops between steps on a signal, and reports.

A report is one JSON object a line on a pipe of its own, so that nothing a library prints can be mistaken for one.
"""

import ctypes
import json
import os
import signal
import sys
import time
from types import FrameType
from typing import Any

_PR_SET_PDEATHSIG = 1
_REPORT_EVERY_S = 0.2


class StopRequest:
    """True once SIGTERM or SIGINT came, or the supervisor is gone; asked between steps. Safe to signal many times."""

    def __init__(self, supervisor_pid: int) -> None:
        self._supervisor_pid = supervisor_pid
        self._signalled = False
        for number in (signal.SIGTERM, signal.SIGINT):
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
    """Writes reports to the supervisor, at most five a second unless forced. A closed pipe is silently accepted:
    the stop request notices the supervisor's end."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._last = 0.0

    def __call__(self, report: dict[str, Any], *, force: bool = False) -> None:
        now = time.monotonic()
        if force or now - self._last >= _REPORT_EVERY_S:
            self._last = now
            try:
                os.write(self._fd, json.dumps(report).encode() + b"\n")
            except BrokenPipeError:
                return
