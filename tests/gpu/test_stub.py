"""The stub driver keeps NVML's promises: through the real binding, in this process and in others."""

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pynvml
import pytest

from tests.gpu.stub import LOST, build

if TYPE_CHECKING:
    from tests.gpu.conftest import MakeStub
    from tests.gpu.stub import Stub

Start = Callable[..., "subprocess.Popen[str]"]
_OPEN = "import os, pynvml as n; n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0)\n"


@pytest.fixture
def handle(stub: "Stub", loaded: Callable[..., None]) -> Any:
    """The stub's card as the binding in this process has it."""
    loaded(stub)
    pynvml.nvmlInit()
    yield pynvml.nvmlDeviceGetHandleByIndex(0)
    pynvml.nvmlShutdown()


def test_another_process_sees_the_card(stub: "Stub", python: Start) -> None:
    """An interpreter that starts with the environment finds the library by its name, and the card's own numbers."""
    print_it = "print(n.nvmlDeviceGetName(h), n.nvmlDeviceGetPowerUsage(h), n.nvmlDeviceGetTemperatureV(h, 0))"
    out, err = python(_OPEN + print_it).communicate()
    assert (out, err) == ("NVIDIA H100 80GB HBM3 71000 36\n", "")


def test_what_is_set_outlives_who_set_it(stub: "Stub", python: Start) -> None:
    """A limit and a lock stay when their process is killed, and the ring knows who set them, in order."""
    setting = "n.nvmlDeviceSetPowerManagementLimit(h, 300000); n.nvmlDeviceSetGpuLockedClocks(h, 345, 1200); input()"
    process = python(_OPEN + "import atexit; atexit.register(n.nvmlDeviceResetGpuLockedClocks, h);" + setting)
    _wait_for(lambda: len(stub.calls) == 2)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (stub.card.requested_mw, stub.card.lock_max_mhz) == (300_000, 1200)
    assert [(call.name, call.arguments, call.code, call.process) for call in stub.calls] == [
        ("DeviceSetPowerManagementLimit", (300_000, 0), 0, process.pid),
        ("DeviceSetGpuLockedClocks", (345, 1200), 0, process.pid),
    ]


def test_settings_go_with_the_last_client_without_persistence(stub: "Stub", python: Start) -> None:
    """With persistence off, the next process after the last one's death finds the default; beside a live one it does not."""
    stub.card.persistence = 0
    holder = python(_OPEN + "n.nvmlDeviceSetPowerManagementLimit(h, 300000); print(1, flush=True); input()")
    assert holder.stdout is not None and holder.stdout.readline() == "1\n"
    ask = _OPEN + "print(n.nvmlDeviceGetPowerManagementLimit(h))"
    assert python(ask).communicate()[0] == "300000\n"
    holder.kill()
    holder.communicate()
    assert python(ask).communicate()[0] == "700000\n"


def test_a_driver_reload_forgets(stub: "Stub") -> None:
    """Loading the driver again puts the default back and starts the energy counter anew."""
    stub.card.requested_mw, stub.card.lock_max_mhz = 300_000, 1000
    stub.load()
    assert (stub.card.requested_mw, stub.card.lock_max_mhz, stub.card.energy_mj) == (700_000, 0, 0)


def test_setting_needs_root_and_the_range(stub: "Stub", handle: Any) -> None:
    """Out of range is an invalid argument, not root no permission; refused calls set nothing, and are in the ring."""
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceSetPowerManagementLimit(handle, 900_000)
    stub.state.root = 0
    for name, *arguments in (
        ("nvmlDeviceSetPowerManagementLimit", 300_000),
        ("nvmlDeviceSetGpuLockedClocks", 345, 1000),
        ("nvmlDeviceResetGpuLockedClocks",),
    ):
        with pytest.raises(pynvml.NVMLError_NoPermission):
            getattr(pynvml, str(name))(handle, *arguments)
    assert (stub.card.requested_mw, stub.card.lock_max_mhz) == (700_000, 0)
    assert [call.code for call in stub.calls] == [2, 4, 4, 4]


def test_a_set_call_may_succeed_and_do_nothing(stub: "Stub", handle: Any) -> None:
    """As with a card that accepts a limit and does not obey it; the next one is obeyed."""
    stub.fault("DeviceSetPowerManagementLimit", value=1, times=1)
    pynvml.nvmlDeviceSetPowerManagementLimit(handle, 300_000)
    assert (stub.card.requested_mw, stub.calls[0].code) == (700_000, 0)
    pynvml.nvmlDeviceSetPowerManagementLimit(handle, 300_000)
    assert stub.card.requested_mw == 300_000


def test_requested_enforced_and_default_differ(stub: "Stub", handle: Any) -> None:
    """A limit from outside is enforced, and leaves what was requested as it is."""
    pynvml.nvmlDeviceSetPowerManagementLimit(handle, 600_000)
    stub.card.outside_mw = 500_000
    assert pynvml.nvmlDeviceGetPowerManagementLimit(handle) == 600_000
    assert pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) == 500_000
    assert pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) == 700_000
    current, requested = pynvml.nvmlDeviceGetFieldValues(handle, [190, 192])
    assert (current.value.uiVal, requested.value.uiVal) == (500_000, 600_000)


def test_newer_cards_tell_margins_alone(stub: "Stub", handle: Any) -> None:
    """With T.Limit the absolute limits are not supported and the fields are signed margins; without, the other way round."""
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetTemperatureThreshold(handle, pynvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX)
    assert pynvml.nvmlDeviceGetMarginTemperature(handle) == 51
    assert [value.value.siVal for value in pynvml.nvmlDeviceGetFieldValues(handle, [193, 194, 195, 196])] == [-8, -2, 0, 0]
    stub.card.tlimit = 0
    found = [pynvml.nvmlDeviceGetTemperatureThreshold(handle, which) for which in range(4)]
    assert found == [95, 89, 95, 87]
    assert pynvml.nvmlDeviceGetFieldValues(handle, [193])[0].nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_an_old_driver_has_not_all_functions(stub: "Stub", loaded: Callable[..., None], tmp_path: Path) -> None:
    """A function that the library was built without is not found; the others are."""
    loaded(stub, build(tmp_path / "old", ["nvmlDeviceGetTemperatureV"]))
    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetHandleByUUID(stub.card.uuid)
    with pytest.raises(pynvml.NVMLError_FunctionNotFound):
        pynvml.nvmlDeviceGetTemperatureV(card, 0)
    assert pynvml.nvmlDeviceGetTemperature(card, 0) == 36
    pynvml.nvmlShutdown()


def test_a_lost_card_stays_lost(stub: "Stub", handle: Any) -> None:
    """Every call on it fails from then on, and finding it again too, until the driver is loaded again."""
    stub.card.error = LOST
    for call in (pynvml.nvmlDeviceGetPowerUsage, pynvml.nvmlDeviceGetUtilizationRates, pynvml.nvmlDeviceGetPowerUsage):
        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            call(handle)
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlDeviceGetHandleByIndex(0)
    stub.load()
    assert pynvml.nvmlDeviceGetPowerUsage(handle) == 71_000


def test_an_xid_comes_once(stub: "Stub", handle: Any) -> None:
    """An event set gets each error that happens after it was registered, once; waiting for nothing times out."""
    stub.xid(31)
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
    stub.xid(79)
    event = pynvml.nvmlEventSetWait_v2(events, 100)
    assert (event.eventType, event.eventData) == (pynvml.nvmlEventTypeXidCriticalError, 79)
    with pytest.raises(pynvml.NVMLError_Timeout):
        pynvml.nvmlEventSetWait_v2(events, 0)
    pynvml.nvmlEventSetFree(events)


def test_calls_fail_and_lie_as_told(stub: "Stub", handle: Any) -> None:
    """A fault lasts for so many calls, or until it is mended; with success it gives another value, for one field as well."""
    stub.fault("DeviceGetPowerUsage", pynvml.NVML_ERROR_UNKNOWN, times=1)
    with pytest.raises(pynvml.NVMLError_Unknown):
        pynvml.nvmlDeviceGetPowerUsage(handle)
    assert pynvml.nvmlDeviceGetPowerUsage(handle) == 71_000
    stub.fault("DeviceGetPowerUsage", value=4_000_000_000)
    stub.fault("field:82", value=255)
    assert pynvml.nvmlDeviceGetPowerUsage(handle) == 4_000_000_000
    assert pynvml.nvmlDeviceGetFieldValues(handle, [82])[0].value.uiVal == 255
    stub.mend("DeviceGetPowerUsage")
    assert pynvml.nvmlDeviceGetPowerUsage(handle) == 71_000


def test_calls_are_slow_and_hang_as_told(stub: "Stub", handle: Any, python: Start) -> None:
    """A delay is waited for; a call that hangs goes on only when it is mended, and holds nobody else."""
    stub.fault("DeviceGetPowerUsage", delay_s=0.02, value=1, times=1)
    start = time.monotonic()
    pynvml.nvmlDeviceGetPowerUsage(handle)
    assert time.monotonic() - start >= 0.02
    stub.fault("DeviceGetTemperatureV", delay_s=float("inf"))
    process = python(_OPEN + "print('asks', flush=True); print(n.nvmlDeviceGetTemperatureV(h, 0))")
    assert process.stdout is not None and process.stdout.readline() == "asks\n"
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.2)
    assert pynvml.nvmlDeviceGetPowerUsage(handle) == 71_000
    stub.mend("DeviceGetTemperatureV")
    assert process.communicate(timeout=20)[0].split()[-1].isdigit()


def test_activities_are_means_between_two_samples(stub: "Stub", handle: Any) -> None:
    """Busy time over the card's time; too near each other, there is no data."""
    first, second = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
    pynvml.nvmlGpmSampleGet(handle, first)
    card = stub.card
    card.time_ns, card.sm_ns, card.dram_ns, card.tensor_ns = 1_000_000_000, 900_000_000, 500_000_000, 250_000_000
    pynvml.nvmlGpmSampleGet(handle, second)
    asked = pynvml.c_nvmlGpmMetricsGet_t(version=1, numMetrics=3, sample1=first, sample2=second)
    for i, metric in enumerate((2, 10, 5)):
        asked.metrics[i].metricId = metric
    pynvml.nvmlGpmMetricsGet(asked)
    assert [asked.metrics[i].value for i in range(3)] == [90, 50, 25]
    asked.sample1 = second
    pynvml.nvmlGpmMetricsGet(asked)
    assert asked.metrics[0].nvmlReturn == pynvml.NVML_ERROR_NO_DATA
    for sample in (first, second):
        pynvml.nvmlGpmSampleFree(sample)


def test_no_driver_and_another_record(stub: "Stub", loaded: Callable[..., None]) -> None:
    """Without a loaded driver the library says so; a state of another layout is a mismatch, not a guess."""
    loaded(stub)
    stub.state.loaded = 0
    with pytest.raises(pynvml.NVMLError_DriverNotLoaded):
        pynvml.nvmlInit()
    stub.state.loaded, stub.state.size = 1, stub.state.size + 8
    with pytest.raises(pynvml.NVMLError_LibRmVersionMismatch):
        pynvml.nvmlInit()


def test_clocks_are_listed_from_the_highest(stub: "Stub", handle: Any) -> None:
    """The clocks that may be asked for, for the card's memory clock."""
    (memory,) = pynvml.nvmlDeviceGetSupportedMemoryClocks(handle)
    clocks = pynvml.nvmlDeviceGetSupportedGraphicsClocks(handle, memory)
    assert (clocks[0], clocks[-1], clocks == sorted(clocks, reverse=True)) == (1980, 345, True)


def test_several_cards(make_stub: "MakeStub", loaded: Callable[..., None]) -> None:
    """Each has its own numbers and is found by its UUID; a card that is not there is not found."""
    stub = make_stub({}, {"name": b"NVIDIA A10G", "power_mw": 9_000, "tlimit": 0, "gpm": 0})
    loaded(stub)
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 2
    second = pynvml.nvmlDeviceGetHandleByUUID(stub.cards[1].uuid)
    assert (pynvml.nvmlDeviceGetName(second), pynvml.nvmlDeviceGetPowerUsage(second)) == ("NVIDIA A10G", 9_000)
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetHandleByUUID(b"GPU-0")
    pynvml.nvmlShutdown()


def test_two_processes_write_the_ring_at_once(stub: "Stub", python: Start) -> None:
    """No call is lost, whoever sets at the same time."""
    loop = _OPEN + "for i in range(500): n.nvmlDeviceSetPowerManagementLimit(h, 300000 + os.getpid())"
    processes = [python(loop) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    by = [call.process for call in stub.calls]
    assert sorted(by) == sorted([process.pid for process in processes] * 500)
    assert all(call.arguments == (300_000 + call.process, 0) for call in stub.calls)


def _wait_for(is_so: Callable[[], bool], wait_s: float = 20.0) -> None:
    deadline = time.monotonic() + wait_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)
