"""Cards to simulate: their parameters, with where each number comes from.

"Estimate" marks what no public document says; telemetry of a real card is to replace it. Powers in W, temperatures in °C,
thermal resistances in °C/W, times in seconds, clocks in MHz. Powers named `_share` are shares of `default_w`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol


class Random(Protocol):
    """What is needed of numpy's Generator."""

    def uniform(self, low: float, high: float) -> float: ...


@dataclass(frozen=True, slots=True)
class PlantParameters:
    """One card in one slot of one computer.

    `die_r` is the thermal resistance from die to heatsink, `sink_r` from heatsink to the air that comes in, at full fans;
    `die_tau_s` and `sink_tau_s` are resistance times capacity. Power is that of `Plant.power`: a static part, leakage,
    memory traffic by phase (`prefill_memory_share`, `decode_memory_share`), and switching by phase (`prefill_share`,
    `decode_share`) at full clock. `prefill_mu` and `decode_mu` are the shares of time that do not depend on the clock.
    `v_floor` is the voltage up to `v_knee` of the full clock, as a share of the highest. A card with
    `margins_only` tells how far it is from its limits, not where they are (Ada and later); one with `activities` tells what
    its units do (Hopper and later).
    """

    name: str
    default_w: float
    min_w: float
    idle_w: float
    max_c: float
    slowdown_c: float
    shutdown_c: float
    die_r: float
    sink_r: float
    die_tau_s: float
    sink_tau_s: float
    min_mhz: int
    max_mhz: int
    decode_share: float
    decode_memory_share: float
    prefill_share: float = 1.05
    prefill_memory_share: float = 0.22
    leak_share: float = 0.10
    prefill_mu: float = 0.08
    decode_mu: float = 0.76
    v_floor: float = 0.65
    v_knee: float = 0.70
    memory_max_c: float | None = 95.0
    memory_rise_c: float = 15.0
    memory_tau_s: float = 8.0
    power_mean_s: float = 1.0
    weights_share: float = 0.33
    prefill_tokens_s: float = 20_000.0
    decode_tokens_s: float = 8_000.0
    memory_bytes: int = 80 * 2**30
    margins_only: bool = False
    activities: bool = False

    @property
    def clocks_mhz(self) -> tuple[int, ...]:
        """The clocks that the driver lists, in steps of 15 MHz (public dumps of `nvidia-smi -q -d SUPPORTED_CLOCKS`)."""
        return tuple(range(self.min_mhz, self.max_mhz + 1, 15))

    @property
    def steady_r(self) -> float:
        """°C over the inlet for each W, in the long run."""
        return self.die_r + self.sink_r


A100 = PlantParameters(
    name="A100-SXM4-80GB",
    default_w=400,
    min_w=100,
    idle_w=56,
    max_c=85,
    slowdown_c=89,
    shutdown_c=92,
    die_r=0.035,
    sink_r=0.075,
    die_tau_s=3,
    sink_tau_s=40,
    min_mhz=210,
    max_mhz=1410,
    decode_share=0.40,
    decode_memory_share=0.13,
    power_mean_s=0.1,
    prefill_tokens_s=14_000,
    decode_tokens_s=4_500,
)
"""Limits and idle power from public `nvidia-smi -q` dumps; its power reading is no mean (NVML's manual: GA100). Estimates:
resistances (61 °C at 341 W, 68 °C at 398 W observed), times, decode's shares, tokens per second of an 8B model."""

H100 = PlantParameters(
    name="H100-SXM5-80GB",
    default_w=700,
    min_w=200,
    idle_w=70,
    max_c=87,
    slowdown_c=89,
    shutdown_c=95,
    die_r=0.020,
    sink_r=0.037,
    die_tau_s=3,
    sink_tau_s=45,
    min_mhz=345,
    max_mhz=1980,
    decode_share=0.22,
    decode_memory_share=0.155,
    prefill_tokens_s=30_000,
    decode_tokens_s=9_000,
    margins_only=True,
    activities=True,
)
"""Limits from a dump of driver 545 (margins 0, -2, -8 °C); 55-67 °C at 698 W were seen in the seven cards of one box
(GPTQModel #2898). Estimates: resistances, times, decode's shares (after H200's), tokens per second of an 8B model."""

H200 = replace(H100, name="H200-SXM-141GB", idle_w=77, decode_tokens_s=13_000, memory_bytes=141 * 2**30)
"""As H100 until one is read. Decode at 137-300 W of 700 W (arXiv 2605.11999), which wants a switching share of 0.15-0.30
with leakage: the upper end, which is the easier one to save with."""

L40S = PlantParameters(
    name="L40S",
    default_w=350,
    min_w=100,
    idle_w=82,
    max_c=90,
    slowdown_c=92,
    shutdown_c=97,
    die_r=0.045,
    sink_r=0.085,
    die_tau_s=2.5,
    sink_tau_s=60,
    min_mhz=210,
    max_mhz=2520,
    decode_share=0.62,
    decode_memory_share=0.06,
    prefill_memory_share=0.13,
    memory_max_c=None,
    prefill_tokens_s=10_000,
    decode_tokens_s=2_400,
    memory_bytes=48 * 2**30,
    margins_only=True,
)
"""Idle power is that with a context, 22-36 W without; 58 °C at 259 W observed (public tables). Curves as the RTX 3090's,
with GDDR memory too. Estimates: temperature limits, resistances, times, tokens per second of an 8B model."""

A10G = PlantParameters(
    name="A10G",
    default_w=300,
    min_w=100,
    idle_w=72,
    max_c=95,
    slowdown_c=98,
    shutdown_c=103,
    die_r=0.055,
    sink_r=0.110,
    die_tau_s=2.5,
    sink_tau_s=50,
    min_mhz=210,
    max_mhz=1710,
    decode_share=0.62,
    decode_memory_share=0.06,
    prefill_memory_share=0.13,
    memory_max_c=None,
    prefill_tokens_s=5_000,
    decode_tokens_s=1_600,
    memory_bytes=24 * 2**30,
)
"""Idle power is that with a context (40 °C at 72 W observed), 9-10 W without. Curves as the RTX 3090's. Estimates: the least
power limit, temperature limits, resistances, times, tokens per second of an 8B model."""

CARDS = {"A100": A100, "H100": H100, "H200": H200, "L40S": L40S, "A10G": A10G}


def randomised(card: PlantParameters, rng: Random, spread: float = 0.4, mismatch: float = 0.15) -> PlantParameters:
    """Such a card as another slot, another computer and another model would have it: resistances and heat capacities within
    ± `spread` (12 °C between neighbours at 698 W is what one public H100 box shows), curves within ± `mismatch`."""

    def heat() -> float:
        return rng.uniform(1 - spread, 1 + spread)

    def curve() -> float:
        return rng.uniform(1 - mismatch, 1 + mismatch)

    die, sink = heat(), heat()
    return replace(
        _with_other_curves(card, curve),
        die_r=card.die_r * die,
        sink_r=card.sink_r * sink,
        die_tau_s=card.die_tau_s * die * heat(),
        sink_tau_s=card.sink_tau_s * sink * heat(),
        memory_rise_c=card.memory_rise_c * heat(),
        memory_tau_s=card.memory_tau_s * heat(),
    )


def _with_other_curves(card: PlantParameters, curve: Callable[[], float]) -> PlantParameters:
    """Power and throughput curves of another computer. μ moves by its distance to 1 where that is nearer, so that it stays
    a share; the knee of the voltage by a third, as it is read from one sweep alone."""
    return replace(
        card,
        prefill_share=card.prefill_share * curve(),
        prefill_memory_share=card.prefill_memory_share * curve(),
        decode_share=card.decode_share * curve(),
        decode_memory_share=card.decode_memory_share * curve(),
        leak_share=card.leak_share * curve(),
        prefill_mu=card.prefill_mu * curve(),
        decode_mu=1 - (1 - card.decode_mu) * curve(),
        v_knee=card.v_knee * (1 + (curve() - 1) / 3),
    )
