"""What a card says of itself at one moment, and what it is. None is "this card does not say so", which is a value.

Temperatures in °C, power in W, energy in J, clocks in MHz, shares of one, times in seconds of a monotonic clock.
"""

from dataclasses import dataclass
from enum import IntFlag


class Throttle(IntFlag):
    """Why the clock is lower than it could be; NVML's clocks event reasons, with its bits."""

    GPU_IDLE = 0x1
    APPLICATION_CLOCKS = 0x2
    SW_POWER_CAP = 0x4
    HW_SLOWDOWN = 0x8
    SYNC_BOOST = 0x10
    SW_THERMAL = 0x20
    HW_THERMAL = 0x40
    HW_POWER_BRAKE = 0x80


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading. `power_w` is a mean over about a second on most cards, `margin_c` how far the GPU is below the limit at
    which it slows itself down, and `memory_margin_c` the memory's. `requested_w` is the power limit that somebody set,
    `enforced_w` the one that holds. `thermal_ns` and `power_cap_ns` count the time slowed down since the driver's start.
    Activities are shares of the last interval between two readings."""

    time_s: float
    temperature_c: float | None = None
    memory_temperature_c: float | None = None
    margin_c: float | None = None
    memory_margin_c: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    requested_w: float | None = None
    enforced_w: float | None = None
    utilization: float | None = None
    memory_used_bytes: int | None = None
    throttle: Throttle | None = None
    thermal_ns: int | None = None
    power_cap_ns: int | None = None
    sm_activity: float | None = None
    dram_activity: float | None = None
    tensor_activity: float | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    pcie_replays: int | None = None
    nvlinks_active: int | None = None
    ecc_errors: int | None = None
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """What does not change while the driver runs. `clocks_mhz` are the SM clocks that may be asked for, ascending.

    `slowdown_c` is where the hardware slows down, `max_c` where software does, `memory_max_c` the memory's limit; a card of
    which only margins are known has them as its temperature plus its margin at the first reading. `no_clock` and `no_power`
    say why the clock or the power limit cannot be set; None is that they can.
    """

    uuid: str
    name: str
    index: int
    driver: str
    memory_bytes: int
    clocks_mhz: tuple[int, ...] = ()
    default_w: float | None = None
    min_w: float | None = None
    max_w: float | None = None
    max_c: float | None = None
    slowdown_c: float | None = None
    shutdown_c: float | None = None
    memory_max_c: float | None = None
    no_clock: str | None = None
    no_power: str | None = None
