"""What may be set is read from what the process is."""

import os
from pathlib import Path

import pytest

from tasks.governor.rights import RECIPE, Rights, read_rights

_ALL = 0x1FF_FFFF_FFFF


@pytest.mark.parametrize(
    ("rights", "says"),
    [
        (Rights(0, _ALL, 0), None),
        (Rights(0, _ALL, None), None),
        (Rights(1000, 1 << 21, 0), None),
        (Rights(1000, 0, 0), "user 1000"),
        (Rights(0, _ALL & ~(1 << 21), 0), "root here"),
        (Rights(0, _ALL, 65534), "user namespace"),
    ],
    ids=["root", "no device", "capability", "user", "container", "namespace"],
)
def test_who_may(rights: Rights, says: str | None) -> None:
    """Who has CAP_SYS_ADMIN, unless the driver's device is nobody's."""
    assert rights.why_not is None if says is None else says in (rights.why_not or "")


def test_this_process(tmp_path: Path) -> None:
    """User, effective capabilities and the device's owner as the system has them."""
    (status := tmp_path / "status").write_text("Name:\tx\nCapPrm:\t0000000000000000\nCapEff:\t0000000000200000\n")
    (device := tmp_path / "nvidiactl").touch()
    assert read_rights(status, device) == Rights(os.geteuid(), 1 << 21, os.geteuid())
    assert read_rights(tmp_path / "none", tmp_path / "none") == Rights(os.geteuid(), 0, None)
    real = read_rights()
    assert real.user == os.geteuid() and (real.capabilities > 0 or os.geteuid() != 0)


def test_the_recipe_gives_one_capability() -> None:
    """Every way in it names it."""
    assert RECIPE.lower().count("sys_admin") >= 5
