"""Compare and swap: what is put back, what is left alone, and what is said about it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.core.errors import DamageError
from tasks.governor.device import CardError, CardLostError, Device
from tasks.governor.lease import Lease, card_lock, lease_path, new_lease, read_lease, write_lease
from tasks.governor.restore import Outcome, put_back, restore_all
from tests.unit.governor.filecard import UUID, FileCard

Leave = Callable[..., Lease]


@pytest.fixture
def card(tmp_path: Path) -> FileCard:
    """As an owner has left it: 350 W before, 300 W now, the clock locked."""
    card = FileCard(tmp_path / "card.json")
    card.set(requested_w=300.0, locked_mhz=1000)
    return card


@pytest.fixture
def leave(tmp_path: Path, card: FileCard) -> Leave:
    """Writes the lease of an owner that died after this."""

    def write(**values: Any) -> Lease:
        given: dict[str, Any] = {
            "before_w": 350.0,
            "written_w": (320.0, 300.0),
            "clocks_touched": True,
            "pid": 2**22 + 1,
        } | values
        lease = replace(new_lease(card.card, 1000.0), **given)
        write_lease(lease_path(tmp_path, lease.uuid), lease)
        return lease

    return write


@pytest.fixture
def restore(tmp_path: Path, card: FileCard) -> Callable[[], tuple[Outcome, str]]:
    """restore_all() with this card, of which one lease is expected."""

    def run() -> tuple[Outcome, str]:
        (done,) = restore_all(tmp_path, lambda uuid: card, wait_s=0)
        assert done.uuid == UUID and done.text in str(done)
        assert read_lease(lease_path(tmp_path, UUID)) is None or done.outcome in (Outcome.FAILED, Outcome.HELD)
        return done.outcome, done.text

    return run


Restore = Callable[[], tuple[Outcome, str]]


def settings(card: FileCard) -> tuple[float | None, int | None]:
    state = card.state
    return state["requested_w"], state["locked_mhz"]


def test_what_was_there_comes_back(card: FileCard, leave: Leave, restore: Restore, tmp_path: Path) -> None:
    """Limit and clock are as they were, not the default, the lease is gone, and a second time there is nothing to do."""
    leave()
    assert restore() == (Outcome.RESTORED, "the power limit is back from 300 to 350 W, the clock is unlocked")
    assert settings(card) == (350.0, None) and card.closed
    assert restore_all(tmp_path, lambda uuid: card) == []


@pytest.mark.parametrize("standing_w", [320.0, 300.0, 299.6, 350.0])
def test_death_between_record_and_call(card: FileCard, leave: Leave, restore: Restore, standing_w: float) -> None:
    """Whichever of the last two limits stands, or none yet, the first one comes back."""
    leave()
    card.set(requested_w=standing_w)
    restore()
    assert settings(card) == (350.0, None)


def test_another_writer_keeps_its_limit(card: FileCard, leave: Leave, restore: Restore) -> None:
    """A limit that is not ours stays and is named; our clock lock is taken off all the same."""
    leave()
    card.set(requested_w=250.0)
    outcome, text = restore()
    assert outcome is Outcome.LEFT and "the power limit is 250 W, and not 320 or 300 W as we left it" in text
    assert settings(card) == (250.0, None)


def test_only_what_was_touched(card: FileCard, leave: Leave, restore: Restore) -> None:
    """Under a lease that changed no clock, the clock is left alone; under one that changed nothing, so is everything."""
    leave(clocks_touched=False)
    restore()
    assert settings(card) == (350.0, 1000)
    leave(clocks_touched=False, written_w=(), before_w=None)
    card.set(requested_w=300.0)
    assert restore() == (Outcome.UNCHANGED, "nothing was changed")
    assert settings(card) == (300.0, 1000)


@pytest.mark.parametrize("values", [{"boot_id": "another"}, {"driver": "570.0"}])
def test_another_boot_or_driver_drops_the_lease(card: FileCard, leave: Leave, restore: Restore, values: Any) -> None:
    """Settings do not survive those, so whatever stands now is somebody else's."""
    leave(**values)
    assert restore()[0] is Outcome.DROPPED
    assert settings(card) == (300.0, 1000)


def test_another_boot_needs_no_card(leave: Leave, tmp_path: Path) -> None:
    """A lease from before a boot is dropped though no card can be opened."""

    def open_device(uuid: str) -> Device:
        raise CardError("no driver")

    leave(boot_id="another")
    (done,) = restore_all(tmp_path, open_device)
    assert done.outcome is Outcome.DROPPED


def test_a_reload_shows_in_the_energy(card: FileCard, leave: Leave, restore: Restore) -> None:
    """A counter that began anew tells a reload, unless our limit stands, which proves that there was none."""
    leave(energy_j=2000.0)
    assert restore()[0] is Outcome.RESTORED
    leave(energy_j=2000.0)
    card.set(requested_w=400.0, locked_mhz=700)
    assert restore() == (Outcome.DROPPED, "the driver was loaded anew: nothing of ours can stand")
    assert settings(card) == (400.0, 700)


@pytest.mark.parametrize(("fails", "expected"), [("limit", (300.0, None)), ("unlock", (350.0, 1000))])
def test_one_failure_does_not_keep_the_rest(
    card: FileCard, leave: Leave, restore: Restore, fails: str, expected: tuple[float, int | None]
) -> None:
    """What can be put back is; the lease stays for the rest, and a later try completes it."""
    leave()
    card.set(fails=[fails])
    outcome, text = restore()
    assert outcome is Outcome.FAILED and f"no answer to {fails}" in text
    assert settings(card) == expected
    card.set(fails=[])
    assert restore()[0] is Outcome.RESTORED
    assert settings(card) == (350.0, None)


def test_reading_that_fails_is_no_reload(card: FileCard, leave: Leave, restore: Restore) -> None:
    """Sensors that do not answer do not keep the card from being put back."""
    leave(energy_j=2000.0)
    card.set(fails=["read"])
    assert restore()[0] is Outcome.RESTORED


def test_card_that_does_not_say_its_limit(card: FileCard, leave: Leave, restore: Restore) -> None:
    """Nothing is set blindly, and the lease stays."""
    leave()
    card.set(requested_w=None)
    outcome, text = restore()
    assert outcome is Outcome.FAILED and "not known whether it is ours" in text
    assert settings(card) == (None, None)


def test_lost_card_keeps_its_lease(card: FileCard, leave: Leave, restore: Restore, tmp_path: Path) -> None:
    """A card that is off the bus fails, to be tried again when it is back."""
    lease = leave()
    card.set(lost=True)
    assert restore() == (Outcome.FAILED, "the card is gone")
    with pytest.raises(CardLostError):
        put_back(lease, card)


def test_owner_that_lives_is_left_alone(card: FileCard, leave: Leave, restore: Restore, tmp_path: Path) -> None:
    """Neither one that holds the lock, nor one whose lock file was removed, is disturbed."""
    leave()
    with card_lock(lease_path(tmp_path, UUID), wait_s=0):
        outcome, text = restore()
    assert outcome is Outcome.HELD and "in the hands of" in text
    leave(pid=1, started=_started(1))
    outcome, text = restore()
    assert outcome is Outcome.HELD and "process 1 " in text
    assert settings(card) == (300.0, 1000)


def _started(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19])


def test_damaged_lease_does_not_keep_others(card: FileCard, leave: Leave, tmp_path: Path) -> None:
    """It is reported and kept, nothing is written to its card, and the next card is put back."""
    leave()
    damaged = lease_path(tmp_path, "A-FIRST")
    damaged.write_text('{"version": 1, "before_w": 350')
    first, second = restore_all(tmp_path, lambda uuid: card)
    assert (first.uuid, first.outcome) == ("A-FIRST", Outcome.FAILED) and "is damaged" in first.text and first.failed
    assert second.outcome is Outcome.RESTORED
    with pytest.raises(DamageError):
        read_lease(damaged)


def test_folder_without_leases(tmp_path: Path) -> None:
    """There is nothing to do, and no folder is made."""
    assert restore_all(tmp_path / "none", FileCard) == []  # type: ignore[arg-type]
    assert not (tmp_path / "none").exists()
