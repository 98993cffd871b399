"""The last lever, and the only one that needs no permission: fewer sequences at once, and none."""

from dataclasses import replace

from tasks.governor import thermal
from tasks.governor.levers import SEQS_EVERY_S, Wish
from tasks.governor.safety import Reading
from tasks.governor.setting import Load
from tasks.governor.state import Held, Track

IDLE_SHARE = 0.15
"""Of the default limit: what a card draws whatever the number of sequences (estimate)."""

SLACK_SHARE = 0.03
"""More sequences are let in only with so much of the default limit to spare."""

NEARLY_C = 1.0
"""A pause comes so much below the line: the sensor is late."""

LEAST, MOST = 0.5, 0.95
"""One cut leaves between these shares of the sequences."""


def with_sequences(held: Held, track: Track, wish: Wish, reading: Reading, load: Load, draw_w: float, now_s: float) -> Held:
    """Fewer sequences once the levers before have come to their floor and the draw is still more than heat allows; 0 where
    even that is too late; more again, slowly, when there is room."""
    unit, bound = track.limits.default_w, held.max_num_seqs
    over = draw_w > wish.power_w
    if over and _exhausted(track):
        if _too_late(track, reading, draw_w):
            return replace(held, max_num_seqs=0, seqs_s=now_s)
        if now_s - held.seqs_s < SEQS_EVERY_S:
            return held
        running = max(load.running, 1) if bound is None else min(bound, max(load.running, 1))
        share = (wish.power_w - IDLE_SHARE * unit) / max(draw_w - IDLE_SHARE * unit, 1.0)
        return replace(held, max_num_seqs=max(int(running * min(max(share, LEAST), MOST)), 1), seqs_s=now_s)
    roomy = wish.may_rise and draw_w < wish.power_w - SLACK_SHARE * unit
    if bound is None or not roomy or now_s - held.seqs_s < SEQS_EVERY_S:
        return held
    more = bound + max(bound // 8, 1)
    free = 0 < load.max_num_seqs <= more
    return replace(held, max_num_seqs=None if free else more, seqs_s=now_s)


def _exhausted(track: Track) -> bool:
    """Whether the levers before were at their floors a period ago, so that the draw of now is all that they leave;
    or whether the card does not obey."""
    held = track.held
    if track.levers.refused:
        return True
    if track.levers.power:
        return held.power_w <= track.limits.floor_w
    return not track.levers.clock or held.clock_mhz <= track.limits.clocks_mhz[0]


def _too_late(track: Track, reading: Reading, draw_w: float) -> bool:
    """Nearly at the line, or there within seconds at this draw."""
    limits = track.limits
    nearly = limits.line_c - NEARLY_C
    if reading.temperature_c >= nearly or track.die is None:
        return True
    models = thermal.bank(limits.default_w, limits.period_s)
    return thermal.ahead_c(models, track.die, draw_w) > nearly
