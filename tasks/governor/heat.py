"""What a reading teaches about heat, power and work, and how much power heat allows after it."""

from dataclasses import replace
from typing import NamedTuple

from tasks.governor import curve, deadline, thermal
from tasks.governor.levers import FAR_C, Wish
from tasks.governor.limits import BELOW_LINE_C, BELOW_MAX_C, Limits
from tasks.governor.safety import Reading
from tasks.governor.setting import Load
from tasks.governor.state import Track

CAUTION = 1.2
"""A rise in power is thought to heat so many times more than the models say."""

AIM_C = 0.15
"""How far below the set point the estimate is held, before any trim: overshoots are smaller than that much more."""

HOT_C, HOT_SHARE, LINE_SHARE = 1.0, 0.85, 0.70
"""A reading so much above the set point allows such a share of the present draw; one at the line, the second share."""

FENCE = 1.03
"""The clock beside a power limit is that of so much more power: the limit is what binds."""

MEMORY_NEAR_C = 12.0
"""Memory further below its set point than this does not bind, whatever the load does within seconds."""

TRIM_UP_C, TRIM_DOWN_C, TRIM_LOWEST_C, TRIM_HIGHEST_C, TRIM_KEPT = 0.005, 0.03, -1.0, 0.22, 0.98
"""By how much the trim moves in a period, its ends, and what is left of it after a period in which heat bounds nothing
(tuned in simulation: without it the die wanders within the degree that is read)."""

STUCK_C, UNREAD_S = 3.0, 30.0
"""A reading that stays the same while the coolest model rises by so much, within such a time, is stuck."""

UNMOVED_SHARE = 0.02
"""By such a share of the default limit power may rise near the set point while the reading does not move: it should have."""

Models = tuple[thermal.Model, ...]

GAP_PERIODS = 5
"""After so long without a reading the estimate begins anew."""

USUAL_PREFILL = 0.3
"""Share of the time that goes into prompts where nobody says."""


def learnt(track: Track, reading: Reading, load: Load, now_s: float) -> Track:
    """With all that the reading says. A card that does not tell its power is thought to draw what it may."""
    limits, unit = track.limits, track.limits.default_w
    passed = reading.time_s - track.last.time_s if track.last is not None else limits.period_s
    power = reading.power_w if reading.power_w is not None else min(track.held.power_w, unit)
    clock = min(reading.clock_mhz / limits.top_mhz, 1.0) if reading.clock_mhz is not None and limits.top_mhz else None
    curves, pace = track.curves, track.pace
    if clock is not None and load.running:
        curves = curve.refitted(curves, clock, power / unit, load.prefill)
    if load.seconds_left is not None:
        pace = deadline.worked(pace, load, clock, power / unit, min(passed, GAP_PERIODS * limits.period_s))
        pace = deadline.priced(pace, curves, load, now_s, limits.top_w / unit)
    die, memory = track.die, track.memory
    if passed > GAP_PERIODS * limits.period_s:
        die = memory = None
    models = thermal.bank(unit, min(max(round(passed, 1), 0.1), GAP_PERIODS * limits.period_s))
    die = _followed(models, die, unit, reading.temperature_c, power)
    point, hot = limits.memory_set_point_c, reading.memory_c
    near = point is not None and hot is not None and hot >= point - MEMORY_NEAR_C
    memory = _followed(models, memory, unit, hot, power) if near and hot is not None else None
    track = _unread(track, models, reading, die, power, passed)
    return replace(track, curves=curves, pace=pace, last=reading, die=die, memory=memory, now_s=now_s, missed=0)


def is_stuck(track: Track, reading: Reading) -> bool:
    """Whether the temperature has stood still although power must have moved it: a sensor that is stuck."""
    return track.unread is not None and thermal.ahead_of_c(track.unread, reading.temperature_c) > STUCK_C


def _unread(track: Track, models: Models, reading: Reading, die: thermal.Estimate, power_w: float, passed_s: float) -> Track:
    """With the estimate that power alone moves, begun anew when the reading changes, and from time to time: air that becomes
    cooler lets power rise at the same temperature, slowly."""
    changed = track.last is None or track.last.temperature_c != reading.temperature_c
    if track.unread is None or track.die is None or changed or track.unread_s >= UNREAD_S:
        at = track.held.power_w if changed else track.changed_w
        return replace(track, unread=thermal.shifted(die, reading.temperature_c), unread_s=0.0, changed_w=at)
    return replace(track, unread=thermal.predicted(models, track.unread, power_w), unread_s=track.unread_s + passed_s)


def _followed(
    models: Models, estimate: thermal.Estimate | None, unit: float, temperature_c: float, power_w: float
) -> thermal.Estimate:
    middle = temperature_c + 0.5
    if estimate is None:
        estimate = thermal.settled(models, unit, middle, power_w)
    else:
        estimate = thermal.predicted(models, estimate, power_w)
    return thermal.corrected(models, estimate, middle)


def wished(track: Track, reading: Reading, load: Load) -> Wish:
    """What heat and the deadline allow after the reading that was learnt from last."""
    limits, power = track.limits, drawn_w(track, reading)
    die = _Sensor(limits.set_point_c, reading.temperature_c, reading.margin_c, track.die)
    allowed = _allowed(track, die, power)
    if limits.memory_set_point_c is not None and reading.memory_c is not None and track.memory is not None:
        memory = _Sensor(limits.memory_set_point_c, reading.memory_c, reading.memory_margin_c, track.memory)
        allowed = min(allowed, _allowed(track, memory, power))
    room = room_c(limits, reading)
    tried = track.held.power_w - track.changed_w < UNMOVED_SHARE * limits.default_w
    may_rise = room > 0 and (tried or room >= FAR_C)
    return Wish(allowed, _clock(track, allowed, load), may_rise, room >= FAR_C)


def trimmed(track: Track, reading: Reading, wish: Wish, bounded: bool) -> float:
    """The trim of the next period, °C. A reading says no more than its whole degree; that it has just become the set point's
    or just ceased to be is exact. So while heat bounds a lever, the estimate's aim goes down as long as the set point is
    read, and up as long as it is not."""
    if not bounded:
        return track.trim_c * TRIM_KEPT
    if room_c(track.limits, reading) <= 0:
        return max(track.trim_c - TRIM_DOWN_C, TRIM_LOWEST_C)
    change = TRIM_UP_C if wish.may_rise else 0.0
    return min(track.trim_c + change, TRIM_HIGHEST_C)


def room_c(limits: Limits, reading: Reading) -> float:
    """How far the hotter of die and memory is below its set point."""
    room = limits.set_point_c - reading.temperature_c
    if reading.memory_c is not None and limits.memory_set_point_c is not None:
        room = min(room, limits.memory_set_point_c - reading.memory_c)
    return room


def stands(track: Track, draw_w: float) -> bool:
    """Whether the die would stay at its set point within seconds of such a draw, where only sequences can bound it."""
    limits, levers = track.limits, track.levers
    if levers.clock or levers.power or track.die is None:
        return True
    return thermal.ahead_c(thermal.bank(limits.default_w, limits.period_s), track.die, draw_w) <= limits.set_point_c


def drawn_w(track: Track, reading: Reading) -> float:
    """The power of now, W; what may be drawn where the card does not say."""
    return track.held.power_w if reading.power_w is None else reading.power_w


class _Sensor(NamedTuple):
    """Die or memory: where it is to be held, what was read, and what is thought of it. All in °C."""

    point_c: float
    temperature_c: float
    margin_c: float | None
    estimate: thermal.Estimate | None


def _allowed(track: Track, sensor: _Sensor, power_w: float) -> float:
    """W that one of the two may stand. A margin that has become smaller than at the start counts."""
    limits, point = track.limits, sensor.point_c
    if sensor.estimate is None:
        return limits.floor_w
    if sensor.margin_c is not None:
        point = min(point, sensor.temperature_c + sensor.margin_c - BELOW_MAX_C + 1)
    models = thermal.bank(limits.default_w, limits.period_s)
    allowed = thermal.allowed_w(models, sensor.estimate, point - AIM_C + track.trim_c, power_w, CAUTION)
    over = sensor.temperature_c - point
    if over >= HOT_C:
        return min(allowed, (LINE_SHARE if over >= BELOW_LINE_C else HOT_SHARE) * power_w)
    return allowed


def _clock(track: Track, allowed_w: float, load: Load) -> int:
    """The highest clock that heat and the deadline leave, MHz; 0 is any."""
    limits, curves = track.limits, track.curves
    if not limits.clocks_mhz:
        return 0
    clock = limits.top_mhz
    if allowed_w < limits.top_w:
        share = max(allowed_w, limits.floor_w) / limits.default_w
        heavy = curves.now if track.levers.power else curve.heaviest(curves, load.prefill_ahead)
        share *= FENCE if track.levers.power else 1.0
        clock = curve.clock_for(curves, limits.clocks_mhz, share, load.prefill, heavy)
    return min(clock, _cheap_clock(track, load))


def _cheap_clock(track: Track, load: Load) -> int:
    limits, pace = track.limits, track.pace
    if load.seconds_left is None or pace.price is None or not load.running:
        return limits.top_mhz
    seen = track.last.clock_mhz if track.last is not None else None
    now = min((seen or limits.top_mhz) / limits.top_mhz, 1.0)
    share = USUAL_PREFILL if load.prefill is None else load.prefill
    top = limits.top_w / limits.default_w
    return int(deadline.clock_at(track.curves, pace.price, share, now, pace.idle, top) * limits.top_mhz + 0.5)
