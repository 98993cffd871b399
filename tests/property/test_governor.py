"""Whatever a card says, the governor's settings stay within their bounds, and go the safe way."""

import math
from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tasks.core.config import PowerConfig
from tasks.governor.policy import begin, decide, lost, obeyed, refused
from tasks.governor.sample import Card, Sample, Throttle
from tasks.governor.setting import Load, Setting
from tasks.governor.state import Blind, Lost, Nominal, Paused, State, Throttled

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
CARDS = (
    CARD,
    replace(CARD, no_clock="no permission"),
    replace(CARD, no_power="no permission"),
    replace(CARD, no_clock="no permission", no_power="no permission"),
    replace(CARD, clocks_mhz=(), max_c=None, slowdown_c=None, memory_max_c=None, default_w=None, min_w=None, max_w=None),
)
SET_C, FLOOR_MHZ, FLOOR_W = 78.0, 0.45 * CLOCKS[-1], 280.0
FIRST = Sample(0.0, 60.0, 65.0, 27.0, 30.0, 100.0, 1e6, 1980, requested_w=700.0, thermal_ns=0)

odd = st.sampled_from([None, math.nan, math.inf, -math.inf, -1.0, 0.0, 255.0, 1e9])
temperatures = st.one_of(st.integers(20, 119).map(float), st.integers(70, 90).map(float), odd)
powers = st.one_of(st.floats(0, 1000), odd)
loads = st.builds(
    Load,
    running=st.integers(0, 256),
    max_num_seqs=st.sampled_from([0, 256]),
    prefill=st.one_of(st.none(), st.floats(0, 1)),
    prefill_ahead=st.one_of(st.none(), st.floats(0, 1)),
    done=st.one_of(st.none(), st.floats(0, 1)),
    seconds_left=st.one_of(st.none(), st.floats(-10, 1e5)),
)
samples = st.builds(
    Sample,
    time_s=st.just(0.0),
    temperature_c=temperatures,
    memory_temperature_c=temperatures,
    margin_c=st.one_of(st.floats(-10, 60), odd),
    memory_margin_c=st.one_of(st.floats(-10, 60), odd),
    power_w=powers,
    energy_j=powers,
    sm_clock_mhz=st.one_of(st.none(), st.integers(0, 2000)),
    requested_w=st.one_of(st.none(), st.just(700.0), st.floats(100, 700)),
    throttle=st.one_of(st.none(), st.just(Throttle(0)), st.sampled_from(Throttle)),
    thermal_ns=st.one_of(st.none(), st.integers(0, 10**10)),
)
steps = st.tuples(
    st.one_of(st.none(), samples), loads, st.sampled_from([1.0, 1.0, 1.0, 0.98, 1.3, 0.0, -5.0, 3.0, 3600.0, -1e6, 1e9])
)
nights = st.lists(steps, min_size=1, max_size=12)
usual = st.builds(
    lambda temperature, memory, power, clock, load: (temperature, memory, power, clock, load),
    *(
        st.integers(55, 84).map(float),
        st.integers(55, 94).map(float),
        st.floats(60, 700),
        st.sampled_from(CLOCKS[40:]),
        loads,
    ),
)


def started(card: Card, control: str = "managed") -> State:
    return begin(card, PowerConfig(control=control), FIRST)


def asked_for(setting: Setting) -> tuple[float, float, float]:
    """What may run: more is more."""
    return (
        math.inf if setting.clock_mhz is None else setting.clock_mhz,
        math.inf if setting.power_w is None else setting.power_w,
        math.inf if setting.max_num_seqs is None else setting.max_num_seqs,
    )


def lived(state: State, days: list[tuple[float, float, float, int, Load]]) -> tuple[State, float]:
    """The state after some usual seconds, and the time."""
    now = 0.0
    for temperature, memory, power, clock, load in days:
        now += 1.0
        state, _ = decide(state, seen(now, temperature, memory, power, clock, state), load, now)
    return state, now


def seen(now: float, temperature: float, memory: float, power: float, clock: int, state: State) -> Sample:
    requested = getattr(getattr(state, "track", None), "asked_w", None) or 700.0
    return Sample(
        now,
        temperature,
        memory,
        power_w=power,
        energy_j=1e6 + 700 * now,
        sm_clock_mhz=clock,
        requested_w=requested,
        thermal_ns=0,
    )


@given(st.sampled_from(CARDS), st.sampled_from(["managed", "observe"]), nights)
@settings(max_examples=120, deadline=None)
def test_settings_stay_within_bounds_and_floors(
    card: Card, control: str, night: list[tuple[Sample | None, Load, float]]
) -> None:
    """Whatever the card says and however time jumps, a clock is one of the card's and a power limit is one it takes, neither
    below its floor, and what may not be set is not."""
    state, now = started(card, control), 0.0
    for sample, load, passed in night:
        now += passed
        state, setting = decide(state, sample and replace(sample, time_s=now), load, now)
        assert setting.clock_mhz is None or (setting.clock_mhz in CLOCKS and setting.clock_mhz >= FLOOR_MHZ)
        assert setting.power_w is None or FLOOR_W <= setting.power_w <= 700.0
        assert setting.max_num_seqs is None or setting.max_num_seqs >= 0
        assert setting.reason
        if control == "observe" or card.no_clock:
            assert setting.clock_mhz is None
        if control == "observe" or card.no_power:
            assert setting.power_w is None


@given(st.sampled_from(CARDS[:4]), nights, st.booleans())
@settings(max_examples=100, deadline=None)
def test_the_same_goes_in_and_the_same_comes_out(
    card: Card, night: list[tuple[Sample | None, Load, float]], twice: bool
) -> None:
    """Deciding twice with equal inputs gives equal states and settings."""
    state, now = started(card), 0.0
    for sample, load, passed in night:
        now += passed
        sample = sample and replace(sample, time_s=now)
        first, second = decide(state, sample, load, now), decide(state, sample, load, now)
        assert repr(first) == repr(second)
        state = first[0] if twice else second[0]


@given(st.sampled_from(CARDS[:4]), st.lists(usual, max_size=20), usual)
@settings(max_examples=100, deadline=None)
def test_at_the_set_point_nothing_is_raised(
    card: Card, night: list[tuple[float, float, float, int, Load]], then: tuple[float, float, float, int, Load]
) -> None:
    """With a reading at the set point or above, no lever goes up."""
    state, now = lived(started(card), night)
    state, before = decide(state, None, Load(running=1), now)
    if isinstance(state, Blind | Lost):
        return
    _, memory, power, clock, load = then
    after = decide(state, seen(now + 1, max(then[0], SET_C), memory, power, clock, state), load, now + 1)[1]
    if load.seconds_left is not None:
        return
    assert all(new <= old for new, old in zip(asked_for(after), asked_for(before), strict=True))


@given(st.sampled_from(CARDS[:4]), st.lists(usual, max_size=20), usual, st.integers(0, 30), st.integers(0, 30))
@settings(max_examples=120, deadline=None)
def test_hotter_never_gets_more(
    card: Card,
    night: list[tuple[float, float, float, int, Load]],
    then: tuple[float, float, float, int, Load],
    hotter: int,
    memory_hotter: int,
) -> None:
    """Of two believed readings that differ in temperature alone, the hotter one never gives more of any lever."""
    state, now = lived(started(card), night)
    temperature, memory, power, clock, load = then
    believed, cool = decide(state, seen(now + 1, temperature, memory, power, clock, state), load, now + 1)
    assume(not isinstance(believed, Blind) and "nothing is raised until" not in cool.reason)
    hot = decide(
        state, seen(now + 1, temperature + hotter, min(memory + memory_hotter, 119), power, clock, state), load, now + 1
    )[1]
    assert all(less <= more for less, more in zip(asked_for(hot), asked_for(cool), strict=True))


@given(st.sampled_from(CARDS[:4]), st.lists(usual, max_size=20), st.integers(2, 5), st.one_of(st.none(), samples))
@settings(max_examples=100, deadline=None)
def test_blind_for_two_periods_is_safe(
    card: Card, night: list[tuple[float, float, float, int, Load]], periods: int, sample: Sample | None
) -> None:
    """Two periods without a reading, or with the same old one, and nothing runs, with every lever at its floor."""
    state, now = lived(started(card), night)
    setting = Setting()
    for _ in range(periods):
        now += 1.0
        state, setting = decide(state, sample and replace(sample, temperature_c=math.nan), Load(running=9), now)
    assert isinstance(state, Blind)
    assert setting.max_num_seqs == 0
    assert setting.clock_mhz == (None if card.no_clock else next(clock for clock in CLOCKS if clock >= FLOOR_MHZ))
    assert setting.power_w == (None if card.no_power else FLOOR_W)


@given(st.lists(usual, min_size=5, max_size=60))
@settings(max_examples=150, deadline=None)
def test_levers_rise_no_faster_than_they_may(night: list[tuple[float, float, float, int, Load]]) -> None:
    """The power limit rises at most every two seconds and by at most a tenth of the default in each of four; the clock is
    raised at most every two seconds."""
    state, now = started(CARD), 0.0
    before, rose, raised = Setting(), -9.0, -9.0
    for temperature, memory, power, clock, load in night:
        now += 1.0
        state, setting = decide(state, seen(now, temperature, memory, power, clock, state), load, now)
        old, new = before.power_w or 700.0, setting.power_w or 700.0
        if new > old:
            assert now - rose >= 2.0
            assert new - old <= 0.1 * 700 * 4
            rose = now
        if (setting.clock_mhz or 1980) > (before.clock_mhz or 1980):
            assert now - raised >= 2.0
            raised = now
        before = setting


@given(st.lists(usual, max_size=20), st.sampled_from([-1e9, -3600.0, 1e9, 86400.0, 7.0]), usual)
@settings(max_examples=150, deadline=None)
def test_a_jump_of_time_is_safe(
    night: list[tuple[float, float, float, int, Load]], jump: float, then: tuple[float, float, float, int, Load]
) -> None:
    """After a jump of the clock a hot card still gets no more than it had, and a lost one stays lost."""
    state, now = lived(started(CARD), night)
    state, before = decide(state, None, Load(running=1), now)
    now += jump
    _, memory, power, clock, load = then
    if load.seconds_left is None:
        after = decide(state, seen(now, 79.0, memory, power, clock, state), load, now)[1]
        assert all(new <= old for new, old in zip(asked_for(after), asked_for(before), strict=True))
    gone, _ = lost(state, "fell off the bus")
    ended, setting = decide(gone, seen(now, 40.0, 40.0, 60.0, clock, state), load, now)
    assert isinstance(ended, Lost)
    assert setting.max_num_seqs == 0


@given(st.lists(usual, min_size=1, max_size=20), st.lists(st.booleans(), max_size=12))
@settings(max_examples=100, deadline=None)
def test_refusals_end_in_sequences_alone(night: list[tuple[float, float, float, int, Load]], works: list[bool]) -> None:
    """Three failed writes in a row, and only then, take clock and power out of the governor's hands, until one works."""
    state, now = lived(started(CARD), night)
    in_a_row = 0
    for worked in works:
        state = obeyed(state) if worked else refused(state, "NoPermission")
        in_a_row = 0 if worked else in_a_row + 1
    assert isinstance(state, Nominal | Throttled | Paused | Blind)
    assert state.track.levers.power == (in_a_row < 3)
    before = decide(state, None, Load(), now)[1]
    if in_a_row >= 3:
        after = decide(state, seen(now + 1, 79.0, 60.0, 700.0, 1980, state), Load(running=9), now + 1)[1]
        if after.max_num_seqs != 0:
            assert (after.clock_mhz, after.power_w) == (before.clock_mhz, before.power_w)
