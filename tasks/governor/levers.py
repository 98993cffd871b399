"""From the power that heat allows to settings that are written: which lever, how fast, and only when it is worth a write."""

from dataclasses import dataclass, replace

from tasks.governor.limits import Limits
from tasks.governor.state import Held

POWER_STEP, RISE_STEP = 0.01, 0.015
"""Shares of the default power limit that a write is worth: downwards, upwards."""

RISE_EVERY_S, RISE_S, FAST_RISE_S = 2.0, 0.02, 0.10
"""Power rises at most so often, and by such a share of the default limit in a second: near the set point, far below it."""

FAR_C = 6.0
FENCE_STEPS = 3
CLOCK_EVERY_S, SEQS_EVERY_S = 2.0, 3.0


@dataclass(frozen=True, slots=True)
class Wish:
    """What heat and the deadline allow. `may_rise` is false at the set point and above, `far` that the card is well below;
    `clock_mhz` 0 is no bound."""

    power_w: float
    clock_mhz: int
    may_rise: bool
    far: bool


def with_power(held: Held, limits: Limits, wish: Wish, now_s: float) -> Held:
    """The power limit nearer to what is wished: down at once, up slowly."""
    target = min(max(wish.power_w, limits.floor_w), limits.top_w)
    target = target if target == limits.top_w else float(int(target))
    change, unit = target - held.power_w, limits.default_w
    if change <= -POWER_STEP * unit or (change < 0 and target == limits.floor_w):
        return replace(held, power_w=target)
    since = now_s - held.rose_s
    if not wish.may_rise or since < RISE_EVERY_S or (change < RISE_STEP * unit and target < limits.top_w) or change <= 0:
        return held
    rate = FAST_RISE_S if wish.far else RISE_S
    risen = min(target, held.power_w + rate * unit * min(since, 2 * RISE_EVERY_S))
    return replace(held, power_w=risen if risen == limits.top_w else float(int(risen)), rose_s=now_s)


def with_clock(held: Held, limits: Limits, wish: Wish, alone: bool, now_s: float) -> Held:
    """The clock nearer to what is wished. Beside a power limit it is a fence that may stand some steps too high; `alone` it
    follows at once."""
    target = min(max(wish.clock_mhz, limits.clocks_mhz[0]), limits.top_mhz) if wish.clock_mhz else limits.top_mhz
    step = limits.clocks_mhz[1] - limits.clocks_mhz[0]
    change = target - held.clock_mhz
    if change < 0 and (alone or (change < -FENCE_STEPS * step and now_s - held.clock_s >= CLOCK_EVERY_S)):
        return replace(held, clock_mhz=target, clock_s=now_s)
    if change > 0 and wish.may_rise and now_s - held.clock_s >= CLOCK_EVERY_S:
        most = held.clock_mhz + int((FAST_RISE_S if wish.far or not alone else RISE_S) * limits.top_mhz * 2 * CLOCK_EVERY_S)
        risen = max(clock for clock in limits.clocks_mhz if clock <= max(min(target, most), limits.clocks_mhz[0]))
        return replace(held, clock_mhz=risen, clock_s=now_s) if risen > held.clock_mhz else held
    return held
