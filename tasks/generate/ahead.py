"""The work that has not been admitted, a few items of it at hand.

It is given out in the plan's order, which is what the prefix cache lives on. Only when no more comes behind what is at hand,
what is much longer than the rest goes first, the longest at its head: what is long and starts last keeps the engine nearly
empty for as long. The rest stays among its neighbours, which share prefixes with it. Saved tokens do not count, so that what
was in flight when an engine died is in flight again with the next.
"""

import statistics
from collections.abc import Callable, Iterable, Iterator

from tasks.generate.resume import Work

NUM_AT_HAND = 64
MUCH_LONGER = 1.5
"""Times the length in the middle of what is at hand."""


class Ahead:
    """An iterator of work with its next items in sight; `length_of` says how long an item's answer gets."""

    def __init__(self, work: Iterable[Work], length_of: Callable[[Work], float], *, num_at_hand: int = NUM_AT_HAND) -> None:
        self._rest: Iterator[Work] = iter(work)
        self._length_of = length_of
        self._num_at_hand = num_at_hand
        self._at_hand: list[Work] = []
        self._is_end = False

    def peek(self) -> Work | None:
        """What comes next; None when all has been given out."""
        while not self._is_end and len(self._at_hand) < self._num_at_hand:
            self._fetch()
        return self._at_hand[0] if self._at_hand else None

    def pop(self) -> None:
        """The one that came next has been taken."""
        del self._at_hand[0]

    def _fetch(self) -> None:
        if (work := next(self._rest, None)) is not None:
            self._at_hand.append(work)
            return
        self._is_end = True
        if self._at_hand:
            lengths = [self._length_of(work) for work in self._at_hand]
            usual = MUCH_LONGER * statistics.median(lengths)
            places = sorted(range(len(lengths)), key=lambda i: -lengths[i] if lengths[i] > usual else 0.0)
            self._at_hand = [self._at_hand[i] for i in places]
