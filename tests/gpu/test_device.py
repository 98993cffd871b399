"""The contract of Device, kept by NVML's card on the stub driver and by the simulated one; and by a real card, as far as
it can be asked without setting anything."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from tasks.governor.cards import A10G, H100
from tasks.governor.device import CardError, CardLostError, Device
from tasks.governor.events import Event, Kind
from tasks.governor.nvml import NvmlDevice, cards
from tasks.governor.rights import Rights
from tasks.governor.sample import Sample
from tasks.governor.simulated import MachineRoom, SimulatedDevice
from tests.gpu.stub import LOST

if TYPE_CHECKING:
    from tests.gpu.conftest import MakeStub
    from tests.gpu.stub import Stub

ROOT, NOBODY = Rights(0, 1 << 21, 0), Rights(1000, 0, 0)
_OLD = {"tlimit": 0, "gpm": 0, "links": 0, "ecc_errors": -1, "memory_temperature_c": 0, "threshold_memory_c": 0}


class World(Protocol):
    """A machine with one card, in which things happen."""

    def open(self, *, permitted: bool = True) -> Device:
        """One more client of the card."""
        ...

    def wait(self) -> None:
        """Some time passes."""
        ...

    def happen(self, kind: Kind, size: float = 0.0) -> None:
        """From now on, until the next `end`."""
        ...

    def end(self) -> None: ...

    @property
    def locked_mhz(self) -> int | None:
        """The lock that the card is under."""
        ...


class Simulated:
    """A simulated card; what happens is put into its events."""

    def __init__(self, *, is_old: bool) -> None:
        self._of = A10G if is_old else H100
        self._room = MachineRoom([self._of])
        self._board = self._room.boards[0]

    def open(self, *, permitted: bool = True) -> Device:
        return SimulatedDevice(self._room, permitted=permitted, deadline_s=0.2)

    def wait(self) -> None:
        self._room.advance(1.0)

    def happen(self, kind: Kind, size: float = 0.0) -> None:
        if kind is Kind.WRITER:
            self._board.request(size, ours=False)
        else:
            self._board.events = (Event(kind, self._room.now_s, size=size),)
            self._board.tick()

    def end(self) -> None:
        self._board.events = ()
        self._board.tick()

    @property
    def locked_mhz(self) -> int | None:
        lock = self._room.plant.lock[0]
        return None if lock == 1 else round(lock * self._of.max_mhz)


class OnTheStub:
    """NVML's card on the stub driver, in this process."""

    def __init__(self, stub: "Stub") -> None:
        self._stub, self._now_s = stub, 1.0

    def open(self, *, permitted: bool = True) -> Device:
        self._stub.state.root = permitted
        rights = ROOT if permitted else NOBODY
        return NvmlDevice(self._stub.card.uuid.decode(), rights=rights, clock=lambda: self._now_s)

    def wait(self) -> None:
        self._now_s += 1.0
        card = self._stub.card
        card.time_ns += 10**9
        card.energy_mj += card.power_mw

    def happen(self, kind: Kind, size: float = 0.0) -> None:
        stub, mw = self._stub, round(size * 1000)
        if kind is Kind.LOST:
            stub.card.error = LOST
        elif kind is Kind.NO_READING:
            stub.fault("DeviceGetTemperatureV", 999)
            stub.fault("DeviceGetTemperature", 999)
        elif kind is Kind.HANG:
            for name in ("DeviceGetTemperatureV", "DeviceGetFieldValues", "DeviceSetPowerManagementLimit"):
                stub.fault(name, 10)
        elif kind is Kind.REFUSED:
            stub.fault("DeviceSetPowerManagementLimit", value=1)
        elif kind is Kind.DENIED:
            stub.state.root = 0
        elif kind is Kind.OUT_OF_BAND:
            stub.card.outside_mw = mw
        elif kind is Kind.WRITER:
            stub.card.requested_mw = mw
        else:
            raise NotImplementedError(kind)

    def end(self) -> None:
        self._stub.close()
        self._stub.card.outside_mw, self._stub.state.root = 0, 1

    @property
    def locked_mhz(self) -> int | None:
        return self._stub.card.lock_max_mhz or None


WORLDS = ("simulated", "simulated, older", "stub", "stub, older")


def _world(request: pytest.FixtureRequest, name: str) -> World:
    kind, is_old = name.split(",")[0], "older" in name
    if kind == "simulated":
        return Simulated(is_old=is_old)
    make: MakeStub = request.getfixturevalue("make_stub")
    stub = make(_OLD if is_old else {})
    request.getfixturevalue("loaded")(stub)
    return OnTheStub(stub)


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> World:
    return _world(request, request.param)


@pytest.fixture
def open_device(world: World) -> Iterator[Callable[..., Device]]:
    opened: list[Device] = []

    def make(**given: bool) -> Device:
        opened.append(world.open(**given))
        return opened[-1]

    yield make
    for device in opened:
        device.close()


@pytest.fixture
def device(open_device: Callable[..., Device]) -> Device:
    return open_device()


@pytest.fixture(params=[*WORLDS, pytest.param("real", marks=pytest.mark.device)])
def readable(request: pytest.FixtureRequest) -> Iterator[tuple[Device, Callable[[], None]]]:
    """A device that may be read, and how time passes for it; a real card as well, where there is one."""
    device: Device
    wait: Callable[[], None]
    if request.param == "real":
        found = cards()
        if not found.cards:
            pytest.skip(f"no card: {found.reason}")
        device, wait = NvmlDevice(found.cards[0].uuid), partial(time.sleep, 1.0)
    else:
        world = _world(request, request.param)
        device, wait = world.open(), world.wait
    yield device, wait
    device.close()


Readable = tuple[Device, Callable[[], None]]


def test_a_card_is_what_it_is(readable: Readable) -> None:
    """Names, and limits in their order; the same whenever it is asked."""
    card = readable[0].card
    assert card.uuid and card.name and card.driver and card == readable[0].card
    assert list(card.clocks_mhz) == sorted(set(card.clocks_mhz))
    powers = [watts for watts in (card.min_w, card.default_w, card.max_w) if watts is not None]
    limits = [limit for limit in (card.max_c, card.slowdown_c, card.shutdown_c) if limit is not None]
    assert powers == sorted(powers) and limits == sorted(limits)
    assert all(40 < limit < 150 for limit in limits)


def test_a_reading_is_plausible(readable: Readable) -> None:
    """Every value is in its range or None, which is a value."""
    device, wait = readable
    wait()
    sample = device.read()
    assert sample.temperature_c is not None and 0 < sample.temperature_c < 120
    for name, most in (("power_w", 1500), ("sm_clock_mhz", 5000), ("utilization", 1), ("memory_margin_c", 120)):
        value = getattr(sample, name)
        assert value is None or 0 <= value <= most, name
    for name in ("sm_activity", "dram_activity", "tensor_activity"):
        value = getattr(sample, name)
        assert value is None or 0 <= value <= 1, name
    assert all(not isinstance(value, float) or math.isfinite(value) for value in _values(sample))


def test_counters_do_not_fall(readable: Readable) -> None:
    """Time moves on, and energy with it."""
    device, wait = readable
    first = device.read()
    wait()
    second = device.read()
    assert second.time_s > first.time_s
    for name in ("energy_j", "thermal_ns", "power_cap_ns", "pcie_replays", "ecc_errors"):
        before, after = getattr(first, name), getattr(second, name)
        assert before is None or after is None or after >= before, name
    assert first.energy_j is None or (second.energy_j or 0) > first.energy_j


def test_limits_agree(readable: Readable) -> None:
    """The limit that was asked for is the same by both ways, and the one that holds is no higher."""
    device, _ = readable
    sample = device.read()
    assert device.requested_w() == sample.requested_w
    assert sample.requested_w is None or (sample.enforced_w or 0) <= sample.requested_w


def test_margins_or_limits(device: Device) -> None:
    """A card that says how far it is from its limit says by that where the limit is, within the rounding."""
    sample, card = device.read(), device.card
    assert card.max_c is not None
    if sample.margin_c is not None and sample.temperature_c is not None:
        assert abs(sample.temperature_c + sample.margin_c - card.max_c) <= 1


def test_a_limit_is_there_for_all(device: Device, open_device: Callable[..., Device]) -> None:
    """A limit set by one client is what every client reads, and holds."""
    other = open_device()
    device.set_power_limit(250)
    assert (device.requested_w(), other.requested_w()) == (250, 250)
    sample = other.read()
    assert (sample.requested_w, sample.enforced_w) == (250, 250)


def test_what_is_set_outlives_who_set_it(device: Device, open_device: Callable[..., Device], world: World) -> None:
    """Closing takes nothing back."""
    one = open_device()
    one.set_power_limit(250)
    one.lock_clock(900)
    one.close()
    assert (device.requested_w(), world.locked_mhz) == (250, 900)


@pytest.mark.parametrize("watts", [1.0, 5000.0])
def test_out_of_range_changes_nothing(device: Device, watts: float) -> None:
    """A limit that the card cannot have is an error."""
    before = device.requested_w()
    with pytest.raises(CardError):
        device.set_power_limit(watts)
    assert device.requested_w() == before


def test_a_lock_is_a_clock_of_the_card(device: Device, world: World) -> None:
    """The highest listed one that is not above what was asked; none below the lowest; and it comes off again."""
    clocks = device.card.clocks_mhz
    device.lock_clock(clocks[3] + 1)
    assert world.locked_mhz == clocks[3]
    with pytest.raises(CardError):
        device.lock_clock(clocks[0] - 1)
    assert world.locked_mhz == clocks[3]
    device.unlock_clock()
    device.unlock_clock()
    assert world.locked_mhz is None


def test_without_permission(open_device: Callable[..., Device]) -> None:
    """The card says so beforehand, nothing can be set, and reading goes on."""
    device = open_device(permitted=False)
    assert device.card.no_clock and device.card.no_power
    for call in _setters(device):
        with pytest.raises(CardError):
            call()
    assert device.read().requested_w == device.card.default_w


def test_permission_that_goes(device: Device, world: World) -> None:
    """A driver that refuses what it allowed before is an error at each call, and reading goes on."""
    assert (device.card.no_clock, device.card.no_power) == (None, None)
    world.happen(Kind.DENIED)
    for call in _setters(device):
        with pytest.raises(CardError):
            call()
    assert device.read().requested_w == device.card.default_w


def test_a_limit_that_is_not_obeyed(device: Device, world: World) -> None:
    """Success without effect is an error; once it is obeyed again, it is none."""
    world.happen(Kind.REFUSED)
    with pytest.raises(CardError):
        device.set_power_limit(250)
    world.end()
    device.set_power_limit(250)
    assert device.requested_w() == 250


def test_another_writer_is_seen(device: Device, world: World) -> None:
    """What somebody else has asked for is what is read."""
    device.set_power_limit(250)
    world.happen(Kind.WRITER, 275)
    assert (device.requested_w(), device.read().requested_w) == (275, 275)


def test_a_limit_from_outside(device: Device, world: World) -> None:
    """It holds, and what was requested stays."""
    world.happen(Kind.OUT_OF_BAND, 220)
    sample = device.read()
    assert (sample.enforced_w, sample.requested_w) == (220, device.card.default_w)
    world.end()
    assert device.read().enforced_w == device.card.default_w


@pytest.mark.parametrize("kind", [Kind.NO_READING, Kind.HANG])
def test_a_driver_that_fails_for_a_while(device: Device, world: World, kind: Kind) -> None:
    """No reading is an error, not a made-up value; afterwards all is well."""
    world.happen(kind)
    with pytest.raises(CardError):
        device.read()
    world.end()
    assert device.read().temperature_c is not None


def test_a_lost_card_is_lost_for_good(device: Device, world: World) -> None:
    """Every call says so, every time, and closing is quiet."""
    world.happen(Kind.LOST)
    for call in (device.read, device.requested_w, *_setters(device), device.read):
        with pytest.raises(CardLostError):
            call()
    device.close()


def test_closing_twice_is_quiet(device: Device, open_device: Callable[..., Device]) -> None:
    """And leaves the card to its other clients."""
    other = open_device()
    device.close()
    device.close()
    assert other.read().temperature_c is not None


def _setters(device: Device) -> list[Callable[[], None]]:
    return [partial(device.set_power_limit, 250), partial(device.lock_clock, 900), device.unlock_clock]


def _values(sample: Sample) -> list[Any]:
    return [getattr(sample, one.name) for one in fields(sample)]
