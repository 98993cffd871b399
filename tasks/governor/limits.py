"""What the governor keeps to on one card: from the card, the settings, and what was found at the start."""

from dataclasses import dataclass
from math import isfinite
from typing import TypeGuard

from tasks.core.config import PowerConfig
from tasks.governor.sample import Card, Sample

BELOW_LINE_C, BELOW_MAX_C, BELOW_SLOWDOWN_C = 2.0, 5.0, 7.0
"""How far the set point is below the line, and below where software and hardware slow the card down."""

MEMORY_BELOW_C = 5.0
CLOCK_FLOOR, POWER_FLOOR = 0.45, 0.40
"""Shares of the highest clock and of the default power limit that are never gone below: near the lowest power limit real
cards fall off a cliff (a public RTX 3090 sweep), and at the lowest clocks the power left is hardly any work."""

_UNKNOWN_W = 300.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Temperatures in °C, powers in W, clocks in MHz. The card is held at `set_point_c`, and never above `line_c`.
    `top_w` is the power limit that was found: the governor never asks for more. Without a list of clocks, or without the
    permission, `can_clock` is false, and so on; sequences can always be bounded."""

    set_point_c: float
    line_c: float
    memory_set_point_c: float | None
    default_w: float
    max_w: float
    floor_w: float
    top_w: float
    clocks_mhz: tuple[int, ...]
    can_clock: bool
    can_power: bool
    period_s: float

    @property
    def top_mhz(self) -> int:
        return self.clocks_mhz[-1] if self.clocks_mhz else 0


def limits_of(card: Card, config: PowerConfig, sample: Sample | None) -> Limits:
    """The limits of a card as it was found. What the card does not say is left out, and the settings' own line remains."""
    line, max_c = config.max_temperature_c, card.max_c
    if max_c is None and sample is not None and sample.margin_c is not None and sample.temperature_c is not None:
        max_c = sample.temperature_c + sample.margin_c
    points = [line - BELOW_LINE_C]
    points += [max_c - BELOW_MAX_C] if _is_temperature(max_c) else []
    points += [card.slowdown_c - BELOW_SLOWDOWN_C] if _is_temperature(card.slowdown_c) else []
    default = card.default_w or card.max_w or _UNKNOWN_W
    floor = max(card.min_w or 0.0, POWER_FLOOR * default)
    found = sample.requested_w if sample is not None and sample.requested_w else default
    top = min(found, card.max_w or found)
    managed = config.control == "managed"
    clocks = _clocks(card)
    return Limits(
        set_point_c=min(points),
        line_c=min(line, min(points) + BELOW_LINE_C),
        memory_set_point_c=card.memory_max_c - MEMORY_BELOW_C if _is_temperature(card.memory_max_c) else None,
        default_w=default,
        max_w=max(card.max_w or 0.0, default),
        floor_w=min(floor, top),
        top_w=top,
        clocks_mhz=clocks,
        can_clock=managed and card.no_clock is None and len(clocks) > 1,
        can_power=managed and card.no_power is None and card.default_w is not None and floor < top,
        period_s=config.period_s,
    )


def _clocks(card: Card) -> tuple[int, ...]:
    """Those that the governor may ask for: from the floor on."""
    clocks = sorted(set(card.clocks_mhz))
    return tuple(clock for clock in clocks if clock >= CLOCK_FLOOR * clocks[-1])


def _is_temperature(value: float | None) -> TypeGuard[float]:
    return value is not None and isfinite(value) and 30 <= value <= 130
