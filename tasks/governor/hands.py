"""Calls to a card, made in a thread of their own: the driver may block for good, and must block nobody else.

One call at a time, in order. A thread that is blocked cannot be ended; it is a daemon, and until it comes back nothing more
is asked of the card.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tasks.core.errors import NightbatchError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What a call gave: its value, or why there is none."""

    value: T | None = None
    error: NightbatchError | None = None


class Hands:
    """Makes the calls."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._answered = threading.Event()
        self._answered.set()
        self._call: Callable[[], object] = lambda: None
        self._answer: Answer[object] = Answer()
        threading.Thread(target=self._work, name="card", daemon=True).start()

    @property
    def is_free(self) -> bool:
        """Whether the last call has come back."""
        return self._answered.is_set()

    def do(self, call: Callable[[], T], patience_s: float) -> Answer[T] | None:
        """Make a call; None when it, or the one before it, takes longer than that. One that is late still takes effect."""
        if not self._answered.wait(patience_s):
            return None
        self._answered.clear()
        self._call = call
        self._asked.set()
        return self._answer if self._answered.wait(patience_s) else None  # type: ignore[return-value]

    def _work(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            try:
                self._answer = Answer(self._call())
            except NightbatchError as error:
                self._answer = Answer(error=error)
            except Exception as error:  # a bug must not leave the card unwatched: it counts as no answer, with its words
                self._answer = Answer(error=NightbatchError(f"{type(error).__name__}: {error}"))
            self._answered.set()
