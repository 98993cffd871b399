"""A card is as it was before us, whatever dies: real processes on the stub driver, killed, stopped, starved and refused."""

import json
import os
import random
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.gpu.machine import Machine
from tests.gpu.stub import LOST, CompilerMissingError, Stub, build

_NUM_KILLS = 50


@pytest.fixture(scope="session")
def _library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return build(tmp_path_factory.mktemp("nvml"))
    except CompilerMissingError as error:
        pytest.skip(str(error))


@pytest.fixture
def machine(_library: Path, tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(Stub(tmp_path, library=_library), tmp_path / "leases")
    yield machine
    machine.close()


def test_killed_group_at_random_moments(machine: Machine) -> None:
    """SIGKILL of the owner's whole process group at 50 random moments: limit and clock are back each time, within 1 s."""
    dice, times_s = random.Random(6), []
    for number in range(_NUM_KILLS):
        owner = machine.own(seed=number)
        if number % 5:
            machine.wait_until(lambda: not machine.is_as_before)
            time.sleep(dice.uniform(0, 0.1))
        else:
            time.sleep(dice.uniform(0, 0.4))
        was_changed = not machine.is_as_before
        killed = machine.kill(owner)
        restored = machine.wait_until_restored()
        if was_changed:
            times_s.append(restored - killed)
    assert len(times_s) >= 40
    print(f"restored after {1e3 * statistics.median(times_s):.1f} ms, at most {1e3 * max(times_s):.1f} ms ({len(times_s)})")
    assert max(times_s) < 1.0
    assert machine.restore()[0] == 0 and machine.is_as_before and not machine.lease.exists()


def test_next_start_races_with_the_guard(machine: Machine) -> None:
    """A start at the moment of the owner's death waits for the guard, or finds the work done; both leave the card whole."""
    for number in range(4):
        owner = machine.own(seed=number)
        machine.wait_until(lambda: not machine.is_as_before)
        following = machine.own("start")
        time.sleep(0.05 * number)
        machine.kill(owner)
        out, err = following.communicate(timeout=30)
        assert (out, following.returncode) in (("free\n", 0), ("", 1)), err
        machine.wait_until_restored()


@pytest.mark.parametrize("again", ["start", "restore"])
def test_killed_with_its_guard(machine: Machine, again: str) -> None:
    """Without a guard the card stays as the dead have left it, until the next start or `power restore` puts it back."""
    dice = random.Random(again)
    for number in range(5):
        owner = machine.own(seed=number)
        machine.wait_until(lambda: not machine.is_as_before)
        time.sleep(dice.uniform(0, 0.1))
        machine.kill_with_guard(owner)
        if again == "restore":
            assert machine.restore()[0] == 0
        else:
            out, err = machine.own("start").communicate(timeout=30)
            assert machine.uuid in out and "an earlier run's lease" in err
        assert machine.is_as_before and not machine.lease.exists()


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("call", ["fsync", "rename"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_killed_around_a_record(machine: Machine, faults: Mapping[str, str], call: str, side: str, nth: int) -> None:
    """Death just before or after any step of a lease's way to the disk leaves a card that is put back."""
    kill = {
        "FAULT_KILL": call,
        "FAULT_SIDE": side,
        "FAULT_NTH": str(nth),
        "FAULT_PATH": ".lease",
        "FAULT_ONLY": "OwnedDevice",
    }
    owner = machine.own("end", env={**faults, **kill})
    assert owner.wait(30) == -signal.SIGKILL
    machine.wait_until(lambda: not machine.lease.exists() or nth == 1)
    assert machine.is_as_before
    assert machine.restore()[0] == 0
    assert machine.is_as_before and not machine.lease.exists()


def test_ends_of_its_own(machine: Machine) -> None:
    """A normal end and an exception put everything back before the process ends."""
    for how, code in (("end", 0), ("raise", 1)):
        owner = machine.own(how)
        assert owner.wait(30) == code
        assert machine.is_as_before and not machine.lease.exists()


def test_asked_to_end_with_its_guard(machine: Machine) -> None:
    """SIGTERM, SIGINT and SIGHUP to owner and guard, as a service manager sends them, end the owner alone."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        owner = machine.hold()
        guard = machine.guard_of(owner)
        guard.send_signal(number)
        owner.send_signal(number)
        owner.wait(30)
        machine.wait_until_restored()
        machine.wait_until(partial(_has_ended, guard))


def _has_ended(process: psutil.Process) -> bool:
    """Whether it has; nobody may have asked yet how."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_stopped_owner_loses_the_card(machine: Machine) -> None:
    """An owner that stands still at a random moment is taken for dead after two periods; going on, it writes no more."""
    dice = random.Random(8)
    for number in range(6):
        owner = machine.own(seed=number, period_s=0.1)
        machine.wait_until(lambda: not machine.is_as_before)
        time.sleep(dice.uniform(0, 0.05))
        stopped = time.monotonic()
        os.killpg(owner.pid, signal.SIGSTOP)
        restored = machine.wait_until_restored()
        assert restored - stopped < 0.2 + 0.5
        os.killpg(owner.pid, signal.SIGCONT)
        _, err = owner.communicate(timeout=30)
        assert err.startswith("LeaseLostError: ") and "was put back" in err
        assert machine.is_as_before and not machine.lease.exists()


def test_owner_in_a_driver_that_hangs(machine: Machine) -> None:
    """A call that does not return shows no life either: the guard puts the card back past it."""
    owner = machine.hold(period_s=0.1)
    machine.stub.fault("DeviceGetTemperatureV", delay_s=float("inf"))
    machine.wait_until_restored()
    assert owner.poll() is None
    machine.stub.mend("DeviceGetTemperatureV")
    assert "LeaseLostError" in owner.communicate(timeout=30)[1]
    assert machine.is_as_before


def test_driver_that_fails_for_a_while(machine: Machine) -> None:
    """The guard tries again while the card is lost or does not answer."""
    owner = machine.hold()
    machine.stub.fault("DeviceSetPowerManagementLimit", 10, times=2)
    machine.kill(owner)
    machine.wait_until_restored()
    owner = machine.hold()
    machine.stub.card.error = LOST
    machine.kill(owner)
    time.sleep(0.1)
    assert machine.lease.exists()
    machine.stub.card.error = 0
    machine.wait_until_restored()


def test_another_writer(machine: Machine) -> None:
    """A limit that somebody else has set since stays after our death; the clock is unlocked, and the log says so."""
    owner = machine.hold()
    machine.stub.card.requested_mw = 250_000
    machine.kill(owner)
    said = "the power limit is 250 W, and not 400 W as we left it"
    machine.wait_until(lambda: said in machine.lease.with_suffix(".log").read_text())
    assert machine.settings == (250_000, 0) and not machine.lease.exists()


def test_second_run_on_the_card(machine: Machine) -> None:
    """It is refused, told who has the card, and changes nothing; `power restore` leaves the living alone."""
    owner = machine.hold()
    second = machine.own()
    err = second.communicate(timeout=30)[1]
    assert err.startswith(f"LockedError: {machine.uuid}: ") and f"process {owner.pid} " in err
    code, out = machine.restore()
    assert (code, out.split(":")[0]) == (0, "held") and f"process {owner.pid} " in out
    assert machine.settings == (400_000, 1200)


def test_another_boot_or_driver(machine: Machine) -> None:
    """After a boot or a reload of the driver the lease is dropped, and what stands by then stays."""
    machine.kill_with_guard(machine.hold())
    lease = json.loads(machine.lease.read_text())
    machine.lease.write_text(json.dumps(lease | {"boot_id": "another"}))
    assert machine.restore()[1].startswith("dropped: ")
    assert machine.settings == (400_000, 1200) and not machine.lease.exists()
    machine.lease.write_text(json.dumps(lease))
    machine.stub.load()
    machine.stub.card.lock_max_mhz = 900
    assert machine.restore()[1].startswith("dropped: ")
    assert machine.settings == (700_000, 900) and not machine.lease.exists()


def test_damaged_lease(machine: Machine) -> None:
    """Restore and the next start fail with the file's name and what to do; the card is not touched."""
    machine.kill_with_guard(machine.hold())
    machine.lease.write_bytes(machine.lease.read_bytes()[:100])
    calls = len(machine.stub.calls)
    code, out = machine.restore()
    assert code == 1 and str(machine.lease) in out and "remove the file" in out
    assert "DamageError: " in machine.own().communicate(timeout=30)[1]
    assert len(machine.stub.calls) == calls and machine.lease.exists()


_HELPER = """
import sys, pynvml as n
verb, uuid, value = sys.argv[1], sys.argv[2], int(sys.argv[3])
n.nvmlInit()
card = n.nvmlDeviceGetHandleByUUID(uuid)
if verb == "limit":
    n.nvmlDeviceSetPowerManagementLimit(card, value)
elif value:
    n.nvmlDeviceSetGpuLockedClocks(card, 345, value)
else:
    n.nvmlDeviceResetGpuLockedClocks(card)
"""


def test_through_a_helper(machine: Machine, tmp_path: Path) -> None:
    """With a helper neither the owner nor its guard sets anything itself, and what the dead left is put back through it."""
    (script := tmp_path / "helper.py").write_text(_HELPER)
    owner = machine.hold(env={"NIGHTBATCH_POWER_HELPER": f"{sys.executable} {script}"})
    guard = machine.guard_of(owner).pid
    machine.kill(owner)
    machine.wait_until_restored()
    callers = [call.process for call in machine.stub.calls]
    assert len(set(callers)) == len(callers) == 4 and not {owner.pid, guard} & set(callers)


def test_full_disk(machine: Machine, small_disk: Callable[..., Path]) -> None:
    """Where the lease does not fit on the disk, nothing is asked of the card; when a later one does not, nothing more."""
    small_disk(machine.state, 8192)
    (machine.state / "ballast").write_bytes(bytes(4096))
    err = machine.own().communicate(timeout=30)[1]
    assert "the card is left alone: disk full" in err and str(machine.state) in err
    assert machine.stub.calls == [] and not machine.lease.exists()
    small_disk(machine.state, 5 * 4096)
    owner = machine.own()
    machine.wait_until(lambda: not machine.is_as_before)
    machine.wait_until(lambda: _fill(machine.state / "more", 2 * 4096))
    assert "disk full" in owner.communicate(timeout=30)[1]
    machine.wait_until_restored()


def test_read_only_disk(machine: Machine, small_disk: Callable[..., Path]) -> None:
    """Where nothing can be written, no lease can be kept, and the card is left alone."""
    small_disk(machine.state, 8192, "ro")
    err = machine.own().communicate(timeout=30)[1]
    assert "no lease can be kept, so the card is left alone: read-only disk" in err and str(machine.state) in err
    assert machine.stub.calls == []


def _fill(path: Path, size: int) -> bool:
    """Whether the file has its size: there may be no room for it at this moment."""
    try:
        path.write_bytes(bytes(size))
    except OSError:
        path.unlink()
        return False
    return True


def test_without_permission(machine: Machine) -> None:
    """A refused write leaves the card, no lease and no guard."""
    machine.stub.state.root = 0
    err = machine.own().communicate(timeout=30)[1]
    assert err.startswith("RefusedError: ") and "NoPermission" in err
    assert [call.code for call in machine.stub.calls] == [4] and machine.is_as_before and not machine.lease.exists()
