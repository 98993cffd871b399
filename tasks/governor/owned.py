"""A card that may be changed, because what it was before is on disk and a guard stands by to put it back.

Order of every change: look whether the card is still ours; record the change in the lease, durably; make it; look again. A
process that was stopped in between, and taken for dead, finds that out in the last step and takes its change back. So at
any moment each limit of ours that can stand is in a lease, and a guard or the next start knows what to do about it.
"""

import logging
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from tasks.core.errors import DamageError, LockedError, in_words
from tasks.governor.device import CardError, Device, RefusedError
from tasks.governor.lease import Lease, card_lock, lease_path, new_lease, read_lease, same_limit, write_lease
from tasks.governor.restore import Outcome, Restoration, put_back, reconcile
from tasks.governor.sample import Card, Sample
from tasks.governor.watch import Sight, Watch

_log = logging.getLogger(__name__)
_GUARD_ENDS_S = 2.0


class LeaseLostError(CardError):
    """This process stood still for too long: its guard has put the card back. Begin anew from what the card has now."""


class OwnedDevice:
    """A Device whose changes last as long as this object. Nothing is written, and no guard started, before the first change.

    `factory` is how the guard (guard.py) opens the card; it puts it back `stale_periods` after the last sign of life, which
    each call is, and before that pauses the engine whose `limit` (storage/limit.py) it is. Raises LockedError, naming the
    owner, when another process has the card, DamageError for a lease that is not readable, CardError when the state
    directory cannot be used or what a dead owner left could not be put back, and CardLostError; the device is then still
    the caller's to close.
    """

    def __init__(
        self,
        device: Device,
        directory: Path,
        factory: str,
        *,
        period_s: float = 1.0,
        stale_periods: float = 2.0,
        wait_s: float = 2.0,
        limit: Path | None = None,
    ) -> None:
        self._device = device
        self._factory = factory
        self._limit = limit
        self._stale_s = stale_periods * period_s
        self._path = lease_path(directory, device.card.uuid)
        self._lease: Lease | None = None
        self._watch: Watch | None = None
        self._is_closed = False
        self._left_w: tuple[float, ...] = ()
        self.restoration: Restoration | None = None
        with ExitStack() as held:
            try:
                self._lock = held.enter_context(card_lock(self._path, wait_s=wait_s))
            except OSError as error:
                raise CardError(f"no lease can be kept, so the card is left alone: {in_words(error)}") from error
            self.found = self._clear_up()
            self._held = held.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def card(self) -> Card:
        return self._device.card

    @property
    def guard_pid(self) -> int | None:
        """The process that puts the card back if this one cannot; None before the first change."""
        return self._watch.pid if self._watch else None

    def beat(self) -> None:
        """A sign of life, once a period. Raises LeaseLostError, once, when the guard has put the card back meanwhile."""
        if self._lease is not None:
            self._assert_ours()

    def read(self) -> Sample:
        """Raises LeaseLostError as beat() does, but while the guard is at work reads past it."""
        if self._watch is None or self._watch.has_ended or self._watch.sight() is not Sight.ACTING:
            self.beat()
        return self._device.read()

    def requested_w(self) -> float | None:
        self._live()
        return self._device.requested_w()

    def set_power_limit(self, watts: float) -> None:
        """Raises CardError also when the limit that stands is not the one we left: somebody else sets it."""
        lease, standing_w = self._lease_for_change(), self._device.requested_w()
        if standing_w is None:
            raise CardError("the card does not say which power limit it has, so none is set that could not be put back")
        if lease.before_w is not None and not any(same_limit(standing_w, left_w) for left_w in self._left_w):
            raise CardError(f"somebody else has set the power limit to {standing_w:g} W: it is left alone")
        before_w = standing_w if lease.before_w is None else lease.before_w
        ours = tuple(limit_w for limit_w in (standing_w, watts) if not same_limit(limit_w, before_w))
        self._left_w = (standing_w, watts)
        self._change(lease, replace(lease, before_w=before_w, written_w=ours), lambda: self._device.set_power_limit(watts))
        self._left_w = (watts,)

    def lock_clock(self, max_mhz: int) -> None:
        lease = self._lease_for_change()
        self._change(lease, replace(lease, clocks_touched=True), lambda: self._device.lock_clock(max_mhz))

    def unlock_clock(self) -> None:
        """Takes our lock off; where there is none, another's stays."""
        if self._lease is not None and self._lease.clocks_touched:
            self._assert_ours()
            self._device.unlock_clock()
            self._assert_ours()

    def close(self) -> None:
        """Put everything back; what was done is in `restoration`. Raises CardError or CardLostError when that did not
        succeed: the lease stays, and the guard goes on trying for a while."""
        try:
            if self._lease is not None:
                self._end_lease(self._lease)
        finally:
            self._lease, self._is_closed = None, True
            self._release()
            self._held.close()
            self._device.close()

    def _lease_for_change(self) -> Lease:
        if self._is_closed:
            raise CardError(f"{self.card.uuid} was given back and is not to be changed")
        if self._lease is not None:
            return self._assert_ours()
        try:
            self._clear_up()
        except (DamageError, LockedError) as error:
            raise CardError(str(error)) from error
        return self._take()

    def _change(self, before: Lease, recorded: Lease, make: Callable[[], None]) -> None:
        """A change whose record is on disk before it is made, and off again when the card refused it."""
        if recorded != before:
            self._record(recorded)
        try:
            make()
        except RefusedError:
            self._record(before)
            raise
        self._assert_ours()

    def _take(self) -> Lease:
        """Lease, then guard; with neither nothing is changed."""
        try:
            fresh = new_lease(self.card, self._device.read().energy_j)
        except OSError as error:
            raise CardError(f"no lease can be made, so the card is left alone: {in_words(error)}") from error
        lease = self._record(fresh)
        try:
            self._watch = self._armed(lease)
        except CardError:
            self._end_lease(lease)
            raise
        return lease

    def _armed(self, lease: Lease) -> Watch:
        watch = Watch(self._path, lease.token, self._lock.fileno(), self._factory, self._stale_s, self._limit)
        _log.info("guard %d is armed for %s", watch.pid, lease.uuid, extra={"action": "guard_armed"})
        return watch

    def _record(self, lease: Lease) -> Lease:
        try:
            write_lease(self._path, lease)
        except OSError as error:
            raise CardError(f"the lease cannot be written, so the card is left alone: {in_words(error)}") from error
        self._lease = lease
        return lease

    def _clear_up(self) -> Restoration | None:
        """Put back what a dead owner left."""
        try:
            found = reconcile(self._path, lambda uuid: nullcontext(self._device))
        except OSError as error:
            raise CardError(f"an earlier lease cannot be ended, so the card is left alone: {in_words(error)}") from error
        if found is not None:
            _log.warning("an earlier run's lease: %s", found, extra={"action": "lease_found"})
            if found.outcome is Outcome.HELD:
                raise LockedError(str(found))
        return found

    def _live(self) -> None:
        """A sign of life, and a new guard where ours was killed; where none can be had, the card is put back."""
        if self._watch is not None:
            self._watch.beat()
        if self._lease is None or (self._watch is not None and self._watch.sight() is not Sight.GONE):
            return
        self._release()
        try:
            self._watch = self._armed(self._lease)
        except CardError as error:
            _log.warning("%s", error, extra={"action": "guard_lost"})
            self._end_lease(self._lease)

    def _assert_ours(self) -> Lease:
        """The lease, if the card is ours. Otherwise whatever is left of ours is taken back, and LeaseLostError says so."""
        self._live()
        lease = self._lease
        if lease is None:
            raise LeaseLostError(f"{self.card.uuid} has lost its guard and was put back")
        if self._watch is not None and self._watch.sight() is Sight.ON_WATCH and self._token_on_disk() == lease.token:
            return lease
        if not self._release():
            raise LeaseLostError(f"{self.card.uuid}: its guard took this process for dead, and is still putting it back")
        self._end_lease(lease)
        raise LeaseLostError(f"{self.card.uuid} was put back, as this process stood still or its lease was taken away")

    def _end_lease(self, lease: Lease) -> None:
        """Put back what is ours, and remove the lease; what another process holds by now is left to it."""
        if self._token_on_disk() in (lease.token, None):
            self.restoration = put_back(lease, self._device)
            try:
                self._path.unlink(missing_ok=True)
            except OSError as error:
                raise CardError(f"the lease cannot be removed: {in_words(error)}") from error
        else:
            self.restoration = Restoration(lease.uuid, Outcome.LEFT, "another process has taken the card over")
        _log.info("%s", self.restoration, extra={"action": "card_put_back"})
        self._lease = None

    def _token_on_disk(self) -> str | None:
        """Whose lease it is; None where there is none, or none that can be read."""
        with suppress(DamageError, OSError):
            lease = read_lease(self._path)
            return lease.token if lease else None
        return None

    def _release(self) -> bool:
        """Let the guard go; whether it has ended."""
        if self._watch is not None and not self._watch.release(_GUARD_ENDS_S):
            return False
        self._watch = None
        return True
