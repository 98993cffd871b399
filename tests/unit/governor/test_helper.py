"""Setting a card by deploy/nightbatch-power: what it lets through, what it refuses, and what its owner makes of that."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.governor.device import CardError, CardLostError, Device, RefusedError
from tasks.governor.helper import HelpedDevice
from tests.unit.governor.filecard import UUID, FileCard

HELPER = Path(__file__).parents[3] / "deploy" / "nightbatch-power"
_NVIDIA_SMI = f"""#!{sys.executable}
import json, sys
arguments, path, code = sys.argv[1:], {{path!r}}, {{code}}
state = json.loads(open(path).read())
state["log"].append(arguments)
if not code and "-pl" in arguments: state["requested_w"] = float(arguments[-1])
if not code and "-lgc" in arguments: state["locked_mhz"] = int(arguments[-1].split(",")[1])
if not code and "-rgc" in arguments: state["locked_mhz"] = None
open(path, "w").write(json.dumps(state))
sys.exit(code)
"""


@pytest.fixture
def card(tmp_path: Path) -> FileCard:
    return FileCard(tmp_path / "card.json")


@pytest.fixture
def install(tmp_path: Path, card: FileCard) -> Callable[..., Path]:
    """The helper with this card in its list, on an nvidia-smi that ends with this code."""

    def write(code: int = 0) -> Path:
        smi, helper = tmp_path / "nvidia-smi", tmp_path / "nightbatch-power"
        smi.write_text(_NVIDIA_SMI.format(path=str(card.path), code=code))
        text = HELPER.read_text().replace("NVIDIA_SMI=/usr/bin/nvidia-smi", f"NVIDIA_SMI={smi}")
        helper.write_text(text.replace("\nGPU-00000000-0000-0000-0000-000000000000 ", f"\n{UUID} "))
        for path in (smi, helper):
            path.chmod(0o755)
        return helper

    return write


def test_both_verbs(card: FileCard, install: Callable[..., Path]) -> None:
    """Limit, lock and unlock reach nvidia-smi with this card alone, to the milliwatt, the lowest clock as the lower end."""
    device: Device = HelpedDevice(card, [str(install())])
    device.set_power_limit(437.005)
    device.lock_clock(1200)
    assert (device.requested_w(), card.state["locked_mhz"]) == (437.005, 1200)
    device.unlock_clock()
    assert card.state["log"] == [
        ["-i", UUID, "-pl", "437.005"],
        ["-i", UUID, "-lgc", "345,1200"],
        ["-i", UUID, "-rgc"],
    ]
    assert device.card.no_clock is None and device.read().energy_j == 1000.0
    device.close()
    assert card.closed


@pytest.mark.parametrize(
    "arguments",
    [
        ("limit", UUID, "700001"),
        ("limit", UUID, "199999"),
        ("limit", UUID, "300000 -e 0"),
        ("limit", UUID, "-1"),
        ("limit", UUID, "3e5"),
        ("limit", UUID, ""),
        ("limit", UUID, "0300000"),
        ("limit", UUID, "99999999999999999999"),
        ("limit", UUID, "$(id)"),
        ("limit", "GPU-1", "300000"),
        ("limit", "", "300000"),
        ("limit", f"{UUID} -r", "300000"),
        ("limit", f"{UUID}\nGPU-1", "300000"),
        ("clock", UUID, "344"),
        ("clock", UUID, "1981"),
        ("reset", UUID, "1"),
        ("limit", UUID),
        ("limit", UUID, "300000", "-r"),
        (),
    ],
)
def test_everything_else_is_refused(card: FileCard, install: Callable[..., Path], arguments: tuple[str, ...]) -> None:
    """Another verb, card, number or count of arguments ends with 2 and a reason, and nvidia-smi is not called."""
    done = subprocess.run([install(), *arguments], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("nightbatch-power: ")
    assert card.state["log"] == []


@pytest.mark.parametrize(
    ("code", "kind"), [(4, RefusedError), (3, RefusedError), (15, CardLostError), (9, CardError), (255, CardError)]
)
def test_what_nvidia_smi_ends_with(card: FileCard, install: Callable[..., Path], code: int, kind: type[Exception]) -> None:
    """No permission is a refusal, a lost card is lost, and of anything else it is not known what happened."""
    with pytest.raises((CardError, CardLostError)) as caught:
        HelpedDevice(card, [str(install(code))]).set_power_limit(300.0)
    assert type(caught.value) is kind


def test_helper_that_is_not_there(card: FileCard, tmp_path: Path) -> None:
    """A wrong path is a refusal that names it."""
    with pytest.raises(RefusedError, match="no-helper limit GPU-0 300000 cannot be run"):
        HelpedDevice(card, [str(tmp_path / "no-helper")]).set_power_limit(300.0)
    with pytest.raises(RefusedError, match="0 MHz"):
        HelpedDevice(card, ["true"]).lock_clock(0)


def test_helper_that_does_nothing(card: FileCard) -> None:
    """A limit that was not taken over is noticed."""
    with pytest.raises(CardError, match="asked for a power limit of 300 W, and has 350 W"):
        HelpedDevice(card, ["true"]).set_power_limit(300.0)


def test_the_file_can_be_run() -> None:
    """The helper is in the repository as an executable."""
    assert os.access(HELPER, os.X_OK)
