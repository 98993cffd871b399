"""What a card draws at a clock, and how fast it works there: curves with a shape that is known and sizes that are learnt.

`P = fixed + switching · g(x)`, x the clock as a share of the highest, `g(x) = x · V(x)²`. Invariant: more clock never draws
less and never works slower.
"""

from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cache

V_FLOOR, V_KNEE = 0.65, 0.70
"""Voltage, as a share of the highest: flat to the knee, then linear to one. Fitted to a public sweep of an RTX 3090 at
150-350 W (llmgarage.ai, February 2026; error 0.007 in relative tokens/s)."""

PREFILL_MU, DECODE_MU = 0.08, 0.76
"""Shares of the time that do not depend on the clock (same sweep)."""

PREFILL_SHARES, DECODE_SHARES = (0.32, 1.13), (0.25, 0.50)
"""Fixed and switching power, as shares of the default limit (same sweep; decode's switching is between that sweep's 0.70 and
the 0.15-0.30 that an H200 wants by arXiv 2605.11999)."""

_NOISE = 0.02
"""Of the default limit: how far a power reading may be from the curve (estimate)."""
_PRIOR_FIXED, _PRIOR_SWITCHING = 0.06, 0.40
_WALK = 2e-5
"""Variance that a curve gains with each reading: models, prompts and temperatures change (estimate)."""


def drive(clock: float) -> float:
    """g, which the switching power goes with: the clock times the voltage squared, of the highest. All shares of one."""
    volts = V_FLOOR + (1 - V_FLOOR) * max(clock - V_KNEE, 0.0) / (1 - V_KNEE)
    return clock * volts * volts


def speed(clock: float, mu: float) -> float:
    """Work in a second, of the highest clock's."""
    return 1 / ((1 - mu) / clock + mu)


@cache
def table(clocks_mhz: tuple[int, ...]) -> tuple[float, ...]:
    """g of each clock that may be asked for."""
    return tuple(drive(clock / clocks_mhz[-1]) for clock in clocks_mhz)


@dataclass(frozen=True, slots=True)
class Curve:
    """Power by clock of one phase, as shares of the default limit, and how sure it is of them (a covariance)."""

    fixed: float
    switching: float
    var_fixed: float = _PRIOR_FIXED**2
    covariance: float = 0.0
    var_switching: float = _PRIOR_SWITCHING**2

    def at(self, clock: float) -> float:
        return self.fixed + self.switching * drive(clock)

    def learnt(self, clock: float, power: float, weight: float = 1.0) -> "Curve":
        """With one more reading (recursive least squares). A `weight` below one is a reading that is partly another
        phase's."""
        g = drive(clock)
        a = self.var_fixed + _WALK
        b = self.covariance
        c = self.var_switching + _WALK
        gain_fixed, gain_switching = a + b * g, b + c * g
        variance = gain_fixed + gain_switching * g + _NOISE**2 / max(weight * weight, 1e-6)
        error = (power - self.at(clock)) / variance
        return Curve(
            fixed=min(max(self.fixed + gain_fixed * error, 0.03), 0.8),
            switching=min(max(self.switching + gain_switching * error, 0.03), 2.5),
            var_fixed=a - gain_fixed * gain_fixed / variance,
            covariance=b - gain_fixed * gain_switching / variance,
            var_switching=c - gain_switching * gain_switching / variance,
        )


@dataclass(frozen=True, slots=True)
class Curves:
    """Both phases, and the load of now: `now` is the switching power that the last reading shows, whatever the phase."""

    prefill: Curve
    decode: Curve
    now: float
    clock: float | None = None


def prior() -> Curves:
    """Before the first reading: as heavy as a load can be."""
    return Curves(Curve(*PREFILL_SHARES), Curve(*DECODE_SHARES), PREFILL_SHARES[1])


def refitted(curves: Curves, clock: float, power: float, prefill: float | None) -> Curves:
    """With a reading of clock and power, both as shares, taken while a share `prefill` of the time went into prompts. A
    reading during which the clock moved says little: power is a mean over a second, the clock is not."""
    if curves.clock is None or abs(clock - curves.clock) > 0.03:
        return replace(curves, clock=clock, now=max(curves.now, _present(curves, clock, power, prefill)))
    known = replace(curves, clock=clock, now=_present(curves, clock, power, prefill))
    if prefill is None:
        return known
    if prefill >= 0.5:
        share = (power - (1 - prefill) * curves.decode.at(clock)) / prefill
        return replace(known, prefill=curves.prefill.learnt(clock, share, prefill))
    share = (power - prefill * curves.prefill.at(clock)) / (1 - prefill)
    return replace(known, decode=curves.decode.learnt(clock, share, 1 - prefill))


def clock_for(curves: Curves, clocks_mhz: tuple[int, ...], power: float, prefill: float | None, load: float) -> int:
    """The highest clock at which a load with switching power `load` draws no more than `power`, MHz; the lowest if none."""
    g = (power - _fixed(curves, prefill)) / load
    return clocks_mhz[max(bisect_right(table(clocks_mhz), g) - 1, 0)]


def heaviest(curves: Curves, prefill_ahead: float | None) -> float:
    """The switching power that may come within the next seconds: that of now, or of what is planned; what nobody has planned
    may be a prompt."""
    share = 1.0 if prefill_ahead is None else min(max(prefill_ahead, 0.0), 1.0)
    ahead = share * curves.prefill.switching + (1 - share) * curves.decode.switching
    return max(curves.now, ahead)


def _present(curves: Curves, clock: float, power: float, prefill: float | None) -> float:
    return min(max((power - _fixed(curves, prefill)) / max(drive(clock), 0.05), 0.02), 2.5)


def _fixed(curves: Curves, prefill: float | None) -> float:
    share = 0.5 if prefill is None else prefill
    return share * curves.prefill.fixed + (1 - share) * curves.decode.fixed
