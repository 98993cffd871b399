"""Commands on a simulated card in real time: what they set acts, and what the card went through is told."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tasks.governor.cards import A10G, H100
from tasks.governor.device import CardLostError
from tasks.governor.events import Event, Kind
from tasks.governor.nvml import NvmlDevice
from tasks.governor.rights import Rights
from tasks.governor.sample import Throttle
from tasks.storage.limit import write_limit
from tests.gpu.physics import Physics, as_stub, load
from tests.gpu.stub import LOST

if TYPE_CHECKING:
    from tests.gpu.conftest import MakeStub
    from tests.gpu.stub import Stub

REPOSITORY = Path(__file__).parent.parent.parent
ROOT = Rights(0, 1 << 21, 0)

_OPEN = """
import sys, time
from tasks.governor.device import CardError
from tasks.governor.nvml import NvmlDevice, cards
card, = cards().cards
device = NvmlDevice(card.uuid)
def until(is_so, within_s=30):
    began = time.monotonic()
    while not is_so(sample := device.read()):
        assert time.monotonic() - began < within_s, sample
        time.sleep(0.02)
    return sample
"""

Play = Callable[..., tuple[int, str, dict[str, Any]]]


@pytest.fixture
def play(stub_library: Path, tmp_path: Path) -> Play:
    """Plays the code; what came of it: exit code, standard output, report."""

    def run(code: str, *options: str) -> tuple[int, str, dict[str, Any]]:
        report = tmp_path / "report.json"
        command = [sys.executable, "-m", "tests.gpu.play", "--report", str(report), *options]
        command += ["--", sys.executable, "-c", _OPEN + code]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
        assert report.exists(), done.stderr
        return done.returncode, done.stdout, json.loads(report.read_text())

    return run


def test_a_lock_and_a_limit_act(play: Play) -> None:
    """The card draws less once its clock is locked, and less still under a limit; what stays set is told, and the command's
    own exit code is the play's."""
    code, out, seen = play(
        """
full = until(lambda sample: sample.power_w > 600)
device.lock_clock(1200)
locked = until(lambda sample: sample.power_w < 0.8 * full.power_w and sample.sm_clock_mhz <= 1200)
device.set_power_limit(350)
limited = until(lambda sample: sample.power_w < 355)
print(locked.power_w > 360, limited.enforced_w)
sys.exit(7)
""",
        *("--load", "prefill", "--speed", "10", "--linger", "0"),
    )
    assert (code, out) == (7, "True 350.0\n")
    assert seen["sets"] == {"DeviceSetGpuLockedClocks": 1, "DeviceSetPowerManagementLimit": 1}
    assert (seen["is_put_back"], seen["lowest_clock_mhz"], seen["lowest_limit_w"]) == (False, 1200, 350)


def test_what_is_put_back_is_told(play: Play) -> None:
    """No lock, and the limit that was there."""
    code, _, seen = play(
        "device.lock_clock(900); device.set_power_limit(300); device.set_power_limit(700); device.unlock_clock()"
    )
    assert (code, seen["is_put_back"], sum(seen["sets"].values())) == (0, True, 4)


_DIES = """
import os, signal
device.lock_clock(900)
if os.fork():
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(0.5)
device.unlock_clock()
"""


def test_who_outlives_the_command_may_put_it_back(play: Play) -> None:
    """A process that is still there when the command was killed is waited for; the exit code tells the signal."""
    code, _, seen = play(_DIES)
    assert (code, seen["is_put_back"]) == (128 + 9, True)


def test_a_stop_is_the_command_s_own(stub_library: Path) -> None:
    """Terminating the play terminates the command, which ends as it wants to."""
    trap = "trap 'echo stopping; sleep 0.3; exit 5' TERM; echo begun; while true; do sleep 0.05; done"
    command = [sys.executable, "-m", "tests.gpu.play", "--", "sh", "-c", trap]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        process.terminate()
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (5, "stopping\n")
    assert "put back as it was" in err


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
def test_a_command_without_rights(play: Play) -> None:
    """It sees that it may set nothing, and what it tries all the same is refused."""
    code, out, seen = play(
        """
print(card.no_clock is not None and card.no_clock == card.no_power)
try:
    device.lock_clock(900)
except CardError as error:
    print("CAP_SYS_ADMIN" in str(error))
""",
        "--no-root",
    )
    assert (code, out, seen["is_put_back"]) == (0, "True\nTrue\n", True)
    assert seen["sets"] == {"DeviceSetGpuLockedClocks": 1}


def test_what_cannot_be_asked_for(tmp_path: Path) -> None:
    """No command, an event that is none, and a command that is not there: each in one clear line."""
    for options, says in (
        ([], "a command is missing"),
        (["--event", "fire@3", "--", "true"], "'fire@3' is not KIND@AT"),
        (["--", "no-such-command"], "no-such-command: No such file or directory"),
    ):
        command = [sys.executable, "-m", "tests.gpu.play", *options]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode in (2, 127) and says in done.stderr


@pytest.fixture
def card(make_stub: "MakeStub", loaded: Callable[..., None]) -> Callable[..., tuple["Stub", Physics, NvmlDevice]]:
    """A card under the given events, which moves only step by step."""

    def make(of: Any = H100, *events: Event, **given: Any) -> tuple["Stub", Physics, NvmlDevice]:
        stub = make_stub(as_stub(of))
        physics = Physics(stub, [of], [events], **given)
        loaded(stub)
        clock = lambda: physics.room.now_s  # noqa: E731
        return stub, physics, NvmlDevice(stub.card.uuid.decode(), rights=ROOT, clock=clock)

    return make


def _steps(physics: Physics, seconds: float) -> None:
    for _ in range(round(seconds * 10)):
        physics.step()


@pytest.mark.parametrize("of", [H100, A10G], ids=["H100", "A10G"])
def test_a_hot_card_through_nvml(card: Any, of: Any) -> None:
    """Whole degrees, power as a mean, energy as its sum, and hardware's own slowdown with its bits and its time."""
    _, physics, device = card(of, *load("prefill"), Event(Kind.FAN, 0.0, size=2.2))
    first = device.read()
    _steps(physics, 240)
    last = device.read()
    die_c = float(physics.room.plant.die_c[0])
    assert last.temperature_c is not None and die_c - 2 <= last.temperature_c <= die_c + 1
    assert die_c > of.max_c - 1 and last.throttle is not None and last.throttle & Throttle.SW_THERMAL
    assert last.thermal_ns is not None and last.thermal_ns > 10**9
    assert last.energy_j == pytest.approx((first.energy_j or 0) + float(physics.room.plant.sensors.energy_j[0]), rel=1e-3)
    assert (last.margin_c is None) is not of.margins_only
    assert device.card.max_c == of.max_c
    device.close()


def test_fewer_sequences_draw_less(card: Any, tmp_path: Path) -> None:
    """The share of the batch that may run acts on the card, as the engine's would."""
    allowed = [1.0]
    _, physics, device = card(H100, *load("decode"), bound=lambda: allowed[0])
    _steps(physics, 5)
    full = device.read()
    allowed[0] = 0.0
    _steps(physics, 5)
    paused = device.read()
    assert paused.power_w < 0.6 * full.power_w
    assert (full.utilization, paused.utilization) == (1, 0)
    device.close()


def test_another_writer_of_the_events(card: Any) -> None:
    """A limit that somebody else sets is there for every process, and one set after it stays."""
    stub, physics, device = card(H100, *load("prefill"), Event(Kind.WRITER, 1.0, size=500))
    _steps(physics, 2)
    assert (device.requested_w(), stub.card.requested_mw) == (500, 500_000)
    device.set_power_limit(450)
    _steps(physics, 2)
    assert device.requested_w() == 450 and device.read().power_w < 460
    device.close()


def test_a_card_that_burns_is_lost(card: Any) -> None:
    """At its shutdown temperature it falls off the bus, for every process."""
    stub, physics, device = card(H100, *load("prefill"), Event(Kind.FAN, 0.0, size=12.0), inlet_c=60.0)
    _steps(physics, 120)
    assert stub.card.error == LOST
    with pytest.raises(CardLostError):
        device.read()
    device.close()


def test_the_newest_limit_counts(play: Play, tmp_path: Path) -> None:
    """Of the files that tell the engine how many sequences may run."""
    for name, number in (("older", 256), ("newer", 0)):
        write_limit(tmp_path / f"{name}.limit", number, fallback=0, holds_s=1e9, now_s=time.monotonic())
    os.utime(tmp_path / "older.limit", (0, 0))
    options = ("--load", "decode", "--limit", str(tmp_path / "*.limit"))
    code, _, _ = play("until(lambda sample: sample.energy_j > 20 and sample.utilization == 0)", *options)
    assert code == 0
