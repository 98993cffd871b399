"""The cards that CUDA shows an engine are those that are governed."""

import pytest

from tasks.governor.device import CardError
from tasks.governor.sample import Card
from tasks.governor.visible import visible

ALIKE = [Card(f"GPU-{letter}0000000-0000", "H100", at, "570", 80 << 30) for at, letter in enumerate("abca")]
MIXED = [Card("GPU-1", "T4", 0, "570", 16 << 30), Card("GPU-2", "H100", 1, "570", 80 << 30)]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (None, [0, 1, 2, 3]),
        ("2,0", [2, 0]),
        (" 1 , 3 ", [1, 3]),
        ("GPU-b0000000-0000", [1]),
        ("gpu-c,0", []),
        ("GPU-C,0", [2, 0]),
        ("GPU-a", []),
        ("1,9,2", [1]),
        ("1,1,2", [1]),
        ("-1", []),
        ("", []),
        ("MIG-57ab", []),
    ],
)
def test_what_cuda_shows(given: str | None, found: list[int]) -> None:
    """Numbers, UUIDs and their beginnings, up to the first that fits no card, several, or one that was named before."""
    environment = {} if given is None else {"CUDA_VISIBLE_DEVICES": given}
    assert [card.index for card in visible(ALIKE, environment)] == found


def test_cards_of_several_kinds() -> None:
    """By number they are certain only in NVML's order; by UUID always."""
    for environment in ({}, {"CUDA_VISIBLE_DEVICES": "0"}):
        with pytest.raises(CardError, match="set CUDA_DEVICE_ORDER=PCI_BUS_ID"):
            visible(MIXED, environment)
    in_order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1"}
    assert [card.name for card in visible(MIXED, in_order)] == ["H100"]
    assert [card.name for card in visible(MIXED, {"CUDA_VISIBLE_DEVICES": "GPU-1"})] == ["T4"]
    assert visible([], {}) == ()
