"""A period of the governor: how many may run is said first, the card is set after it, and nothing is waited for."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tasks.core.config import PowerConfig
from tasks.governor.cards import H100
from tasks.governor.device import CardError, CardLostError, Device
from tasks.governor.events import Event, Kind
from tasks.governor.governor import Governor
from tasks.governor.hands import Hands
from tasks.governor.owned import LeaseLostError
from tasks.governor.sample import Card, Sample
from tasks.governor.setting import Load, Setting
from tasks.governor.simulated import MachineRoom, SimulatedDevice

LOAD = Load(running=64, max_num_seqs=64, prefill=1.0, prefill_ahead=1.0)
MANAGED = PowerConfig(control="managed", period_s=1.0)


@dataclass
class Heard:
    """What a governor has said, in order."""

    said: list[tuple[str, object]] = field(default_factory=list)
    settings: list[Setting] = field(default_factory=list)
    states: list[str] = field(default_factory=list)

    def publish(self, setting: Setting) -> None:
        self.said.append(("publish", setting.max_num_seqs))

    def tell(self, sample: Sample | None, setting: Setting, state: str) -> None:
        self.settings.append(setting)
        self.states.append(state)


class Scripted:
    """A card whose readings and refusals are given."""

    def __init__(self, card: Card, heard: Heard) -> None:
        self._card, self._heard = card, heard
        self.now_s = 0.0
        self.limit_w = 700.0
        self.read_as: Callable[[], Sample] = self._hot
        self.refuse: Exception | None = None

    @property
    def card(self) -> Card:
        return self._card

    def _hot(self) -> Sample:
        return Sample(self.now_s, temperature_c=79.0, power_w=600.0, requested_w=self.limit_w)

    def read(self) -> Sample:
        return self.read_as()

    def requested_w(self) -> float | None:
        return self.limit_w

    def _set(self, what: str, value: object) -> None:
        if self.refuse is not None:
            raise self.refuse
        self._heard.said.append((what, value))

    def set_power_limit(self, watts: float) -> None:
        self._set("power", watts)
        self.limit_w = watts

    def lock_clock(self, max_mhz: int) -> None:
        self._set("clock", max_mhz)

    def unlock_clock(self) -> None:
        self._set("clock", None)

    def close(self) -> None:
        return


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def scripted(heard: Heard) -> Scripted:
    room = MachineRoom([H100])
    return Scripted(SimulatedDevice(room, 0).card, heard)


def governor_of(device: Device, heard: Heard, config: PowerConfig = MANAGED) -> Governor:
    return Governor(device, Hands(), config, heard.publish, heard.tell)


def test_a_hot_card_stays_below_the_line(heard: Heard) -> None:
    """With a fan that fails under full load it is throttled in time; once the fan is well again nothing is bounded."""
    events = [Event(Kind.LOAD, 0.0, size=1.0), Event(Kind.FAN, 30.0, for_s=200.0, size=1.9)]
    room = MachineRoom([H100], [events], inlet_c=35.0)
    governor, peak = governor_of(SimulatedDevice(room, 0), heard), 0.0
    for _ in range(600):
        setting = governor.tick(LOAD, room.now_s)
        room.plant.bound[0] = 1.0 if setting.max_num_seqs is None else min(setting.max_num_seqs / 64, 1.0)
        room.advance(1.0)
        peak = max(peak, float(room.plant.die_c[0]))
    assert 76.0 < peak < 80.0
    assert "Throttled" in heard.states
    assert any(setting.power_w or setting.clock_mhz for setting in heard.settings)
    assert heard.states[-1] == "Nominal"
    assert room.boards[0].requested_w == H100.default_w
    assert room.plant.lock[0] == 1.0


def test_sequences_are_bounded_before_the_card_is_set(scripted: Scripted, heard: Heard) -> None:
    """In each period the limit of sequences is said first."""
    governor = governor_of(scripted, heard)
    for second in range(6):
        scripted.now_s = float(second)
        governor.tick(LOAD, scripted.now_s)
    kinds = [what for what, _ in heard.said]
    assert kinds[0] == "publish"
    assert {"power", "clock"} & set(kinds)
    assert kinds.count("publish") == 6


def test_a_driver_that_hangs_is_not_waited_for(scripted: Scripted, heard: Heard) -> None:
    """Two periods without an answer and nothing runs; when the driver comes back, it goes on."""
    stuck = threading.Event()
    config = PowerConfig(control="managed", period_s=0.1)
    governor = governor_of(scripted, heard, config)
    scripted.read_as = lambda: Sample(scripted.now_s, temperature_c=50.0, power_w=300.0, requested_w=700.0)
    governor.tick(LOAD, 0.0)
    answer = scripted.read_as

    def hang() -> Sample:
        stuck.wait(30)
        return answer()

    scripted.read_as = hang
    for period in range(1, 5):
        scripted.now_s = 0.1 * period
        setting = governor.tick(LOAD, scripted.now_s)
    assert (setting.max_num_seqs, governor.state_name) == (0, "Blind")
    scripted.read_as = answer
    stuck.set()
    for period in range(5, 40):
        scripted.now_s = 0.1 * period
        setting = governor.tick(LOAD, scripted.now_s)
    assert governor.state_name != "Blind"
    assert setting.max_num_seqs != 0


def test_three_refusals_leave_it_to_sequences(scripted: Scripted, heard: Heard) -> None:
    """A card that refuses its settings is bounded by sequences alone, and that is said."""
    scripted.refuse = CardError("no permission")
    governor = governor_of(scripted, heard)
    for second in range(12):
        scripted.now_s = float(second)
        setting = governor.tick(LOAD, scripted.now_s)
    assert setting.max_num_seqs is not None
    assert "no permission" in setting.reason


def test_a_lost_lease_begins_anew(scripted: Scripted, heard: Heard) -> None:
    """When a guard has put the card back meanwhile, it is set again."""
    governor = governor_of(scripted, heard)
    scripted.refuse = LeaseLostError("stood still for too long")
    governor.tick(LOAD, 0.0)
    scripted.refuse = None
    for second in range(1, 5):
        scripted.now_s = float(second)
        governor.tick(LOAD, scripted.now_s)
    assert {"power", "clock"} & {what for what, _ in heard.said}


def test_a_lease_lost_between_two_periods_begins_anew(scripted: Scripted, heard: Heard) -> None:
    """When the next reading tells that the guard has put the card back, that limit is not taken for another writer's."""
    governor = governor_of(scripted, heard)
    for second in range(3):
        scripted.now_s = float(second)
        governor.tick(LOAD, scripted.now_s)
    answer, losses = scripted.read_as, [LeaseLostError("stood still for too long")]

    def read() -> Sample:
        if losses:
            scripted.limit_w = 700.0
            raise losses.pop()
        return answer()

    scripted.read_as, before = read, len(heard.said)
    for second in range(3, 7):
        scripted.now_s = float(second)
        setting = governor.tick(LOAD, scripted.now_s)
    assert {"power", "clock"} & {what for what, _ in heard.said[before:]}
    assert "whoever sets it" not in setting.reason


def test_a_lost_card_stops_all(scripted: Scripted, heard: Heard) -> None:
    """A card that has fallen off the bus lets nothing run, for good."""
    governor = governor_of(scripted, heard)
    governor.tick(LOAD, 0.0)

    def gone() -> Sample:
        raise CardLostError("fallen off the bus")

    scripted.read_as = gone
    for second in (1.0, 2.0):
        setting = governor.tick(LOAD, second)
    assert (setting.max_num_seqs, governor.state_name) == (0, "Lost")
    assert "fallen off the bus" in setting.reason


def test_a_card_that_says_nothing_at_first(scripted: Scripted, heard: Heard) -> None:
    """Governing begins with the first reading that there is."""
    governor = governor_of(scripted, heard)
    answer = scripted.read_as

    def silent() -> Sample:
        raise CardError("driver not ready")

    scripted.read_as = silent
    governor.tick(LOAD, 0.0)
    assert governor.state_name == "Unable"
    scripted.read_as = answer
    scripted.now_s = 1.0
    governor.tick(LOAD, 1.0)
    assert governor.state_name in ("Nominal", "Throttled")


def test_observing_sets_nothing(scripted: Scripted, heard: Heard) -> None:
    """Without managed control only sequences are bounded, however hot it is."""
    governor = governor_of(scripted, heard, PowerConfig(control="observe"))
    for second in range(10):
        scripted.now_s = float(second)
        setting = governor.tick(LOAD, scripted.now_s)
    assert {what for what, _ in heard.said} == {"publish"}
    assert setting.max_num_seqs is not None
