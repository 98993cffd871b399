"""What the governor goes by besides the card, and what it says."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Load:
    """What the engine does. `running` sequences are in flight of at most `max_num_seqs`. `prefill` is the share of its
    recent time that went into prompts, `prefill_ahead` that of the minute to come as the plan has it; None is not known.
    `done` is the share of the work that is done, and `rate` how much more of it a second brings, both of one;
    `seconds_left` is how long it may still take, None without a deadline."""

    running: int = 0
    max_num_seqs: int = 0
    prefill: float | None = None
    prefill_ahead: float | None = None
    done: float | None = None
    rate: float | None = None
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """At most so much: the SM clock in MHz, the power limit in W, sequences in flight (0 is a pause). None takes no part:
    the card keeps what it was found with, and sequences are not bounded."""

    clock_mhz: int | None = None
    power_w: float | None = None
    max_num_seqs: int | None = None
    reason: str = ""
