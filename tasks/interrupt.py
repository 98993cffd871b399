"""Signals that put a run down: the first one counts, and those that follow break into nothing."""

import os
import signal
import stat
import time
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PUT_DOWN_S = 25.0
"""The longest a run takes to be put down: the supervisor waits 20 s for the step in flight."""


class Interrupted(BaseException):
    """SIGINT, SIGTERM or SIGHUP came. No KeyboardInterrupt, which the command-line library keeps to itself."""


class Interrupter:
    """Signal handler: the first signal puts the run down. Those that follow while it is being put down change nothing, so
    that no second Ctrl-C breaks into it; after its longest time they count again."""

    def __init__(self) -> None:
        self._until = 0.0

    def install(self) -> None:
        """Take the signals over; under nohup SIGHUP stays ignored."""
        for number in STOPPING:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if time.monotonic() < self._until:
            return
        self._until = time.monotonic() + _PUT_DOWN_S
        if number == signal.SIGHUP:
            _leave_terminal()
        raise Interrupted(signal.Signals(number).name)


def _leave_terminal() -> None:
    """The terminal is gone, and writing to it would fail: what is still said goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        if stat.S_ISCHR(os.fstat(stream).st_mode):
            os.dup2(nowhere, stream)
    os.close(nowhere)
