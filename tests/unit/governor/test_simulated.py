"""The simulated card behaves towards its clients as NVML's do."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.governor.cards import A10G, A100, H100
from tasks.governor.device import CardError, CardLostError
from tasks.governor.events import Event, Kind
from tasks.governor.sample import Sample, Throttle
from tasks.governor.simulated import MachineRoom, SimulatedDevice

PREFILL = Event(Kind.LOAD, 0, size=1.0)


def room_of(*events: Event, persistence: bool = True) -> MachineRoom:
    return MachineRoom([H100], [events], persistence=persistence)


def test_requested_enforced_and_default_limits_are_three_things() -> None:
    """The board's own controller may hold less than what was asked for, and the default stays what it was."""
    room = room_of(PREFILL, Event(Kind.OUT_OF_BAND, 5, for_s=10, size=450))
    device = SimulatedDevice(room)
    device.set_power_limit(600)
    room.advance(10)
    sample = device.read()
    assert (sample.requested_w, sample.enforced_w, device.card.default_w) == (600, 450, 700)
    assert sample.power_w is not None and sample.power_w <= 451
    room.advance(10)
    assert device.read().enforced_w == 600


@given(watts=st.floats(-1e6, 1e7, allow_nan=False))
@settings(max_examples=80, deadline=None)
def test_limits_out_of_range_are_refused_and_change_nothing(watts: float) -> None:
    """Whatever is asked for, the card has a limit that it may have."""
    device = SimulatedDevice(room_of())
    device.set_power_limit(500)
    if 200 <= round(watts * 1000) / 1000 <= 700:
        device.set_power_limit(watts)
        assert device.requested_w() == pytest.approx(watts, abs=1e-3)
    else:
        with pytest.raises(CardError, match="between 200 and 700"):
            device.set_power_limit(watts)
        assert device.requested_w() == 500


@given(mhz=st.integers(-100, 5000))
@settings(max_examples=80, deadline=None)
def test_a_clock_lock_is_taken_to_a_clock_that_there_is(mhz: int) -> None:
    """The card runs at a listed clock that is no higher than asked for."""
    room = room_of(Event(Kind.LOAD, 0))
    device = SimulatedDevice(room)
    if mhz < 345:
        with pytest.raises(CardError, match="345 MHz"):
            device.lock_clock(mhz)
        return
    device.lock_clock(mhz)
    room.advance(3)
    clock = device.read().sm_clock_mhz
    assert clock in device.card.clocks_mhz and clock is not None
    assert clock <= mhz and (clock == 1980 or mhz - clock < 15)


def test_a_setting_outlives_its_client() -> None:
    """Who closes the card leaves limit and lock behind, and the next one finds them."""
    room = room_of(PREFILL)
    first = SimulatedDevice(room)
    first.set_power_limit(300)
    first.lock_clock(1200)
    first.close()
    room.advance(5)
    second = SimulatedDevice(room)
    assert second.requested_w() == 300 and second.read().enforced_w == 300
    second.set_power_limit(700)
    room.advance(5)
    assert second.read().sm_clock_mhz == 1200
    second.unlock_clock()
    room.advance(5)
    assert second.read().sm_clock_mhz == pytest.approx(1700, abs=30)


def test_without_persistence_the_last_client_takes_the_settings_with_it() -> None:
    """They stay while anybody has the card open, and are gone after that."""
    room = room_of(persistence=False)
    first, second = SimulatedDevice(room), SimulatedDevice(room)
    first.set_power_limit(300)
    first.close()
    assert second.requested_w() == 300
    second.close()
    assert SimulatedDevice(room).requested_w() == 700


def test_a_reload_of_the_driver_forgets_settings_and_counters() -> None:
    """Limit and lock are the default, and the energy counter begins anew."""
    room = room_of(PREFILL)
    device = SimulatedDevice(room)
    device.set_power_limit(300)
    room.advance(10)
    room.boards[0].reload_driver()
    sample = device.read()
    assert (sample.requested_w, sample.enforced_w, sample.energy_j) == (700, 700, 0)


def test_who_may_not_set_may_read() -> None:
    """Every setter says that it needs root, the card says so in advance, and nothing has changed."""
    device = SimulatedDevice(room_of(), permitted=False)
    assert device.card.no_clock and device.card.no_power
    acts: list[Callable[[], object]] = [lambda: device.set_power_limit(300), lambda: device.lock_clock(1000)]
    for act in (*acts, device.unlock_clock):
        with pytest.raises(CardError, match="NoPermission"):
            act()
    assert device.requested_w() == 700 and device.read().temperature_c is not None


def test_a_write_that_the_card_does_not_obey_is_found_out() -> None:
    """The driver says success and the limit is another one: reading back tells."""
    device = SimulatedDevice(room_of(Event(Kind.REFUSED, 0, for_s=5)))
    with pytest.raises(CardError, match="the card has 700 W"):
        device.set_power_limit(300)


def test_another_writer_comes_back_again_and_again() -> None:
    """What somebody else sets is seen as requested, and is set again after a while."""
    room = room_of(Event(Kind.WRITER, 2, size=650, every_s=30))
    device = SimulatedDevice(room)
    device.set_power_limit(400)
    room.advance(3)
    assert device.requested_w() == 650
    device.set_power_limit(400)
    room.advance(25)
    assert device.requested_w() == 400
    room.advance(10)
    assert device.requested_w() == 650
    assert [write.ours for write in room.boards[0].writes] == [True, False, True, False]


def test_a_lost_card_stays_lost() -> None:
    """After it has fallen off the bus every call says so, for good."""
    room = room_of(PREFILL, Event(Kind.LOST, 5, for_s=1))
    device = SimulatedDevice(room)
    device.read()
    room.advance(20)
    acts: list[Callable[[], object]] = [lambda: device.set_power_limit(300), lambda: device.lock_clock(900)]
    for act in (*acts, device.read, device.requested_w):
        with pytest.raises(CardLostError):
            act()
    with pytest.raises(CardLostError):
        SimulatedDevice(room).read()


def test_a_frozen_sensor_repeats_itself() -> None:
    """Temperature, power and counters stay, the time goes on; afterwards they are those of the card again."""
    room = room_of(PREFILL, Event(Kind.FREEZE, 30, for_s=60))
    device = SimulatedDevice(room)
    room.advance(31)
    first = device.read()
    room.advance(50)
    later = device.read()
    assert later.time_s > first.time_s
    assert (later.temperature_c, later.energy_j, later.power_w) == (first.temperature_c, first.energy_j, first.power_w)
    room.advance(20)
    assert (device.read().energy_j or 0) > (first.energy_j or 0) + 10_000


def test_a_stuck_temperature_looks_alive() -> None:
    """The temperature stays as it is while energy goes on."""
    room = room_of(PREFILL, Event(Kind.STUCK, 5, for_s=60))
    device = SimulatedDevice(room)
    room.advance(6)
    first = device.read()
    room.advance(40)
    later = device.read()
    assert later.temperature_c == first.temperature_c and (later.energy_j or 0) > (first.energy_j or 0) + 10_000
    assert room.plant.die_c[0] > (later.temperature_c or 0) + 5


def test_garbage_comes_with_success_and_is_different_each_time() -> None:
    """Each such reading has at least one value that cannot be."""
    room = room_of(PREFILL, Event(Kind.GARBAGE, 0))
    device, seen = SimulatedDevice(room), set[str]()
    for _ in range(60):
        sample = device.read()
        assert not _plausible(sample)
        seen.add(repr((sample.temperature_c, (sample.power_w or 0) > 1000)))
    assert len(seen) >= 4


def _plausible(sample: Sample) -> bool:
    temperature, power = sample.temperature_c, sample.power_w
    assert temperature is not None and power is not None
    return 0 < temperature < 120 and 0 <= power <= 1050


def test_a_call_that_hangs_takes_its_time() -> None:
    """Up to its deadline it waits for the driver, and then gives up; the card works on meanwhile."""
    room = room_of(PREFILL, Event(Kind.HANG, 10, for_s=2.5))
    device = SimulatedDevice(room, deadline_s=2.0)
    room.advance(10)
    with pytest.raises(CardError, match="did not answer within 2 s"):
        device.read()
    assert room.now_s == pytest.approx(12)
    assert device.read().time_s == pytest.approx(12.5)


def test_what_a_card_does_not_offer_is_none() -> None:
    """A10G has no sensor in its memory; before Hopper nobody tells what units do; margins are Ada's and later."""
    room = MachineRoom([A10G, A100, H100])
    small, middle, large = (SimulatedDevice(room, at).read() for at in range(3))
    assert small.memory_temperature_c is None and small.memory_margin_c is None and middle.memory_temperature_c is not None
    assert small.sm_activity is None and middle.sm_activity is None and large.sm_activity is not None
    assert (small.margin_c, middle.margin_c) == (None, None)
    assert large.margin_c == 87 - (large.temperature_c or 0)


def test_an_idle_card_says_so() -> None:
    """Without a load the bit for it is set and utilisation is nothing."""
    room = room_of(Event(Kind.LOAD, 20, size=0.5))
    device = SimulatedDevice(room)
    room.advance(5)
    assert device.read().throttle == Throttle.GPU_IDLE and device.read().utilization == 0
    room.advance(20)
    sample = device.read()
    assert sample.utilization == 1 and sample.throttle == Throttle(0)


def test_the_air_and_the_fans_move_as_told() -> None:
    """Ramp, step, cycle and a failing fan add up, and what is over is over."""
    events = (
        Event(Kind.INLET_RAMP, 100, for_s=100, size=6),
        Event(Kind.INLET_STEP, 300, for_s=200, size=4),
        Event(Kind.INLET_CYCLE, 1000, for_s=400, size=1),
        Event(Kind.FAN, 600, for_s=100, size=1.5),
    )
    room = room_of(*events)
    found = {}
    for second in range(1, 1201):
        room.advance(1)
        found[second] = float(room.plant.inlet_c[0]), float(room.plant.fan[0])
    assert (
        found[90] == (25, 1) and found[150][0] == pytest.approx(28, abs=0.1) and found[290][0] == pytest.approx(31, abs=0.1)
    )
    assert found[320][0] == pytest.approx(31 + 4 * 0.632, abs=0.1) and found[499][0] == pytest.approx(35, abs=0.1)
    assert found[620][0] == pytest.approx(31, abs=0.1) and found[650][1] == 1.5 and found[750][1] == 1
    assert found[1100][0] == pytest.approx(32, abs=0.1)


def test_the_same_events_and_seed_are_the_same_card() -> None:
    """Garbage and all, a second room tells the same to the letter."""
    events = (PREFILL, Event(Kind.INLET_STEP, 5, size=6), Event(Kind.GARBAGE, 10, for_s=5))

    def told() -> list[Sample]:
        room = room_of(*events)
        device, samples = SimulatedDevice(room), []
        for _ in range(20):
            room.advance(1)
            samples.append(device.read())
        return samples

    assert repr(told()) == repr(told())
