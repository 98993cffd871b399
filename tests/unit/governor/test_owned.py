"""The owner's side: lease before guard before write, nothing without either, and everything put back at the end."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

import tasks.governor.owned
from tasks.core.errors import DamageError, LockedError
from tasks.governor.device import CardError, CardLostError, RefusedError
from tasks.governor.lease import lease_path, new_lease, read_lease, write_lease
from tasks.governor.owned import LeaseLostError, OwnedDevice
from tasks.governor.restore import Outcome
from tasks.governor.watch import Sight
from tasks.storage.limit import Limit, write_limit
from tests.unit.governor.filecard import FACTORY, UUID, FileCard

HERE = Path(__file__).parent
Own = Callable[..., OwnedDevice]


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileCard:
    monkeypatch.setenv("FILECARD", str(tmp_path / "card.json"))
    monkeypatch.setenv("PYTHONPATH", f"{os.environ.get('PYTHONPATH', '')}{os.pathsep}{HERE}".lstrip(os.pathsep))
    return FileCard(tmp_path / "card.json")


@pytest.fixture
def own(tmp_path: Path, card: FileCard) -> Iterator[Own]:
    """An owner of the card, or of another view of it; closed after the test."""
    made: list[OwnedDevice] = []

    def make(device: FileCard = card, **given: Any) -> OwnedDevice:
        made.append(OwnedDevice(device, tmp_path / "state", FACTORY, **{"wait_s": 0.0} | given))
        return made[-1]

    yield make
    for owned in made:
        owned.close()


@pytest.fixture
def lease_file(tmp_path: Path) -> Path:
    return lease_path(tmp_path / "state", UUID)


def settings(card: FileCard) -> tuple[float, int | None]:
    state = card.state
    return state["requested_w"], state["locked_mhz"]


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_everything_is_put_back_at_the_end(card: FileCard, own: Own, lease_file: Path) -> None:
    """After the block limit and clock are as before, lease and guard are gone, and it says what was done."""
    with own() as owned:
        owned.set_power_limit(300.0)
        owned.set_power_limit(290.0)
        owned.lock_clock(1000)
        guard = psutil.Process(owned.guard_pid)
        assert settings(card) == (290.0, 1000)
    assert settings(card) == (350.0, None)
    assert owned.restoration is not None and owned.restoration.outcome is Outcome.RESTORED
    assert not lease_file.exists() and not guard.is_running() and card.closed


def test_the_engine_is_paused_before_the_card_has_its_power_again(card: FileCard, own: Own, tmp_path: Path) -> None:
    """A guard whose owner has fallen silent lets nothing run before it puts the card back; a clean end changes no limit."""
    limit = tmp_path / "engine-0.limit"
    write_limit(limit, 64, fallback=8, holds_s=1e6, now_s=time.monotonic())
    with own(limit=limit) as owned:
        owned.set_power_limit(300.0)
    assert Limit(limit).max_num_seqs() == 64
    silent = own(FileCard(tmp_path / "card.json"), period_s=0.1, limit=limit)
    silent.set_power_limit(310.0)
    wait_for(lambda: Limit(limit).max_num_seqs() == 0)
    wait_for(lambda: settings(card) == (350.0, None))


def test_lease_and_guard_are_there_before_each_write(card: FileCard, own: Own, lease_file: Path) -> None:
    """At every change the lease on disk already has it, and the guard is armed in a session of its own."""
    seen: list[str] = []

    def look(call: str) -> None:
        if call.startswith(("limit", "clock")) and owned.restoration is None:
            lease = read_lease(lease_file)
            assert lease is not None and lease.before_w in (350.0, None) and lease.pid == os.getpid()
            assert lease.wrote(float(call.split()[1])) if call.startswith("limit") else lease.clocks_touched
            assert owned.guard_pid is not None and os.getsid(owned.guard_pid) == owned.guard_pid
            seen.append(call)

    card.before = look
    with own() as owned:
        owned.lock_clock(1500)
        owned.set_power_limit(300.0)
        owned.lock_clock(1000)
        owned.set_power_limit(280.0)
        card.before = lambda call: None
    assert seen == ["clock 1500", "limit 300", "clock 1000", "limit 280"]


def test_without_a_change_nothing_is_begun(card: FileCard, own: Own, lease_file: Path) -> None:
    """Reading needs neither lease nor guard, and taking off a lock that is not ours changes nothing."""
    card.set(locked_mhz=700)
    with own() as owned:
        owned.beat()
        assert owned.read().energy_j == 1000.0 and owned.requested_w() == 350.0
        owned.unlock_clock()
        assert owned.guard_pid is None and not lease_file.exists() and owned.card.uuid == UUID
    assert card.state["log"] == []


def test_our_own_lock_is_taken_off(card: FileCard, own: Own) -> None:
    """What we locked we can unlock, and at the end once more, as nothing says whether it is."""
    with own() as owned:
        owned.lock_clock(1000)
        owned.unlock_clock()
        assert settings(card) == (350.0, None)


def test_second_owner_is_told_of_the_first(own: Own) -> None:
    """One card has one owner; the error names it, and its end frees the card."""
    with own(), pytest.raises(LockedError, match=rf"^{UUID}: .* process {os.getpid()} "):
        own()
    own().close()


def test_what_a_dead_owner_left_is_put_back_first(card: FileCard, own: Own, lease_file: Path) -> None:
    """A start restores the card from the lease that it finds, and takes what was there then for its own."""
    lease_file.parent.mkdir()
    dead = {"pid": 2**22 + 1, "before_w": 350.0, "written_w": (300.0,)}
    write_lease(lease_file, _lease(card, **dead))
    card.set(requested_w=300.0)
    with own() as owned:
        assert owned.found is not None and owned.found.outcome is Outcome.RESTORED
        owned.set_power_limit(310.0)
    assert settings(card)[0] == 350.0


def _lease(card: FileCard, **values: Any) -> Any:
    return replace(new_lease(card.card, 1000.0), **values)


def test_damaged_lease_stops_the_owner(card: FileCard, own: Own, lease_file: Path) -> None:
    """Before anybody has looked at it the card is not touched, and the lock is free again."""
    lease_file.parent.mkdir()
    lease_file.write_text("{")
    for _ in range(2):
        with pytest.raises(DamageError, match="remove the file"):
            own()
    lease_file.unlink()
    own().close()
    assert card.state["log"] == []


def test_no_lease_no_write(card: FileCard, own: Own, lease_file: Path) -> None:
    """Where the lease cannot be written, the card is not either, and no guard is left."""
    owned = own()
    lease_file.mkdir(parents=True)
    with pytest.raises(CardError, match=str(lease_file)):
        owned.set_power_limit(300.0)
    with pytest.raises(CardError, match=str(lease_file)):
        owned.lock_clock(1000)
    assert card.state["log"] == [] and owned.guard_pid is None
    lease_file.rmdir()
    owned.set_power_limit(300.0)


def test_no_folder_no_owner(card: FileCard, tmp_path: Path) -> None:
    """A state directory that cannot be made is an error that names it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(CardError, match=r"left alone: .*file"):
        OwnedDevice(card, tmp_path / "file" / "state", FACTORY)


@pytest.mark.parametrize("factory", ["filecard:none", "no.such.module:open", "nonsense", ""])
def test_no_guard_no_write(card: FileCard, tmp_path: Path, lease_file: Path, factory: str) -> None:
    """A guard that cannot open the card is not armed: its reason is said, nothing is written, no lease stays."""
    with OwnedDevice(card, tmp_path / "state", factory) as owned:
        with pytest.raises(CardError, match=rf"guard could not be armed.*{factory}"):
            owned.set_power_limit(300.0)
        assert not lease_file.exists() and owned.guard_pid is None
    assert card.state["log"] == []


def test_refused_write_leaves_nothing(card: FileCard, own: Own, lease_file: Path) -> None:
    """What the card refuses is off the lease again: there is nothing to put back."""
    card.set(refuses=["limit", "clock", "unlock"])
    with own() as owned:
        for _ in range(2):
            with pytest.raises(RefusedError, match="no permission"):
                owned.set_power_limit(300.0)
            with pytest.raises(RefusedError, match="no permission"):
                owned.lock_clock(1000)
        lease = read_lease(lease_file)
        assert lease is not None and lease.is_untouched
    assert card.state["log"] == [] and not lease_file.exists()


def test_write_without_answer_may_have_happened(card: FileCard, own: Own, lease_file: Path) -> None:
    """A change of which nothing is known stays on the lease; neither outcome of it is taken for another writer's."""
    with own() as owned:
        for standing_w in (350.0, 300.0):
            card.set(fails=["limit"])
            with pytest.raises(CardError, match="no answer"):
                owned.set_power_limit(300.0)
            card.set(fails=[], requested_w=standing_w)
            lease = read_lease(lease_file)
            assert lease is not None and lease.wrote(300.0)
        owned.set_power_limit(290.0)
    assert settings(card)[0] == 350.0


def test_another_writer_is_not_fought(card: FileCard, own: Own) -> None:
    """A limit that somebody else sets meanwhile is neither changed nor put back."""
    with own() as owned:
        owned.set_power_limit(300.0)
        card.set(requested_w=250.0)
        with pytest.raises(CardError, match="somebody else has set the power limit to 250 W"):
            owned.set_power_limit(290.0)
    assert settings(card)[0] == 250.0
    assert owned.restoration is not None and owned.restoration.outcome is Outcome.LEFT


def test_limit_that_cannot_be_read_is_not_set(card: FileCard, own: Own) -> None:
    """What could not be put back is not changed."""
    card.set(requested_w=None)
    with own() as owned, pytest.raises(CardError, match="does not say which power limit"):
        owned.set_power_limit(300.0)
    assert card.state["log"] == []


def test_exception_puts_back(card: FileCard, own: Own) -> None:
    """However the block ends, even in the middle of a write."""
    with pytest.raises(KeyboardInterrupt), own() as owned:
        owned.lock_clock(1000)
        card.before = _interrupt_limit
        owned.set_power_limit(300.0)
    assert settings(card) == (350.0, None)


def _interrupt_limit(call: str) -> None:
    if call == "limit 300":
        raise KeyboardInterrupt


def test_silent_owner_loses_the_card_once(card: FileCard, own: Own, lease_file: Path) -> None:
    """After two silent periods the guard puts the card back; the owner hears of it at its next beat, and may begin anew."""
    with own(period_s=0.05) as owned:
        owned.set_power_limit(300.0)
        wait_for(lambda: card.state["requested_w"] == 350.0)
        with pytest.raises(LeaseLostError, match="was put back"):
            owned.beat()
        owned.beat()
        owned.set_power_limit(310.0)
        assert settings(card)[0] == 310.0 and lease_file.exists()
    assert settings(card)[0] == 350.0


def test_reading_tells_of_the_loss_once(card: FileCard, own: Own) -> None:
    """The reading after a loss says so, as what was decided before it holds no more; the next one reads."""
    with own(period_s=0.05) as owned:
        owned.set_power_limit(300.0)
        guard = owned.guard_pid
        wait_for(lambda: psutil.Process(guard).status() == psutil.STATUS_ZOMBIE)
        with pytest.raises(LeaseLostError, match="was put back"):
            owned.read()
        assert owned.read().requested_w == 350.0


def test_reading_past_a_guard_at_work(card: FileCard, own: Own) -> None:
    """A guard whose card does not take its limit back does not keep the owner from reading."""
    with own(period_s=0.05) as owned:
        owned.set_power_limit(300.0)
        card.set(fails=["limit"])
        wait_for(lambda: owned._watch is not None and owned._watch.sight() is Sight.ACTING)
        assert owned.read().requested_w == 300.0
        card.set(fails=[])
        wait_for(lambda: settings(card)[0] == 350.0)


def test_beats_keep_the_card(card: FileCard, own: Own) -> None:
    """An owner that shows life once a period keeps it for as long as it likes."""
    with own(period_s=0.1) as owned:
        owned.set_power_limit(300.0)
        for number in range(10):
            time.sleep(0.1)
            owned.beat() if number % 2 else owned.read()
        assert settings(card)[0] == 300.0


def test_write_of_one_taken_for_dead_is_taken_back(card: FileCard, own: Own, lease_file: Path) -> None:
    """An owner that stood still between its last look and its write finds out after the write, and undoes it."""
    with own(period_s=0.05) as owned:
        owned.set_power_limit(300.0)

        def stand_still(call: str) -> None:
            if call == "limit 290":
                wait_for(lambda: not lease_file.exists())
                assert settings(card)[0] == 350.0

        card.before = stand_still
        with pytest.raises(LeaseLostError):
            owned.set_power_limit(290.0)
        assert [call for _, call in card.state["log"]] == ["limit 300", "limit 350", "limit 290", "limit 350"]


def test_lease_that_was_taken_away(card: FileCard, own: Own, lease_file: Path) -> None:
    """Without its lease file the owner puts the card back itself and writes no more; another's lease it leaves alone."""
    with own() as owned:
        owned.set_power_limit(300.0)
        lease_file.unlink()
        with pytest.raises(LeaseLostError):
            owned.set_power_limit(290.0)
        assert settings(card)[0] == 350.0
        owned.set_power_limit(300.0)
        other = _lease(card, before_w=350.0, written_w=(300.0,))
        write_lease(lease_file, other)
        with pytest.raises(LeaseLostError):
            owned.lock_clock(1000)
        assert settings(card) == (300.0, None) and read_lease(lease_file) == other
        lease_file.unlink()


def test_killed_guard_is_replaced(card: FileCard, own: Own) -> None:
    """The owner starts another one at its next sign of life, which does what the first would have done."""
    with own() as owned:
        owned.set_power_limit(300.0)
        first = owned.guard_pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: psutil.Process(first).status() == psutil.STATUS_ZOMBIE)
        owned.read()
        assert owned.guard_pid not in (first, None) and settings(card)[0] == 300.0


def test_guard_that_cannot_be_replaced(card: FileCard, own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a guard the card is put back, and the owner writes no more."""
    with own() as owned:
        owned.set_power_limit(300.0)
        assert owned.guard_pid is not None
        monkeypatch.delenv("FILECARD")
        os.kill(owned.guard_pid, signal.SIGKILL)
        wait_for(lambda: psutil.Process(owned.guard_pid).status() == psutil.STATUS_ZOMBIE)
        with pytest.raises(LeaseLostError, match="has lost its guard"):
            owned.read()
        assert settings(card)[0] == 350.0 and owned.read()
        with pytest.raises(CardError, match="guard could not be armed"):
            owned.set_power_limit(290.0)


def test_end_that_fails_keeps_the_lease(card: FileCard, own: Own, lease_file: Path) -> None:
    """A card that refuses at the end is an error; the guard goes on trying, and succeeds when the card answers."""
    owned = own()
    owned.set_power_limit(300.0)
    guard = psutil.Process(owned.guard_pid)
    card.set(fails=["limit"])
    owned._watch.release = _in_no_time(owned._watch.release)  # type: ignore[union-attr, method-assign]
    with pytest.raises(CardError, match="no answer"):
        owned.close()
    assert lease_file.exists() and card.closed
    card.set(fails=[])
    wait_for(lambda: not lease_file.exists())
    assert settings(card)[0] == 350.0
    guard.wait(10)


def _in_no_time(release: Callable[[float], bool]) -> Callable[[float], bool]:
    return lambda wait_s: release(0.0)


def test_guard_that_does_not_end(card: FileCard, own: Own, lease_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as a guard that was let go may still write to the card, the owner does not; then it may begin anew."""
    monkeypatch.setattr(tasks.governor.owned, "_GUARD_ENDS_S", 0.01)
    with own() as owned:
        owned.set_power_limit(300.0)
        assert owned.guard_pid is not None
        os.kill(owned.guard_pid, signal.SIGSTOP)
        lease_file.unlink()
        for _ in range(2):
            with pytest.raises(LeaseLostError, match="still putting it back"):
                owned.set_power_limit(290.0)
        assert settings(card)[0] == 300.0
        os.kill(owned.guard_pid, signal.SIGCONT)
        monkeypatch.setattr(tasks.governor.owned, "_GUARD_ENDS_S", 5.0)
        with pytest.raises(LeaseLostError, match="was put back"):
            owned.set_power_limit(290.0)
        assert settings(card)[0] == 350.0


def test_closed_is_closed(card: FileCard, own: Own) -> None:
    """After the end nothing is changed any more, and a second end does nothing."""
    with own() as owned:
        owned.set_power_limit(300.0)
    owned.close()
    with pytest.raises(CardError, match="was given back"):
        owned.lock_clock(1000)
    assert settings(card) == (350.0, None)


def test_lost_card_at_the_end(card: FileCard, own: Own, lease_file: Path) -> None:
    """A card that fell off the bus is said so, and the lease stays for when it is back."""
    owned = own()
    owned.set_power_limit(300.0)
    guard = psutil.Process(owned.guard_pid)
    card.set(lost=True)
    with pytest.raises(CardLostError):
        owned.close()
    assert lease_file.exists()
    guard.kill()
