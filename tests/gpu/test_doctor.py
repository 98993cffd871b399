"""The doctor's GPU page on a driver: what its cards say comes through a process of its own, and a hung one is not waited
for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.doctor.examine import examine
from tasks.doctor.finding import Finding, State
from tasks.doctor.look import look_at_cards
from tasks.storage.layout import Layout
from tests.gpu.stub import LOST, Stub

MakeStub = Callable[..., Stub]


@pytest.fixture
def on_stub(make_stub: MakeStub, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Stub]:
    """Processes that are started find these cards; leases are looked for in a folder that is not there."""

    def make(*cards: dict[str, Any]) -> Stub:
        stub = make_stub(*cards)
        for name, value in stub.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("NIGHTBATCH_STATE_DIR", str(stub.path.with_name("leases")))
        return stub

    return make


def gpu_page(folder: Path) -> list[Finding]:
    found = examine(Layout(folder, folder), model="echo")
    return [one for one in found.findings if one.page == "gpu"]


def test_what_a_card_says(on_stub: Callable[..., Stub], tmp_path: Path) -> None:
    """Its name, memory, driver, limits and whether it may be set, as the driver has them."""
    on_stub({}, {"requested_mw": 0})
    first, *_ = gpu_page(tmp_path)
    for words in ("0: NVIDIA H100 80GB HBM3", "86 GB", "570.00.stub", "700 W (200 to 700)", "1,980 MHz", "slows down at 89"):
        assert words in first.what, words


def test_readings_come_over(on_stub: Callable[..., Stub]) -> None:
    """Each card with its values, its throttle reasons among them; a lost one is the reason why there are no more."""
    stub = on_stub({"temperature_c": 83, "reasons": 0x20}, {"power_mw": 500_000})
    found = look_at_cards()
    (hot, one), (other, two) = found.found
    assert (hot.index, other.index, hot.clocks_mhz[-1]) == (0, 1, 1980)
    assert one is not None and two is not None
    assert (one.temperature_c, two.power_w) == (83, 500)
    assert one.throttle is not None and one.throttle.name == "SW_THERMAL"
    stub.fault("DeviceGetFieldValues", LOST, card=1)
    found = look_at_cards()
    assert ([card.index for card, _ in found.found], "fallen off the bus" in found.reason) == ([0], True)


def test_faults_are_on_the_page(on_stub: Callable[..., Stub], tmp_path: Path) -> None:
    """A hot card, one that somebody computes on and one with a lowered limit have a warning each, by their index."""
    on_stub({"reasons": 0x40}, {"memory_used_bytes": 70 << 30})
    warnings = [one.what for one in gpu_page(tmp_path) if one.state is State.WARNING]
    assert any("0: NVIDIA H100 80GB HBM3 slows itself down (hw_thermal)" in what for what in warnings)
    assert any("1: NVIDIA H100 80GB HBM3: 75.2 of 86 GB are in use" in what for what in warnings)


def test_a_driver_that_hangs_is_not_waited_for(on_stub: Callable[..., Stub]) -> None:
    """It is a problem, and the look ends all the same."""
    stub = on_stub()
    stub.fault("DeviceGetCount_v2", delay_s=float("inf"))
    found = look_at_cards(timeout_s=1.0)
    assert (found.found, found.is_ill) == ((), True)
    assert "did not answer within 1 s" in found.reason
