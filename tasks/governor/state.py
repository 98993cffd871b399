"""What the governor remembers from one period to the next, and the states it can be in."""

from dataclasses import dataclass

from tasks.governor import thermal
from tasks.governor.curve import Curves
from tasks.governor.deadline import Pace
from tasks.governor.limits import Limits
from tasks.governor.safety import Reading


@dataclass(frozen=True, slots=True)
class Levers:
    """What may be set besides sequences, and why not what may not. `refused` counts writes in a row that failed."""

    clock: bool
    power: bool
    words: str = ""
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """The levers as they stand: clock (0 where there is none) and power at their top are as found, sequences None are not
    bounded. `rose_s` is when power last rose, `clock_s` when the clock was last moved, `seqs_s` when sequences were."""

    clock_mhz: int
    power_w: float
    max_num_seqs: int | None = None
    rose_s: float = float("-inf")
    clock_s: float = float("-inf")
    seqs_s: float = float("-inf")


@dataclass(frozen=True, slots=True)
class Track:
    """All that is carried along. `die` and `memory` are what is thought of their temperatures, None until they are read;
    `asked_w` is the power limit that the card should show, None as long as it has not been touched; `trim_c` is added to
    the set points; `missed` counts periods without a reading to believe, `faults` pauses because of the card's slowdown.
    `unread` is the estimate of the die without the readings since they last changed, `unread_s` ago, when the power limit
    was `changed_w`."""

    limits: Limits
    levers: Levers
    held: Held
    curves: Curves
    pace: Pace
    last: Reading | None
    die: thermal.Estimate | None
    memory: thermal.Estimate | None
    asked_w: float | None
    now_s: float
    unread: thermal.Estimate | None = None
    unread_s: float = 0.0
    changed_w: float = float("inf")
    trim_c: float = 0.0
    missed: int = 0
    faults: int = 0


@dataclass(frozen=True, slots=True)
class Nominal:
    """Heat bounds nothing. Out: the allowed power falls below what the card was found with → Throttled; the card slows
    itself down, or is at the line with every lever at its floor → Paused; two periods without a reading → Blind; the card
    is gone → Lost."""

    track: Track


@dataclass(frozen=True, slots=True)
class Throttled:
    """A lever is held down because of heat. Out: all levers back where they were found → Nominal; Paused, Blind and Lost as
    from Nominal."""

    track: Track


@dataclass(frozen=True, slots=True)
class Paused:
    """No sequence runs, so that the card cools. Out: `until_s` has passed, the card is well below its set point and, without
    other levers, would stand `draw_w`, what it drew before → Throttled, from the floors upwards; two periods without a
    reading → Blind; the card is gone → Lost."""

    track: Track
    until_s: float
    words: str
    draw_w: float = 0.0


@dataclass(frozen=True, slots=True)
class Blind:
    """No reading to believe for two periods, or one that stands still against all reason: everything at its floor and no
    sequence. Out: two good readings in a row, other than `stuck_c` if it was stuck there → Throttled, from the floors
    upwards; the card is gone → Lost."""

    track: Track
    words: str
    good: int = 0
    stuck_c: float | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """The card has fallen off the bus. Out: none; the engine stops, and the next run starts anew."""

    track: Track
    words: str


@dataclass(frozen=True, slots=True)
class Unable:
    """Nothing to govern by: control is off, or the card never told its temperature. Out: none."""

    words: str


State = Nominal | Throttled | Paused | Blind | Lost | Unable
