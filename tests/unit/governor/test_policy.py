"""The governor's decisions, one transition at a time."""

from dataclasses import replace

import pytest

from tasks.core.config import PowerConfig
from tasks.governor.limits import limits_of
from tasks.governor.policy import begin, decide, lost, obeyed, refused
from tasks.governor.sample import Card, Sample, Throttle
from tasks.governor.setting import Load, Setting
from tasks.governor.state import Blind, Lost, Nominal, Paused, State, Throttled, Unable

CLOCKS = tuple(range(345, 1981, 15))
CARD = Card(
    *("GPU-1", "a card", 0, "580.1", 80 * 2**30),
    clocks_mhz=CLOCKS,
    default_w=700.0,
    min_w=200.0,
    max_w=700.0,
    max_c=87.0,
    slowdown_c=89.0,
    memory_max_c=95.0,
)
FIRST = Sample(0.0, 60.0, 60.0, power_w=400.0, energy_j=0.0, sm_clock_mhz=1980, requested_w=700.0, thermal_ns=0)
BUSY = Load(running=100, max_num_seqs=256, prefill=1.0)
FLOOR = (900, 280.0, 0)


class Night:
    """A governor and a card that says what it is told to say."""

    def __init__(self, card: Card = CARD, control: str = "managed", first: Sample = FIRST) -> None:
        self.state: State = begin(card, PowerConfig(control=control), first)
        self.now, self.energy = 0.0, 0.0
        self.setting = Setting()

    def second(self, temperature: float | None, power: float = 650.0, load: Load = BUSY, **said: object) -> Setting:
        self.now += 1.0
        self.energy += power
        asked = getattr(getattr(self.state, "track", None), "asked_w", None)
        sample = replace(FIRST, time_s=self.now, temperature_c=temperature, power_w=power, energy_j=self.energy)
        sample = replace(sample, requested_w=asked or 700.0, sm_clock_mhz=1500)
        self.state, self.setting = decide(self.state, replace(sample, **said), load, self.now)  # type: ignore[arg-type]
        return self.setting

    def seconds(self, count: int, temperature: float, power: float = 650.0, load: Load = BUSY) -> Setting:
        for _ in range(count):
            self.second(temperature, power, load)
        return self.setting

    def nothing(self) -> Setting:
        self.now += 1.0
        self.state, self.setting = decide(self.state, None, BUSY, self.now)
        return self.setting


def asked(setting: Setting) -> tuple[int | None, float | None, int | None]:
    return setting.clock_mhz, setting.power_w, setting.max_num_seqs


def hot() -> Night:
    """A night on a card that is held at its set point."""
    night = Night()
    night.seconds(20, 70.0)
    for temperature in (73.0, 75.0, 76.0, 77.0, 78.0, 78.0, 78.0, 77.0):
        night.second(temperature)
    assert isinstance(night.state, Throttled)
    return night


def test_a_cool_card_is_left_alone() -> None:
    """Far below the set point no lever is touched."""
    night = Night()
    assert asked(night.seconds(30, 60.0, 500.0)) == (None, None, None)
    assert isinstance(night.state, Nominal)


def test_a_card_that_becomes_hot_is_throttled_before_its_set_point() -> None:
    """A fast rise lowers the power limit before the reading is at 78 °C, and says so in words."""
    night = Night()
    night.seconds(20, 60.0, 300.0)
    readings = [night.second(temperature, 690.0) for temperature in (62.0, 66.0, 70.0, 73.0, 75.0, 77.0)]
    assert isinstance(night.state, Throttled)
    assert readings[-1].power_w is not None and readings[-1].power_w < 650
    assert "77 °C of 78 °C: at most" in readings[-1].reason


def test_a_throttled_card_that_cools_gets_all_back() -> None:
    """When there is room again the levers rise step by step to where they were found."""
    night = hot()
    limits = [night.second(max(76.0 - second // 2, 60.0), 300.0).power_w or 700.0 for second in range(60)]
    assert len(set(limits)) > 3 and limits[10:] == sorted(limits[10:])
    assert isinstance(night.state, Nominal)
    assert asked(night.setting) == (None, None, None)


def test_a_reading_above_the_set_point_cuts_the_draw() -> None:
    """One degree above the set point leaves 85 % of the draw, the line 70 %."""
    night = hot()
    assert (night.second(79.0, 600.0).power_w or 700) <= 0.85 * 600
    night = hot()
    assert (night.second(80.0, 600.0).power_w or 700) <= 0.70 * 600


def test_hot_memory_counts_as_a_hot_die() -> None:
    """Memory at its set point throttles a card whose die is cool."""
    night = Night()
    night.seconds(20, 60.0)
    for memory in (84.0, 86.0, 88.0, 90.0, 91.0):
        night.second(60.0, memory_temperature_c=memory)
    assert isinstance(night.state, Throttled)
    assert night.setting.power_w is not None and night.setting.power_w <= 0.85 * 650


def test_a_margin_that_shrinks_counts() -> None:
    """A card that says it is 3 °C below its limit is throttled, whatever its temperature."""
    night = Night()
    night.seconds(20, 60.0)
    assert (night.second(60.0, margin_c=3.0).power_w or 700) <= 0.85 * 650


def test_two_periods_without_a_reading_are_safe_and_two_good_ones_end_it() -> None:
    """The first missing reading holds, the second takes all to the floor; then two good readings start from there."""
    night = hot()
    held = asked(night.setting)
    assert asked(night.nothing()) == held
    assert asked(night.nothing()) == FLOOR
    assert isinstance(night.state, Blind)
    assert asked(night.second(60.0, 100.0)) == FLOOR
    assert asked(night.second(60.0, 100.0)) == (900, 280.0, None)
    assert isinstance(night.state, Throttled)


@pytest.mark.parametrize(
    "said",
    [
        {"temperature_c": 0.0},
        {"temperature_c": 255.0},
        {"temperature_c": float("nan")},
        {"temperature_c": None},
        {"power_w": 2e6},
        {"power_w": -1.0},
        {"energy_j": -1.0},
        {"memory_temperature_c": 255.0},
        {"temperature_c": 30.0},
        {"time_s": -100.0},
    ],
)
def test_a_reading_that_cannot_be_is_none(said: dict[str, object]) -> None:
    """Two implausible samples in a row are two missing ones, and the words say what was wrong."""
    night = hot()
    night.second(77.0, **said)  # type: ignore[arg-type]
    assert isinstance(night.state, Throttled)
    night.second(77.0, **said)  # type: ignore[arg-type]
    assert isinstance(night.state, Blind)
    assert asked(night.setting) == FLOOR
    assert "the card" in night.setting.reason


def test_a_frozen_card_is_blind_within_two_periods() -> None:
    """A card that draws power and whose energy counter stands still has a frozen sensor, however plausible its values."""
    night = hot()
    for _ in range(2):
        night.second(77.0, 650.0, energy_j=night.energy)
        night.energy -= 650.0
    assert isinstance(night.state, Blind)


def test_a_card_that_slows_itself_down_pauses_the_run() -> None:
    """A growing counter of thermal slowdown is a fault of the cooling; each such pause is longer than the one before."""
    night = hot()
    night.second(70.0, thermal_ns=200_000_000)
    assert isinstance(night.state, Paused) and asked(night.setting) == FLOOR
    assert "fans" in night.setting.reason
    first = night.state.until_s - night.now
    for _ in range(40):
        night.second(60.0, 100.0, thermal_ns=200_000_000)
    assert isinstance(night.state, Throttled | Nominal)
    night.second(70.0, thermal_ns=200_000_000, throttle=Throttle.SW_THERMAL)
    assert isinstance(night.state, Paused)
    assert night.state.until_s - night.now == 2 * first


def test_a_pause_lasts_until_the_card_is_cool() -> None:
    """A paused card stays so at 75 °C however long, and goes on, from the floor, at 74 °C."""
    night = hot()
    night.second(78.0, throttle=Throttle.HW_THERMAL)
    for _ in range(100):
        assert night.second(75.0, 100.0).max_num_seqs == 0
    assert night.second(74.0, 100.0).max_num_seqs is None
    assert isinstance(night.state, Throttled)
    assert night.setting.power_w == 280.0


def test_a_paused_card_can_go_blind() -> None:
    """Without readings a pause becomes blindness."""
    night = hot()
    night.second(78.0, throttle=Throttle.HW_THERMAL)
    assert asked(night.nothing()) == FLOOR
    night.nothing()
    assert isinstance(night.state, Blind)


def test_a_lost_card_stays_lost() -> None:
    """After the bus has lost it, nothing runs, whatever is read."""
    night = hot()
    night.state, setting = lost(night.state, "GpuIsLost")
    assert setting.max_num_seqs == 0 and "GpuIsLost" in setting.reason
    assert isinstance(night.state, Lost)
    assert night.second(40.0, 80.0).max_num_seqs == 0


def test_another_writer_is_not_fought() -> None:
    """A power limit that is not ours is left to whoever set it, and the clock goes on by itself."""
    night = hot()
    setting = night.second(78.0, requested_w=500.0)
    assert setting.power_w is None
    assert setting.clock_mhz is not None
    assert "500 W" in setting.reason
    assert all(night.second(78.0).power_w is None for _ in range(5))


def test_three_refusals_leave_sequences_alone() -> None:
    """After three failed writes in a row what was asked for stands and sequences are bounded; one that works ends it."""
    night = hot()
    twice = refused(obeyed(refused(refused(night.state, "NoPermission"), "NoPermission")), "NoPermission")
    assert isinstance(twice, Throttled) and twice.track.levers.power
    before = night.setting
    for _ in range(3):
        night.state = refused(night.state, "NoPermission")
    setting = night.seconds(3, 79.0, 600.0)
    assert asked(setting) == (before.clock_mhz, before.power_w, 0)
    assert "NoPermission" in setting.reason
    night.state = obeyed(night.state)
    assert isinstance(night.state, Paused) and night.state.track.levers.power


def test_a_stuck_temperature_is_not_believed() -> None:
    """A reading that stands still while the power must have moved it makes the governor blind until it moves again."""
    night = Night()
    night.seconds(60, 60.0, 200.0)
    night.seconds(12, 60.0, 690.0)
    assert isinstance(night.state, Blind)
    assert "60 °C whatever it draws" in night.setting.reason
    assert asked(night.seconds(20, 60.0, 100.0)) == FLOOR
    assert asked(night.seconds(2, 52.0, 100.0)) == (900, 280.0, None)


def test_power_rises_little_while_the_reading_does_not_move() -> None:
    """Near the set point a rise must be seen in the temperature before the next one."""
    night = hot()
    before = night.setting.power_w or 700.0
    assert (night.seconds(25, 77.0, before).power_w or 700.0) <= before + 0.05 * 700


def test_without_permission_for_power_the_clock_does_it() -> None:
    """A card whose power limit cannot be set is held by its clock."""
    night = Night(replace(CARD, no_power="needs root"))
    for temperature in (70.0, 72.0, 74.0, 75.0, 76.0, 76.0):
        night.second(temperature)
    assert night.setting.power_w is None
    assert night.setting.clock_mhz is not None and night.setting.clock_mhz <= 1500
    assert "needs root" in night.setting.reason


def test_a_planned_prefill_lowers_the_clock_ahead() -> None:
    """With the clock alone, decode that goes on may run faster than decode before a block of prompts."""
    clocks = []
    for ahead in (0.0, 1.0):
        night = Night(replace(CARD, no_power="needs root"))
        decode = Load(running=100, max_num_seqs=256, prefill=0.0, prefill_ahead=ahead)
        for temperature in (60.0, 66.0, 71.0, 74.0, 75.0, 76.0, 76.0):
            night.second(temperature, 330.0, decode)
        clocks.append(night.setting.clock_mhz or CLOCKS[-1])
    assert clocks[1] < clocks[0]


def test_observing_bounds_sequences_only() -> None:
    """In observe mode a hot card gets fewer sequences, and at the line none."""
    night = Night(control="observe")
    night.seconds(60, 76.0, 500.0)
    night.seconds(10, 77.0, 540.0)
    night.seconds(3, 78.0, 560.0)
    assert night.setting.max_num_seqs is not None and 0 < night.setting.max_num_seqs < 100
    night.second(80.0, 690.0)
    assert isinstance(night.state, Paused)
    assert asked(night.setting) == (None, None, 0)
    for _ in range(10):
        night.second(70.0, 100.0)
    bounds = [night.second(60.0, 200.0).max_num_seqs for _ in range(200)]
    assert bounds[0] is not None and bounds[-1] is None


@pytest.mark.parametrize("temperature", [None, 60.0])
def test_what_cannot_be_governed_is_left_alone(temperature: float | None) -> None:
    """Without a temperature, or with control off, nothing is bounded, and the reason says so."""
    control = "managed" if temperature is None else "off"
    state = begin(CARD, PowerConfig(control=control), replace(FIRST, temperature_c=temperature))
    assert isinstance(state, Unable)
    _, setting = decide(state, FIRST, BUSY, 1.0)
    assert asked(setting) == (None, None, None) and setting.reason


def test_limits_are_the_lowest_of_card_and_settings() -> None:
    """The set point is below the line, and below where the card slows itself down; the limit found is the top."""
    config = PowerConfig(control="managed")
    assert limits_of(CARD, config, FIRST).set_point_c == 78.0
    assert limits_of(replace(CARD, max_c=80.0), config, FIRST).set_point_c == 75.0
    assert limits_of(replace(CARD, slowdown_c=80.0), config, FIRST).set_point_c == 73.0
    assert limits_of(replace(CARD, max_c=None), config, replace(FIRST, margin_c=15.0)).set_point_c == 70.0
    assert limits_of(CARD, PowerConfig(max_temperature_c=70.0), FIRST).set_point_c == 68.0
    assert limits_of(CARD, config, replace(FIRST, requested_w=500.0)).top_w == 500.0
    assert limits_of(replace(CARD, min_w=300.0), config, FIRST).floor_w == 300.0


def test_the_deadline_does_not_matter_to_a_card_without_one() -> None:
    """Without a deadline there is no clock below the highest on a cool card, whatever is done."""
    night = Night()
    night.seconds(60, 60.0, 400.0, replace(BUSY, done=0.5, rate=1.0))
    assert night.setting.clock_mhz is None
