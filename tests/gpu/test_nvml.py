"""NvmlDevice on the stub driver, by the binding's own path: what the other device's contract cannot ask."""

import math
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pynvml
import pytest

from tasks.governor.device import CardError, CardLostError
from tasks.governor.nvml import NvmlDevice, cards
from tasks.governor.readings import Field
from tasks.governor.rights import Rights
from tasks.governor.sample import Throttle
from tests.gpu.stub import LOST, RESET_REQUIRED, SOURCE, build

if TYPE_CHECKING:
    from tests.gpu.conftest import MakeStub
    from tests.gpu.stub import Stub

ROOT = Rights(user=0, capabilities=1 << 21, device_owner=0)
Load = Callable[..., None]
OLD = {
    "name": b"NVIDIA A10G",
    "tlimit": 0,
    "gpm": 0,
    "links": 0,
    "memory_temperature_c": 0,
    "threshold_memory_c": 0,
    "ecc_errors": -1,
}


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_card(loaded: Load, clock: Clock) -> Any:
    """Opens the stub's card in this process; devices are closed after the test."""
    opened: list[NvmlDevice] = []

    def make(stub: "Stub", library: Path | None = None) -> NvmlDevice:
        loaded(stub, library)
        opened.append(NvmlDevice(stub.card.uuid.decode(), rights=ROOT, clock=clock))
        return opened[-1]

    yield make
    for device in opened:
        device.close()


@pytest.fixture
def device(open_card: Any, stub: "Stub") -> NvmlDevice:
    made: NvmlDevice = open_card(stub)
    return made


def test_a_hopper_card(device: NvmlDevice) -> None:
    """Limits in °C come from the margins: temperature plus margin, and what slowdown and shutdown are from there."""
    card = device.card
    assert (card.name, card.index, card.driver, card.memory_bytes) == ("NVIDIA H100 80GB HBM3", 0, "570.00.stub", 80 << 30)
    assert (card.max_c, card.slowdown_c, card.shutdown_c, card.memory_max_c) == (87, 89, 95, None)
    assert (card.default_w, card.min_w, card.max_w) == (700, 200, 700)
    assert (card.clocks_mhz[0], card.clocks_mhz[-1], card.no_clock, card.no_power) == (345, 1980, None, None)


def test_an_older_card(open_card: Any, make_stub: "MakeStub") -> None:
    """It has absolute limits, and says neither margins nor activities; what it does not say is None, with the reason."""
    device = open_card(make_stub({**OLD, "threshold_memory_c": 95, "memory_temperature_c": 60}))
    assert (device.card.max_c, device.card.slowdown_c, device.card.shutdown_c, device.card.memory_max_c) == (87, 89, 95, 95)
    sample = device.read()
    assert (sample.margin_c, sample.sm_activity, sample.nvlinks_active, sample.ecc_errors) == (None, None, None, None)
    assert sample.memory_margin_c == 35
    assert device.reasons["margin_c"] == "this card does not offer it (NotSupported from nvmlDeviceGetMarginTemperature)"
    assert "Hopper" in device.reasons["tensor_activity"]
    assert {"nvlinks_active", "ecc_errors"} <= device.reasons.keys()


def test_a_reading(device: NvmlDevice) -> None:
    """Every number in the unit that Sample has it in."""
    sample = device.read()
    assert (sample.time_s, sample.temperature_c, sample.memory_temperature_c, sample.margin_c) == (100, 36, 45, 51)
    assert (sample.power_w, sample.energy_j, sample.requested_w, sample.enforced_w) == (71, 1000, 700, 700)
    assert (sample.sm_clock_mhz, sample.memory_clock_mhz, sample.utilization) == (345, 2619, 0)
    assert (sample.memory_used_bytes, sample.throttle) == (600 << 20, Throttle.GPU_IDLE)
    assert (sample.thermal_ns, sample.power_cap_ns, sample.xid) == (0, 0, None)
    assert (sample.pcie_generation, sample.pcie_width, sample.pcie_replays) == (5, 16, 0)
    assert (sample.nvlinks_active, sample.ecc_errors) == (18, 0)


def test_time_slowed_down_by_heat(stub: "Stub", device: NvmlDevice) -> None:
    """Software's and hardware's together."""
    stub.card.sw_thermal_ns, stub.card.hw_thermal_ns = 500_000_000, 200_000_000
    assert device.read().thermal_ns == 700_000_000


def test_an_old_driver(open_card: Any, stub: "Stub", tmp_path: Path) -> None:
    """Functions that it has not yet are asked for once, and their older names tell the same."""
    newer = ["nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetFieldValues"]
    newer += ["nvmlDeviceGetMarginTemperature", "nvmlGpmQueryDeviceSupport", "nvmlEventSetCreate"]
    device = open_card(stub, build(tmp_path / "old", newer))
    sample = device.read()
    assert (sample.temperature_c, sample.power_w, sample.energy_j, sample.throttle) == (36, 71, 1000, Throttle.GPU_IDLE)
    assert (sample.requested_w, sample.enforced_w) == (700, 700)
    assert (sample.memory_temperature_c, sample.thermal_ns, sample.sm_activity) == (None, None, None)
    assert device.requested_w() == 700


def test_what_is_not_supported_is_asked_once(stub: "Stub", device: NvmlDevice) -> None:
    """A card that said no is not asked again; one that had no data, or an unknown error, is."""
    stub.fault("DeviceGetUtilizationRates", pynvml.NVML_ERROR_NOT_SUPPORTED)
    stub.fault("DeviceGetClockInfo", pynvml.NVML_ERROR_UNKNOWN)
    stub.fault("field:82", pynvml.NVML_ERROR_NOT_SUPPORTED)
    stub.fault("field:74", pynvml.NVML_ERROR_NO_DATA)
    sample = device.read()
    assert (sample.utilization, sample.sm_clock_mhz, sample.memory_temperature_c, sample.power_cap_ns) == (None,) * 4
    assert device.reasons["sm_clock_mhz"].startswith("an unknown error of the driver (Unknown")
    for name in ("DeviceGetUtilizationRates", "DeviceGetClockInfo", "field:82", "field:74"):
        stub.mend(name)
    sample = device.read()
    assert (sample.utilization, sample.sm_clock_mhz, sample.memory_temperature_c, sample.power_cap_ns) == (
        None,
        345,
        None,
        0,
    )


@pytest.mark.parametrize(
    "name", ["DeviceGetTemperatureV", "DeviceGetClockInfo", "DeviceGetPcieReplayCounter", "EventSetWait_v2"]
)
def test_a_driver_that_does_not_answer(stub: "Stub", device: NvmlDevice, name: str) -> None:
    """A time-out of any call is no reading at all; the waiting for events apart, where it is the usual answer."""
    stub.fault(name, pynvml.NVML_ERROR_TIMEOUT)
    if name == "EventSetWait_v2":
        assert device.read().xid is None
        return
    with pytest.raises(CardError, match=rf"card 0 .*nvml{name} failed \(NVML: Timeout\)"):
        device.read()


CODES = [*range(1, 31), 999]
GARBAGE = [0, 1, -1, 255, 2**31, 2**32 - 1, 2**63 - 1]


def test_nothing_else_comes_through_the_door(stub: "Stub", loaded: Load) -> None:
    """Whatever any call of NVML answers, error or garbage: a plausible reading, or one of two errors."""
    loaded(stub)
    names = [f"field:{int(field)}" for field in Field]
    names += re.findall(r'"((?:Device|System|Event|Gpm)\w+(?::memory)?)"', SOURCE.read_text())
    names += [f"DeviceGet{name}" for name in re.findall(r"^NUMBER\((\w+)", SOURCE.read_text(), re.MULTILINE)]
    assert len(set(names)) > 45
    outcomes = Counter(_outcome(stub, name, code, 0) for name in set(names) for code in CODES)
    outcomes += Counter(_outcome(stub, name, -1, value) for name in set(names) for value in GARBAGE)
    assert set(outcomes) == {"read", "CardError", "CardLostError"}
    assert outcomes["read"] > outcomes["CardError"] > outcomes["CardLostError"] > 40


def _outcome(stub: "Stub", name: str, code: int, value: int) -> str:
    """What becomes of finding, opening, reading twice and setting while one call answers so."""
    stub.fault(name, code, value=value)
    try:
        cards(ROOT)
        device = NvmlDevice(stub.card.uuid.decode(), rights=ROOT)
        try:
            samples = [device.read(), device.read()]
            device.requested_w()
        finally:
            device.close()
    except (CardError, CardLostError) as error:
        return type(error).__name__
    finally:
        stub.mend(name)
    for sample in samples:
        assert sample.temperature_c is None or 0 < sample.temperature_c < 120
        assert sample.power_w is None or 0 <= sample.power_w <= 1.5 * (device.card.max_w or math.inf)
        assert sample.utilization is None or 0 <= sample.utilization <= 1.1
    return "read"


def test_no_temperature_is_no_reading(stub: "Stub", device: NvmlDevice) -> None:
    """Without it nothing can be decided, whatever the reason."""
    stub.fault("DeviceGetTemperatureV", pynvml.NVML_ERROR_UNKNOWN)
    stub.fault("DeviceGetTemperature", pynvml.NVML_ERROR_UNKNOWN)
    with pytest.raises(CardError, match="Unknown"):
        device.read()


@pytest.mark.parametrize("code", [LOST, RESET_REQUIRED])
def test_a_lost_card(stub: "Stub", device: NvmlDevice, code: int) -> None:
    """Whatever is asked of it; closing is quiet, and it cannot be opened again."""
    stub.card.error = code
    for call in (device.read, device.requested_w, device.unlock_clock, lambda: device.set_power_limit(300)):
        with pytest.raises(CardLostError, match="card 0"):
            call()
    device.close()
    with pytest.raises(CardLostError):
        NvmlDevice(stub.card.uuid.decode(), rights=ROOT)


def test_a_card_that_is_not_there(stub: "Stub", loaded: Load) -> None:
    """Another UUID is a lost card."""
    loaded(stub)
    with pytest.raises(CardLostError, match="there is no card GPU-0"):
        NvmlDevice("GPU-0", rights=ROOT)


def test_garbage_with_success(stub: "Stub", device: NvmlDevice) -> None:
    """What cannot be is None, with the reason; the rest stays, and the next reading is whole."""
    stub.fault("field:185", value=4_000_000_000)
    stub.fault("DeviceGetTemperatureV", value=255)
    stub.fault("field:82", value=0)
    sample = device.read()
    assert (sample.power_w, sample.temperature_c, sample.memory_temperature_c, sample.margin_c) == (None, None, None, 51)
    assert device.reasons["power_w"] == "4e+06 is not between 0 and 1050"
    for name in ("field:185", "DeviceGetTemperatureV", "field:82"):
        stub.mend(name)
    assert (device.read().power_w, device.reasons) == (71, {})


def test_activities_come_with_the_second_reading(stub: "Stub", device: NvmlDevice, clock: Clock) -> None:
    """As shares of the time between two readings; when they are too near each other, those of the one before."""
    assert device.read().sm_activity is None
    card = stub.card
    card.time_ns, card.sm_ns, card.dram_ns, card.tensor_ns = 10**9, 9 * 10**8, 5 * 10**8, 25 * 10**7
    clock.now_s += 0.05
    assert device.read().sm_activity is None
    clock.now_s += 0.95
    sample = device.read()
    assert (sample.sm_activity, sample.dram_activity, sample.tensor_activity) == (0.9, 0.5, 0.25)
    card.time_ns += 10**9
    clock.now_s += 0.05
    assert device.read().sm_activity == 0.9
    clock.now_s += 1
    assert device.read().sm_activity == 0


def test_links_are_read_now_and_then(stub: "Stub", device: NvmlDevice, clock: Clock) -> None:
    """Twenty calls for what hardly changes, every ten seconds."""
    device.read()
    stub.card.pcie_width, stub.card.links_active, stub.card.ecc_errors = 8, 17, 1
    clock.now_s += 5
    assert device.read().pcie_width == 16
    clock.now_s += 5
    sample = device.read()
    assert (sample.pcie_width, sample.nvlinks_active, sample.ecc_errors) == (8, 17, 1)


def test_errors_that_the_driver_reports(stub: "Stub", device: NvmlDevice) -> None:
    """The last Xid since the reading before, once."""
    stub.xid(31)
    stub.xid(79)
    assert [device.read().xid, device.read().xid] == [79, None]
    stub.fault("EventSetWait_v2", pynvml.NVML_ERROR_UNKNOWN, times=1)
    assert (device.read().xid, list(device.reasons)) == (None, ["xid"])
    assert (device.read().xid, device.reasons) == (None, {})


def test_no_right_to_watch_for_errors(open_card: Any, stub: "Stub") -> None:
    """A driver that does not tell errors to this user costs nothing but them."""
    stub.fault("DeviceRegisterEvents", pynvml.NVML_ERROR_NO_PERMISSION)
    device = open_card(stub)
    stub.xid(79)
    assert device.read().xid is None
    assert device.reasons["xid"].startswith("this user may not see it")


def test_setting_reads_back(stub: "Stub", device: NvmlDevice) -> None:
    """The older setter, whose result the binding looks at; a limit that is accepted and not there is an error."""
    device.set_power_limit(312.5)
    device.lock_clock(1234)
    device.unlock_clock()
    assert [(call.name, call.arguments) for call in stub.calls] == [
        ("DeviceSetPowerManagementLimit", (312_500, 0)),
        ("DeviceSetGpuLockedClocks", (345, 1230)),
        ("DeviceResetGpuLockedClocks", (0, 0)),
    ]
    stub.fault("DeviceSetPowerManagementLimit", value=1)
    with pytest.raises(CardError, match=r"was asked for a power limit of 400 W, and has 312\.5 W"):
        device.set_power_limit(400)


def test_a_refusal_names_what_was_wanted(stub: "Stub", device: NvmlDevice) -> None:
    """And why: the range, the missing right, a card without it."""
    with pytest.raises(CardError, match="cannot have a power limit of 900 W: its power limits are 200 to 700 W"):
        device.set_power_limit(900)
    stub.state.root = 0
    with pytest.raises(CardError, match="refuses at most 1000 MHz: it needs CAP_SYS_ADMIN"):
        device.lock_clock(1000)
    stub.fault("DeviceResetGpuLockedClocks", pynvml.NVML_ERROR_NOT_SUPPORTED)
    with pytest.raises(CardError, match=r"nvmlDeviceResetGpuLockedClocks failed \(NVML: NotSupported\)"):
        device.unlock_clock()


def test_nothing_is_written_to_find_out(stub: "Stub", loaded: Load) -> None:
    """Looking for cards, opening, reading and closing set nothing."""
    loaded(stub)
    cards(ROOT)
    device = NvmlDevice(stub.card.uuid.decode(), rights=ROOT)
    device.read()
    device.close()
    device.close()
    assert stub.calls == []


def test_rights_are_the_card_s(stub: "Stub", loaded: Load) -> None:
    """Without them, and under MIG, the card says why nothing may be set."""
    loaded(stub)
    (card,) = cards(Rights(user=1000, capabilities=0, device_owner=0)).cards
    assert card.no_clock == card.no_power == "setting it needs CAP_SYS_ADMIN, which user 1000 has not"
    stub.card.mig = 1
    (card,) = cards(ROOT).cards
    assert card.no_clock is not None and card.no_clock.startswith("MIG is on")


def test_a_limit_that_cannot_move(stub: "Stub", loaded: Load) -> None:
    """A card whose least limit is its highest, or that lists no clocks."""
    loaded(stub)
    stub.card.min_mw, stub.card.num_clocks = 700_000, 0
    (card,) = cards(ROOT).cards
    assert card.no_power == "the card's power limit cannot be changed"
    assert card.no_clock == "the card lists no clocks that may be asked for"


def test_a_number_of_cards_that_cannot_be(stub: "Stub", loaded: Load) -> None:
    """Four thousand million cards are none, and are not looked for one by one."""
    loaded(stub)
    stub.fault("DeviceGetCount_v2", value=2**32 - 1)
    assert cards(ROOT).reason == "the NVIDIA driver says that it has 4294967295 cards, which cannot be"


def test_all_cards_but_the_lost_one(make_stub: "MakeStub", loaded: Load) -> None:
    """The others are found, and the lost one is named."""
    stub = make_stub({}, {}, OLD)
    loaded(stub)
    stub.cards[1].error = LOST
    found = cards(ROOT)
    assert [(card.index, card.name) for card in found.cards] == [(0, "NVIDIA H100 80GB HBM3"), (2, "NVIDIA A10G")]
    assert found.reason is not None and found.reason.startswith("card 1 has fallen off the bus")


def test_no_driver_and_no_card(stub: "Stub", loaded: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is an error: there are no cards, for a reason in plain words."""
    loaded(stub)
    stub.state.num_cards = 0
    assert (cards(ROOT).cards, cards(ROOT).reason) == ((), "the NVIDIA driver is loaded, and has no card")
    stub.state.loaded = 0
    assert cards(ROOT).reason == "the NVIDIA driver is not loaded: modprobe nvidia, or look at the kernel's log"
    stub.fault("InitWithFlags", 999)
    stub.state.loaded = 1
    assert "nvmlInit failed (NVML: Unknown)" in (cards(ROOT).reason or "")


def test_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without NVML's library there are no cards, and the reason says what is missing."""

    def nothing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", nothing)
    assert cards(ROOT).reason == "no NVIDIA driver here (libnvidia-ml.so.1 is not installed)"
