"""The GPU page: cards with what the governor may do to them, and leases that dead runs have left behind."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.core.errors import DamageError
from tasks.doctor.finding import Finding, State, ok, problem, warning
from tasks.governor.lease import read_lease
from tasks.governor.rights import RECIPE
from tasks.governor.sample import Card, Sample, Throttle

PAGE = "gpu"
_GB = 1e9
_TAKEN_BYTES = 1 * _GB
"""More than a driver and a display take: somebody else computes there (an estimate)."""
_SLOWED = Throttle.HW_SLOWDOWN | Throttle.HW_THERMAL | Throttle.HW_POWER_BRAKE | Throttle.SW_THERMAL


@dataclass(frozen=True, slots=True)
class Cards:
    """Each card with a reading, None where it could not be read, and `reason` why there are none or no more; `is_ill` when
    the driver is there and does not answer as it should."""

    found: Sequence[tuple[Card, Sample | None]] = ()
    reason: str = ""
    is_ill: bool = False


def judge_cards(cards: Cards, why_not: str | None = None) -> Iterator[Finding]:
    """What the cards are, what may be set, and what is wrong with them now. `why_not`: why this process may set nothing."""
    if cards.is_ill:
        yield problem(PAGE, cards.reason, "look at nvidia-smi and the kernel's log (dmesg, grep NVRM and Xid)")
    elif not cards.found:
        reason = f": {cards.reason}" if cards.reason else ""
        yield ok(PAGE, f"no GPU{reason}; the engine computes on the CPU, and there is no heat to govern")
    elif cards.reason:
        yield warning(PAGE, f"not all GPUs can be read: {cards.reason}", "look at nvidia-smi and the kernel's log")
    for card, sample in cards.found:
        yield ok(PAGE, _about(card))
        yield _rights(card)
        if sample is None:
            yield warning(PAGE, f"{_name(card)} cannot be read now", "look at nvidia-smi and dmesg (grep Xid)")
        else:
            yield from _condition(card, sample)
    if why_not is not None and cards.found:
        yield Finding(PAGE, State.OK, f"the governor may set no clock and no power limit: {why_not}", RECIPE)


def _name(card: Card) -> str:
    return f"{card.index}: {card.name}"


def _about(card: Card) -> str:
    parts = [_name(card), f"{card.memory_bytes / _GB:.0f} GB", f"driver {card.driver}"]
    if card.default_w is not None:
        between = f" ({card.min_w:g} to {card.max_w:g})" if card.min_w is not None and card.max_w is not None else ""
        parts.append(f"{card.default_w:g} W{between}")
    if card.clocks_mhz:
        parts.append(f"up to {card.clocks_mhz[-1]:,} MHz")
    limits = {"slows down at": card.slowdown_c, "allowed up to": card.max_c, "memory up to": card.memory_max_c}
    parts += [f"{words} {degrees:g} °C" for words, degrees in limits.items() if degrees is not None]
    return ", ".join(parts)


def _rights(card: Card) -> Finding:
    """What the governor can do; what it may not is no fault, as it observes by default."""
    refused = {"its clock": card.no_clock, "its power limit": card.no_power}
    allowed = [what for what, reason in refused.items() if reason is None]
    whys = dict.fromkeys(reason for reason in refused.values() if reason is not None)
    if not whys:
        return ok(PAGE, f"{_name(card)}: the governor may set its clock and its power limit (--power managed)")
    what = f"may set {allowed[0]} and" if allowed else "sets nothing and"
    return ok(PAGE, f"{_name(card)}: the governor {what} bounds sequences in flight: {'; '.join(whys)}")


def _condition(card: Card, sample: Sample) -> Iterator[Finding]:
    if sample.throttle is not None and (slowed := sample.throttle & _SLOWED):
        words = ", ".join(reason.name.lower() for reason in Throttle if reason in slowed and reason.name)
        yield warning(PAGE, f"{_name(card)} slows itself down ({words})", "look at its cooling and its power supply")
    if sample.memory_used_bytes is not None and sample.memory_used_bytes > _TAKEN_BYTES:
        taken = f"{sample.memory_used_bytes / _GB:.1f} of {card.memory_bytes / _GB:.0f} GB"
        yield warning(PAGE, f"{_name(card)}: {taken} are in use", "nvidia-smi says who; end it, or leave it room")
    if sample.ecc_errors:
        yield warning(
            PAGE, f"{_name(card)}: {sample.ecc_errors} uncorrected memory errors", "nvidia-smi -q -d ECC; have it looked at"
        )
    if sample.xid:
        yield warning(
            PAGE, f"{_name(card)}: the driver reported Xid {sample.xid}", "look it up in NVIDIA's list of Xid errors"
        )
    if (requested := sample.requested_w) is not None and card.default_w is not None and requested < card.default_w - 0.5:
        remedy = "nightbatch power restore, if a run of ours left it; else it is somebody's wish, and is kept"
        yield warning(
            PAGE, f"{_name(card)}: its power limit is {requested:g} W, below its default of {card.default_w:g}", remedy
        )


def leases(directory: Path) -> Iterator[Finding]:
    """Cards that a run holds, or that a dead one has left as it set them."""
    for path in sorted(directory.glob("*.lease")):
        try:
            lease = read_lease(path)
        except DamageError as error:
            yield warning(PAGE, str(error), "then nightbatch power restore")
            continue
        if lease is None:  # put back this instant
            continue
        if lease.owner_lives():
            yield ok(PAGE, f"{lease.uuid} is governed by {lease.owner}")
        else:
            what = f"{lease.uuid} may still be as {lease.owner} set it, which has ended"
            yield warning(PAGE, what, "nightbatch power restore; the next run puts it back as well")
