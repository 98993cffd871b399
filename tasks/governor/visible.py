"""Which cards an engine sees: NVML tells all of the computer, CUDA those that its environment lets through.

Rules as in CUDA's programming guide (CUDA environment variables): numbers or UUIDs, or beginnings of UUIDs, with commas
between them; what follows one that fits no card does not count. CUDA numbers the fastest card first unless
CUDA_DEVICE_ORDER is PCI_BUS_ID, which is NVML's order; among cards of one kind both are taken to be the same.
"""

from collections.abc import Mapping, Sequence

from tasks.governor.device import CardError
from tasks.governor.sample import Card

_VISIBLE, _ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"


def visible(cards: Sequence[Card], environment: Mapping[str, str]) -> tuple[Card, ...]:
    """The cards that CUDA shows a process with this environment, in its order: the first is its device 0.

    Raises CardError where NVML's order and CUDA's may differ: setting the wrong card is worse than setting none.
    """
    named = environment.get(_VISIBLE)
    names = [str(card.index) for card in cards] if named is None else [name.strip() for name in named.split(",")]
    _check_order(cards, names, environment)
    found: list[Card] = []
    for name in names:
        fitting = [card for card in cards if _fits(card, name)]
        if len(fitting) != 1 or fitting[0] in found:
            break
        found += fitting
    return tuple(found)


def _fits(card: Card, name: str) -> bool:
    return name == str(card.index) or (name.startswith("GPU-") and card.uuid.lower().startswith(name.lower()))


def _check_order(cards: Sequence[Card], names: Sequence[str], environment: Mapping[str, str]) -> None:
    by_number = any(name.isdecimal() for name in names)
    if by_number and environment.get(_ORDER) != "PCI_BUS_ID" and len({card.name for card in cards}) > 1:
        kinds = ", ".join(f"{card.index}: {card.name}" for card in cards)
        raise CardError(f"which card is CUDA's {names[0]} is not certain ({kinds}): set {_ORDER}=PCI_BUS_ID")
