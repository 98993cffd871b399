"""Putting back what a card had before us, from its lease: compare, then swap.

A limit is put back only where the one that stands is still ours; where somebody else has set another since, theirs stays.
After another boot, or a reload of the driver, nothing of ours can stand, and the lease is only removed.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tasks.core.errors import DamageError, LockedError, in_words
from tasks.governor.device import CardError, CardLostError, Device
from tasks.governor.lease import Lease, boot_id, card_lock, read_lease, same_limit

OpenDevice = Callable[[str], Device]
WithDevice = Callable[[str], AbstractContextManager[Device]]


class Outcome(StrEnum):
    """What became of a lease. All but HELD and FAILED end it."""

    RESTORED = "restored"
    """The card has again what it had before us."""
    UNCHANGED = "unchanged"
    """It had that already."""
    LEFT = "left"
    """Somebody else has set another limit since: theirs stays."""
    DROPPED = "dropped"
    """Another boot or a reload of the driver has put it back."""
    HELD = "held"
    """Its owner lives, or is being cleared up after: nothing was done."""
    FAILED = "failed"
    """It could not be put back, or what to put back is not known: the lease stays."""


@dataclass(frozen=True, slots=True)
class Restoration:
    """What was done about one card, and the same in words for people."""

    uuid: str
    outcome: Outcome
    text: str

    @property
    def failed(self) -> bool:
        return self.outcome is Outcome.FAILED

    def __str__(self) -> str:
        return f"{self.uuid}: {self.text}"


def put_back(lease: Lease, device: Device) -> Restoration:
    """Make the card as it was before the lease, as far as it is still as we left it. The caller holds the card's lock.
    Raises CardError when a part did not succeed, after trying the others, and CardLostError."""
    if reason := _reload(lease, device):
        return Restoration(lease.uuid, Outcome.DROPPED, f"{reason}: nothing of ours can stand")
    outcome, said, errors = Outcome.UNCHANGED, [], []
    if lease.written_w:
        try:
            outcome, words = _put_back_limit(lease, device)
            said.append(words)
        except CardError as error:
            errors.append(str(error))
    if lease.clocks_touched:
        try:
            device.unlock_clock()
            said.append("the clock is unlocked")
            outcome = Outcome.LEFT if outcome is Outcome.LEFT else Outcome.RESTORED
        except CardError as error:
            errors.append(str(error))
    if errors:
        raise CardError("; ".join(errors))
    return Restoration(lease.uuid, outcome, ", ".join(said) or "nothing was changed")


def _put_back_limit(lease: Lease, device: Device) -> tuple[Outcome, str]:
    before_w, standing_w = lease.before_w, device.requested_w()
    if standing_w is None or before_w is None:
        raise CardError("the card does not say which power limit it has, so it is not known whether it is ours")
    if same_limit(standing_w, before_w):
        return Outcome.UNCHANGED, f"the power limit is {before_w:g} W as before"
    if not lease.wrote(standing_w):
        ours = " or ".join(f"{watts:g}" for watts in lease.written_w)
        text = f"the power limit is {standing_w:g} W, and not {ours} W as we left it: somebody else's, which stays"
        return Outcome.LEFT, f"{text} (before us it was {before_w:g} W)"
    device.set_power_limit(before_w)
    return Outcome.RESTORED, f"the power limit is back from {standing_w:g} to {before_w:g} W"


def _reload(lease: Lease, device: Device) -> str | None:
    """What tells that the driver was loaded anew since the lease. A limit of ours that still stands proves that it was not;
    only without one does a smaller energy counter count, as a wrong reading would leave the card as it is."""
    if device.card.driver != lease.driver:
        return f"the driver is {device.card.driver} now, and was {lease.driver}"
    with suppress(CardError):
        standing_w = device.requested_w() if lease.written_w else None
        if standing_w is None or not lease.wrote(standing_w):
            energy_j = device.read().energy_j
            if energy_j is not None and lease.energy_j is not None and energy_j < lease.energy_j:
                return "the driver was loaded anew"
    return None


def settle(path: Path, with_device: WithDevice) -> Restoration | None:
    """Do what the lease at this path asks for, and remove it; None where there is none. The caller holds the card's lock.
    Raises DamageError, CardError, CardLostError or OSError, with the lease in place."""
    lease = read_lease(path)
    if lease is None:
        return None
    if lease.boot_id != boot_id():
        done = Restoration(lease.uuid, Outcome.DROPPED, "the machine was booted since: nothing of ours can stand")
    elif lease.is_untouched:
        done = Restoration(lease.uuid, Outcome.UNCHANGED, "nothing was changed")
    else:
        with with_device(lease.uuid) as device:
            done = put_back(lease, device)
    path.unlink(missing_ok=True)
    return done


def reconcile(path: Path, with_device: WithDevice) -> Restoration | None:
    """settle() for the lease of an owner that should be dead. It may live all the same, where someone has removed its lock:
    then nothing is done."""
    lease = read_lease(path)
    if lease is not None and lease.pid != os.getpid() and lease.owner_lives():
        return Restoration(lease.uuid, Outcome.HELD, f"{lease.owner} still has it, though its lock file is gone")
    return settle(path, with_device)


def restore_all(directory: Path, open_device: OpenDevice, *, wait_s: float = 2.0) -> list[Restoration]:
    """Put back every card with a lease in this folder whose owner is gone; one that fails does not keep the others from it.
    `wait_s` is for the guard of an owner that has just died."""
    return [done for path in sorted(directory.glob("*.lease")) if (done := _restore(path, open_device, wait_s))]


def _restore(path: Path, open_device: OpenDevice, wait_s: float) -> Restoration | None:
    try:
        with card_lock(path, wait_s=wait_s):
            return reconcile(path, lambda uuid: closing(open_device(uuid)))
    except LockedError as error:
        return Restoration(path.stem, Outcome.HELD, str(error).removeprefix(f"{path.stem}: "))
    except (DamageError, CardError, CardLostError) as error:
        return Restoration(path.stem, Outcome.FAILED, str(error))
    except OSError as error:
        return Restoration(path.stem, Outcome.FAILED, in_words(error))
