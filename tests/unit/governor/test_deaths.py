"""Death at every single step of an owner's life, without a guard: what is left can always be put right from the lease."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tasks.governor.owned
from tasks.governor.device import CardError
from tasks.governor.lease import lease_path, read_lease, write_lease
from tasks.governor.owned import OwnedDevice
from tasks.governor.restore import restore_all
from tasks.governor.watch import Sight
from tests.unit.governor.filecard import UUID, FileCard

_OURS_W = (300.0, 310.0, 320.0)
_THEIRS_W = (200.0, 250.0)
Life = Callable[[OwnedDevice], None]


class Dead(BaseException):
    """What nobody catches."""


class NoGuard:
    """In the guard's place: one that died with its owner."""

    pid = 0
    has_ended = False

    def __init__(self, *given: Any) -> None:
        pass

    def beat(self) -> None:
        pass

    def sight(self) -> Sight:
        return Sight.ON_WATCH

    def release(self, wait_s: float) -> bool:
        return True


class Countdown:
    """Dies at the so manieth step."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self, step: str = "") -> None:
        self.left -= 1
        if self.left == 0:
            raise Dead


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Life, int], tuple[FileCard, bool]]:
    """Leads a life up to its so manieth step; the card, and whether it came to its end before."""
    monkeypatch.setattr(tasks.governor.owned, "Watch", NoGuard)

    def lead(life: Life, steps: int) -> tuple[FileCard, bool]:
        for path in tmp_path.iterdir():
            path.unlink()
        count = Countdown(steps)

        def record(path: Path, lease: Any) -> None:
            count()
            write_lease(path, lease)
            count()

        monkeypatch.setattr(tasks.governor.owned, "write_lease", record)
        card = FileCard(tmp_path / "card.json", before=count, after=count)
        owned = OwnedDevice(card, tmp_path, "", wait_s=0)
        try:
            life(owned)
            owned.close()
        except Dead:
            return card, False
        finally:
            owned._held.close()
        return card, True

    return lead


def _whole(owned: OwnedDevice) -> None:
    owned.lock_clock(1500)
    owned.set_power_limit(300.0)
    owned.set_power_limit(310.0)
    owned.lock_clock(1000)
    owned.unlock_clock()
    owned.set_power_limit(320.0)


def test_death_at_every_step(live: Callable[[Life, int], tuple[FileCard, bool]], tmp_path: Path) -> None:
    """Before and after each record, and before and after each call of the driver, up to the last one of putting back."""
    for step in range(1, 200):
        card, has_ended = live(_whole, step)
        card.before = card.after = lambda call: None
        done = restore_all(tmp_path, {UUID: card}.__getitem__)
        state = card.state
        assert (state["requested_w"], state["locked_mhz"]) == (350.0, None), (step, done)
        assert read_lease(lease_path(tmp_path, UUID)) is None
        if has_ended:
            break
    assert 30 < step < 199


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    acts=st.lists(st.sampled_from([*_OURS_W, *_THEIRS_W, "clock", "unlock", "no answer"]), max_size=8),
    step=st.integers(1, 60),
)
def test_theirs_stays_and_ours_goes(
    live: Callable[[Life, int], tuple[FileCard, bool]], tmp_path: Path, acts: list[Any], step: int
) -> None:
    """Whatever an owner and somebody else set, and whenever the owner dies: the limit in the end is the one from before or
    somebody else's last one, and the clock is free."""
    theirs: list[float] = [350.0]

    def life(owned: OwnedDevice) -> None:
        for act in acts:
            with suppress(CardError):
                if act in _THEIRS_W:
                    owned._device.set(requested_w=act)  # type: ignore[attr-defined]
                    theirs.append(act)
                elif act in _OURS_W:
                    owned.set_power_limit(act)
                elif act == "clock":
                    owned.lock_clock(1000)
                elif act == "unlock":
                    owned.unlock_clock()
                else:
                    owned._device.set(fails=["limit"])  # type: ignore[attr-defined]
                    owned.set_power_limit(_OURS_W[0])
            owned._device.set(fails=[])  # type: ignore[attr-defined]

    card, _ = live(life, step)
    card.set(fails=[])
    card.before = card.after = lambda call: None
    restore_all(tmp_path, lambda uuid: card)
    state = card.state
    assert (state["requested_w"], state["locked_mhz"]) == (theirs[-1], None)
