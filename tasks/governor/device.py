"""The seam to a card: NVML's, and the simulated one."""

from typing import Protocol

from tasks.core.errors import NightbatchError
from tasks.governor.sample import Card, Sample


class CardLostError(NightbatchError):
    """The card has fallen off the bus or needs a reset: stop the engine, and look at the machine."""


class CardError(NightbatchError):
    """The driver did not answer, or not with a value: what was asked may or may not have happened."""


class RefusedError(CardError):
    """The driver said no, for want of permission or as no card can do that: nothing has changed."""


class Device(Protocol):
    """A card that can be read and, with permission, set. Calls may block for as long as the driver does. All raise
    CardLostError or CardError (RefusedError where a setter certainly had no effect); nothing else comes through the door."""

    @property
    def card(self) -> Card: ...

    def read(self) -> Sample:
        """All that the card says, now; what it does not offer is None."""
        ...

    def requested_w(self) -> float | None:
        """The power limit that somebody has asked for, read anew; None where there is none."""
        ...

    def set_power_limit(self, watts: float) -> None:
        """Ask for a power limit, and read it back. Raises CardError when the card has another one afterwards."""
        ...

    def lock_clock(self, max_mhz: int) -> None:
        """Let the SM clock be at most so high. NVML has no way to read a lock back."""
        ...

    def unlock_clock(self) -> None:
        """Take any lock of the SM clock off."""
        ...

    def close(self) -> None: ...
