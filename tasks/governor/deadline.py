"""Energy mode: the setting that costs least and still ends in time.

A second costs the power of a card that has nothing to do, which is spent anyway, and a price: the work is done at the clocks
at which (power - idle power + price) / speed is least, each phase at its own. The price, in shares of the default power
limit, is as low as the deadline lets it be: zero where even the cheapest clocks are fast enough, so that more time does not
save more. How much work is left is measured in seconds of the full clock, by what the work done so far took; with equal
clocks before and after, an error in the speed curves is none in the time left.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tasks.governor.curve import DECODE_MU, PREFILL_MU, Curve, Curves, prior, speed
from tasks.governor.setting import Load

EVERY_S = 5.0
"""How often the price is made anew."""

RESERVE, RESERVE_S = 0.005, 3.0
"""Share of the whole time that is kept in hand to its end where what is left is half prefill: how much of each comes when
is a forecast, and with one of them alone there is nothing to mistake. And seconds for the last answers. (A share of the
time left would make all the night faster than need be, and only its end slower.)"""

KNOWN_DONE, KNOWN_S = 0.001, 8.0
"""So much of the work, and of the time, at full speed before its length is believed."""

IDLE = 0.12
"""Power with nothing to do, as a share of the default limit, until it has been seen (five cards have 0.10-0.24)."""

_GRID = tuple(0.45 + 0.55 * step / 33 for step in range(34))
_HIGHEST_PRICE = 8.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Work done so far, in seconds of the full clock by phase, since `done` was `begun`; the power of an idle card; and the
    price of time, None for full speed, made at `priced_s`."""

    begun: float | None = None
    prefill_s: float = 0.0
    decode_s: float = 0.0
    worked_s: float = 0.0
    idle: float = IDLE
    price: float | None = None
    priced_s: float | None = None


def worked(pace: Pace, load: Load, clock: float | None, power: float | None, passed_s: float) -> Pace:
    """With one more interval, at a clock as a share of the highest and a power as a share of the default limit."""
    if load.running == 0:
        idle = power if power is not None and 0.02 < power < 0.35 else pace.idle
        return replace(pace, idle=0.6 * pace.idle + 0.4 * idle, begun=load.done if pace.begun is None else pace.begun)
    if load.done is None or clock is None:
        return pace
    share = 0.3 if load.prefill is None else load.prefill
    return replace(
        pace,
        begun=load.done if pace.begun is None else pace.begun,
        prefill_s=pace.prefill_s + passed_s * share * speed(clock, PREFILL_MU),
        decode_s=pace.decode_s + passed_s * (1 - share) * speed(clock, DECODE_MU),
        worked_s=pace.worked_s + passed_s,
    )


def priced(pace: Pace, curves: Curves, load: Load, now_s: float, top: float) -> Pace:
    """With the price of now; `top` is the power limit as a share of the default one."""
    if pace.priced_s is not None and 0 <= now_s - pace.priced_s < EVERY_S:
        return pace
    left = _left(pace, load)
    if left is None or load.seconds_left is None:
        return replace(pace, price=None, priced_s=now_s)
    mixed = 4 * left[0] * left[1] / max(left[0] + left[1], 1e-9) ** 2
    seconds = load.seconds_left - RESERVE * mixed * (pace.worked_s + load.seconds_left) - RESERVE_S
    return replace(pace, price=price(curves, left, seconds, pace.idle, top), priced_s=now_s)


def _left(pace: Pace, load: Load) -> tuple[float, float] | None:
    """Work left, in seconds of the full clock: of prefill and of decode."""
    if load.done is None or pace.begun is None or pace.worked_s < KNOWN_S or load.done - pace.begun < KNOWN_DONE:
        return None
    ratio = max(1 - load.done, 0.0) / (load.done - pace.begun)
    return pace.prefill_s * ratio, pace.decode_s * ratio


def price(curves: Curves, left: tuple[float, float], seconds: float, idle: float, top: float) -> float | None:
    """The lowest price of a second at which the work ends in time; None if only full speed will do, if that does."""
    if _seconds(curves, left, 0.0, idle, top) <= seconds:
        return 0.0
    if _seconds(curves, left, _HIGHEST_PRICE, idle, top) > seconds:
        return None
    low, high = 0.0, _HIGHEST_PRICE
    for _ in range(12):
        middle = (low + high) / 2 if low else high / 8
        if _seconds(curves, left, middle, idle, top) > seconds:
            low = middle
        else:
            high = middle
        if high < 0.01:
            break
    return high


def _seconds(curves: Curves, left: tuple[float, float], price: float, idle: float, top: float) -> float:
    """How long the work takes with its phases each at the clock that costs least."""
    prefill = cheapest(((1.0, curves.prefill, PREFILL_MU),), price, idle, top)
    decode = cheapest(((1.0, curves.decode, DECODE_MU),), price, idle, top)
    return left[0] / speed(prefill, PREFILL_MU) + left[1] / speed(decode, DECODE_MU)


def clock_at(curves: Curves, price: float, share: float, clock: float, idle: float, top: float) -> float:
    """The clock that costs least for the load of now, a `share` of whose time at `clock` goes into prompts."""
    prefill, decode = share * speed(clock, PREFILL_MU), (1 - share) * speed(clock, DECODE_MU)
    return cheapest(((prefill, curves.prefill, PREFILL_MU), (decode, curves.decode, DECODE_MU)), price, idle, top)


def cheapest(work: Sequence[tuple[float, Curve, float]], price: float, idle: float, top: float) -> float:
    """Of the clocks that the power limit allows, the one at which the work costs least. `work`: how much there is of it, its
    power curve, and its μ."""
    best, least = _GRID[0], float("inf")
    for clock in _GRID:
        cost = power = 0.0
        for amount, curve, mu in work:
            drawn = curve.at(clock)
            cost += amount * (drawn - idle + price) / speed(clock, mu)
            power = max(power, drawn) if amount > 0 else power
        if power > top and clock > _GRID[0]:
            break
        if cost < least:
            best, least = clock, cost
    return best


def bound(prefill: float, slack: float, curves: Curves | None = None, idle: float = IDLE) -> float:
    """The least energy with such a share of prefill (of the time at full speed) and so much more time than full speed takes,
    as a share of full speed's and an idle card after it: what no governor can beat on these curves."""
    known = curves or prior()
    full = (
        cheapest(((1.0, known.prefill, PREFILL_MU),), 1e3, 0.0, 1.0),
        cheapest(((1.0, known.decode, DECODE_MU),), 1e3, 0.0, 1.0),
    )
    left = prefill * speed(full[0], PREFILL_MU), (1 - prefill) * speed(full[1], DECODE_MU)
    paid = price(known, left, 1 + slack, idle, 1.0)
    slow = tuple(cheapest(((1.0, curve, mu),), 1e3 if paid is None else paid, idle, 1.0) for curve, mu in _phases(known))
    return _energy(known, left, slow, 1 + slack, idle) / _energy(known, left, full, 1 + slack, idle)


def _phases(curves: Curves) -> tuple[tuple[Curve, float], tuple[Curve, float]]:
    return (curves.prefill, PREFILL_MU), (curves.decode, DECODE_MU)


def _energy(curves: Curves, left: tuple[float, float], clocks: Sequence[float], seconds: float, idle: float) -> float:
    energy = idle * seconds
    for work, clock, (curve, mu) in zip(left, clocks, _phases(curves), strict=True):
        energy += work / speed(clock, mu) * (curve.at(clock) - idle)
    return energy
