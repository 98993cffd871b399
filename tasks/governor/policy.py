"""What the governor decides, each period: (state, sample, load, now) in, (state, setting) out. Pure.

A period reads like this: is the reading to be believed; what has it taught; how much power does heat allow; which levers
does that move. Levers in order: the power limit, which holds whatever the load does next, inside a fence of the clock;
fewer sequences; a pause. Invariants: at the set point and above nothing is raised; no lever is below its floor; without a
reading to believe for two periods everything is at its floor and nothing runs.
"""

from dataclasses import replace

from tasks.core.config import PowerConfig
from tasks.governor import curve, deadline
from tasks.governor.heat import drawn_w, is_stuck, learnt, room_c, stands, trimmed, wished
from tasks.governor.levers import with_clock, with_power
from tasks.governor.limits import Limits, limits_of
from tasks.governor.safety import Reading, judged
from tasks.governor.sample import Card, Sample
from tasks.governor.sequences import with_sequences
from tasks.governor.setting import Load, Setting
from tasks.governor.state import Blind, Held, Levers, Lost, Nominal, Paused, State, Throttled, Track, Unable

MISSED, SEEN = 2, 2
"""Periods without a reading to believe before everything goes to its floor, and with one before it may rise again."""

COOL_C = 4.0
"""A pause ends so much below the set point."""

PAUSE_S, FAULT_S, LONGEST_S = 5.0, 30.0, 480.0
"""A pause because of heat takes at least so long; because the card slows itself down; and, if such pauses do not help, up to
so long."""

PATIENCE_S = 60.0
"""A pause waits no longer than this for the card to stand what it drew before."""

SLOWED_S = 0.05
"""A card that slows itself down for longer in one period has a fault in its cooling: it was held below its limits."""

REFUSALS = 3
"""Failed writes in a row before clock and power limit are left alone."""


def begin(card: Card, config: PowerConfig, sample: Sample | None) -> State:
    """The first state, from what the card is and how it was found."""
    if config.control == "off":
        return Unable("power control is off")
    if sample is None or sample.temperature_c is None:
        return Unable(f"{card.name} does not tell its temperature, so that its heat is not governed")
    limits = limits_of(card, config, sample)
    levers = Levers(limits.can_clock, limits.can_power, _why_not(card, config, limits))
    held = Held(limits.top_mhz, limits.top_w)
    return Nominal(Track(limits, levers, held, curve.prior(), deadline.Pace(), None, None, None, None, sample.time_s))


def decide(state: State, sample: Sample | None, load: Load, now_s: float) -> tuple[State, Setting]:
    """One period: the next state, and what may run. `now_s` is of the clock that samples are stamped with."""
    if isinstance(state, Unable):
        return state, Setting(reason=state.words)
    if isinstance(state, Lost):
        return state, Setting(max_num_seqs=0, reason=state.words)
    reading = judged(state.track.limits, state.track.last, sample, now_s)
    if isinstance(reading, str):
        return _unread(state, reading, now_s)
    track = learnt(_noticed(state.track, reading), reading, load, now_s)
    if isinstance(state, Blind):
        return _seeing(replace(state, track=track), reading, now_s)
    if is_stuck(track, reading):
        words = f"the card says {reading.temperature_c:g} °C whatever it draws"
        return _blind(track, words, stuck_c=reading.temperature_c)
    if isinstance(state, Paused):
        return _resting(replace(state, track=track), reading, now_s)
    return _governed(track, reading, load, now_s)


def lost(state: State, words: str) -> tuple[State, Setting]:
    """The card is gone (CardLostError): the engine is to stop."""
    words = f"the card is lost, and nothing runs any more: {words}"
    if isinstance(state, Unable):
        return state, Setting(max_num_seqs=0, reason=words)
    return Lost(state.track, words), Setting(max_num_seqs=0, reason=words)


def refused(state: State, words: str) -> State:
    """A write has failed (CardError). After three in a row sequences do it all: what was last asked for stands, as it is no
    more than heat allowed, and a write of it that works brings the levers back."""
    if isinstance(state, Unable | Lost):
        return state
    track, levers = state.track, replace(state.track.levers, refused=state.track.levers.refused + 1)
    if levers.refused >= REFUSALS:
        words = f"the card refused {REFUSALS} settings in a row, so that only sequences are bounded: {words}"
        levers = replace(levers, clock=False, power=False, words=words)
    return replace(state, track=replace(track, levers=levers))


def obeyed(state: State) -> State:
    """A write has worked."""
    if isinstance(state, Unable | Lost) or not state.track.levers.refused:
        return state
    track, levers = state.track, replace(state.track.levers, refused=0)
    if state.track.levers.refused >= REFUSALS:
        levers = Levers(track.limits.can_clock, track.limits.can_power)
    return replace(state, track=replace(track, levers=levers))


def _why_not(card: Card, config: PowerConfig, limits: Limits) -> str:
    if config.control != "managed":
        return "control = observe: clock and power limit are left alone"
    words = [card.no_clock] if card.no_clock and not limits.can_clock else []
    words += [card.no_power] if card.no_power and not limits.can_power and card.no_power != card.no_clock else []
    return "; ".join(words)


def _noticed(track: Track, reading: Reading) -> Track:
    """Another writer of the power limit: it is left to them from now on."""
    asked, seen = track.asked_w, reading.requested_w
    if asked is None or seen is None or abs(asked - seen) <= 1.0 or track.levers.refused:
        return track
    words = f"the power limit is {seen:.0f} W, and we had asked for {asked:.0f} W: it is left to whoever sets it"
    return _yielded(track, replace(track.levers, power=False, words=words))


def _yielded(track: Track, levers: Levers) -> Track:
    """Without some levers, which stand from now on where others put them."""
    held, limits = track.held, track.limits
    held = held if levers.power else replace(held, power_w=limits.top_w)
    held = held if levers.clock else replace(held, clock_mhz=limits.top_mhz)
    return replace(track, levers=levers, held=held, asked_w=track.asked_w if levers.power else None)


def _governed(track: Track, reading: Reading, load: Load, now_s: float) -> tuple[State, Setting]:
    """A period in which all is well: the levers go where heat and the deadline want them."""
    if reading.slowed_s > SLOWED_S or reading.hot:
        return _faulty(track, now_s)
    limits, levers, held = track.limits, track.levers, track.held
    wish = wished(track, reading, load)
    held = with_power(held, limits, wish, now_s) if levers.power else held
    held = with_clock(held, limits, wish, not levers.power, now_s) if levers.clock else held
    held = with_sequences(held, track, wish, reading, load, drawn_w(track, reading), now_s)
    if held.max_num_seqs == 0:
        track = replace(track, held=replace(held, max_num_seqs=_half(track.held, load)))
        return _paused(track, f"the card has {reading.temperature_c:g} °C", PAUSE_S, now_s, drawn_w(track, reading))
    fenced = held.clock_mhz < limits.top_mhz and wish.power_w < limits.top_w
    bounded = held.power_w < limits.top_w or held.max_num_seqs is not None or fenced
    track = replace(_holding(track, held), trim_c=trimmed(track, reading, wish, bounded))
    return (Throttled if bounded else Nominal)(track), _setting(track, _words(track, reading, bounded))


def _unread(state: Nominal | Throttled | Paused | Blind, words: str, now_s: float) -> tuple[State, Setting]:
    """A period without a reading to believe: nothing is raised; in the second one all goes to its floor."""
    track = replace(state.track, missed=state.track.missed + 1, now_s=now_s)
    last = track.last
    silent = last is not None and not 0 <= now_s - last.time_s < MISSED * track.limits.period_s
    if isinstance(state, Blind) or track.missed >= MISSED or silent:
        return _blind(track, words, state.stuck_c if isinstance(state, Blind) else None)
    if isinstance(state, Paused):
        return replace(state, track=track), _floor_setting(track, state.words)
    return replace(state, track=track), _setting(track, f"{words}: nothing is raised until it can be read")


def _blind(track: Track, words: str, stuck_c: float | None = None) -> tuple[State, Setting]:
    track = replace(_at_floor(track), die=None, memory=None, unread=None)
    words = f"{words}: everything is at its lowest, and nothing runs until it can be read again"
    return Blind(track, words, stuck_c=stuck_c), _floor_setting(track, words)


def _seeing(state: Blind, reading: Reading, now_s: float) -> tuple[State, Setting]:
    if reading.temperature_c == state.stuck_c:
        return state, _floor_setting(state.track, state.words)
    if state.good + 1 < SEEN:
        return replace(state, good=state.good + 1), _floor_setting(state.track, state.words)
    track = _waiting(state.track, now_s)
    return Throttled(track), _setting(track, "the card can be read again: from the lowest upwards")


def _resting(state: Paused, reading: Reading, now_s: float) -> tuple[State, Setting]:
    if reading.slowed_s > SLOWED_S or reading.hot:
        state = replace(state, until_s=max(state.until_s, now_s + FAULT_S))
    patient = now_s < state.until_s + PATIENCE_S and not stands(state.track, state.draw_w)
    if now_s < state.until_s or room_c(state.track.limits, reading) < COOL_C or patient:
        return state, _floor_setting(state.track, state.words)
    track = _waiting(state.track, now_s)
    return Throttled(track), _setting(track, "cooler again: from the lowest upwards")


def _faulty(track: Track, now_s: float) -> tuple[State, Setting]:
    """Pauses that do not help become longer."""
    words = "the card slows itself down because of heat: look at its fans, its air and its memory"
    seconds = min(FAULT_S * 2**track.faults, LONGEST_S)
    return _paused(replace(track, faults=min(track.faults + 1, 10)), words, seconds, now_s)


def _paused(track: Track, words: str, seconds: float, now_s: float, draw_w: float = 0.0) -> tuple[State, Setting]:
    track = _at_floor(track)
    words = f"{words}: paused until it is {COOL_C:g} °C below its set point"
    return Paused(track, now_s + seconds, words, draw_w), _floor_setting(track, words)


def _at_floor(track: Track) -> Track:
    """With the levers that can be moved at their floors."""
    limits, levers, held = track.limits, track.levers, track.held
    clock = limits.clocks_mhz[0] if levers.clock else held.clock_mhz
    power = limits.floor_w if levers.power else held.power_w
    return _holding(track, replace(held, clock_mhz=clock, power_w=power))


def _waiting(track: Track, now_s: float) -> Track:
    """With the levers as they stand, to rise no sooner than after a while."""
    return _holding(track, replace(track.held, rose_s=now_s, clock_s=now_s, seqs_s=now_s))


def _half(held: Held, load: Load) -> int:
    running = max(load.running, 1)
    return max((running if held.max_num_seqs is None else min(held.max_num_seqs, running)) // 2, 1)


def _holding(track: Track, held: Held) -> Track:
    """With the levers so; and the power limit that the card should show from then on."""
    touched = (track.levers.power or _given_up(track)) and (track.asked_w is not None or held.power_w < track.limits.top_w)
    return replace(track, held=held, asked_w=held.power_w if touched else None)


def _setting(track: Track, words: str) -> Setting:
    held, limits, levers = track.held, track.limits, track.levers
    clock = held.clock_mhz if (levers.clock or _given_up(track)) and held.clock_mhz < limits.top_mhz else None
    power = held.power_w if (levers.power or _given_up(track)) and held.power_w < limits.top_w else None
    return Setting(clock, power, held.max_num_seqs, words)


def _given_up(track: Track) -> bool:
    return track.levers.refused >= REFUSALS


def _floor_setting(track: Track, words: str) -> Setting:
    why_not = track.levers.words
    words = f"{words} ({why_not})" if why_not and why_not not in words else words
    return replace(_setting(track, words), max_num_seqs=0)


def _words(track: Track, reading: Reading, bounded: bool) -> str:
    held, limits, why_not = track.held, track.limits, track.levers.words
    words = f"{reading.temperature_c:g} °C of {limits.set_point_c:g} °C"
    if bounded:
        parts = [f"at most {held.power_w:.0f} W"] if held.power_w < limits.top_w else []
        parts += [f"at most {held.clock_mhz} MHz"] if held.clock_mhz < limits.top_mhz else []
        parts += [f"at most {held.max_num_seqs} sequences"] if held.max_num_seqs is not None else []
        words = f"{words}: {', '.join(parts)}"
    elif held.clock_mhz < limits.top_mhz:
        words = f"{words}; {held.clock_mhz} MHz are enough for the deadline and take the least energy"
    return f"{words} ({why_not})" if why_not else words
