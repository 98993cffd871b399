"""A card read and set in threads of their own: a call into the driver may block for good, and must block nobody.

A blocked thread cannot be ended; it is a daemon, and what it was asked for counts as not answered.
"""

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from tasks.core.errors import NightbatchError
from tasks.governor.sample import Sample


@dataclass(frozen=True, slots=True)
class Reading:
    """What a read gave, and when it ended, in seconds of the monotonic clock: a sample, or why there is none."""

    time_s: float
    sample: Sample | None = None
    error: NightbatchError | None = None


class Reader:
    """Reads when it is asked to; `latest` is what came last. One read at a time: while one blocks, none is begun."""

    def __init__(self, read: Callable[[], Sample], clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._asked = threading.Event()
        self._answered = threading.Event()
        self.latest: Reading | None = None
        threading.Thread(target=self._work, name="card-reader", daemon=True).start()

    def ask(self, patience_s: float) -> Reading | None:
        """A reading that was begun now, or None when the card takes longer than `patience_s`."""
        if self._asked.is_set():  # the one before has not come back
            self._answered.wait(patience_s)
            return None
        self._answered.clear()
        self._asked.set()
        return self.latest if self._answered.wait(patience_s) else None

    def _work(self) -> None:
        while True:
            self._asked.wait()
            try:
                sample, error = self._read(), None
            except NightbatchError as caught:
                sample, error = None, caught
            self.latest = Reading(self._clock(), sample, error)
            self._asked.clear()
            self._answered.set()


class Setter:
    """Makes calls that change a card, one at a time; while one blocks, the newest of those that wait is kept."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[Callable[[], None]] = queue.Queue(maxsize=1)
        self._idle = threading.Event()
        self._idle.set()
        self.error: NightbatchError | None = None
        self.refused = 0
        threading.Thread(target=self._work, name="card-setter", daemon=True).start()

    def put(self, call: Callable[[], None]) -> None:
        """Make this call next, in place of one that has not begun."""
        self._idle.clear()
        with suppress(queue.Empty):
            self._waiting.get_nowait()
        self._waiting.put(call)

    def wait(self, patience_s: float) -> bool:
        """Whether all has been done within so many seconds."""
        return self._idle.wait(patience_s)

    def _work(self) -> None:
        while True:
            call = self._waiting.get()
            try:
                call()
                self.error, self.refused = None, 0
            except NightbatchError as error:
                self.error, self.refused = error, self.refused + 1
            if self._waiting.empty():
                self._idle.set()
