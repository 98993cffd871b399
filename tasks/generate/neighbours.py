"""The sequences in flight as neighbours in the plan's order, and the blocks of prompt that each has in common with the last.

The plan is a walk of the prefix trie, so what two sequences share is the least of what the neighbours between them share:
when one leaves, the least of its two is what its neighbours have in common. In another order that is too little, so that
blocks are counted twice and the need is overstated, never understated.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(slots=True)
class InFlight:
    """A sequence that the engine has. Lengths in tokens; `shared` is in full blocks of prompt that it has in common with the
    one `before` it; `class_`, `scale` and `bin` as in lengths.py, `need` as in admission.py."""

    key: int
    num_prompt: int
    num_tokens: int
    max_tokens: int
    class_: int
    scale: float
    bin: int
    is_predicted: bool = False
    shared: int = 0
    before: "InFlight | None" = None
    behind: "InFlight | None" = None
    need: tuple[Floats, Floats, Floats] | None = None

    @property
    def also_used(self) -> int:
        """Blocks of its own that the one behind it uses too, and keeps when this one is gone."""
        return max(self.behind.shared - self.shared, 0) if self.behind else 0


class Neighbours:
    """What is in flight, in the order in which it joined."""

    def __init__(self, block_size: int) -> None:
        self.by_key: dict[int, InFlight] = {}
        self.last: InFlight | None = None
        self._block_size = block_size
        self._prompt: Sequence[int] = ()
        self._since_last = 0

    def shared_with_last(self, prompt: Sequence[int]) -> int:
        """How many full blocks a prompt has in common with the last in flight. The last token of a prompt is always
        computed, so its block is not counted."""
        if self.last is None:
            return 0
        size, most = self._block_size, min(self._since_last, (len(prompt) - 1) // self._block_size)
        number = 0
        while number < most and prompt[number * size : (number + 1) * size] == self._of_last(number):
            number += 1
        return number

    def _of_last(self, block: int) -> Sequence[int]:
        return self._prompt[block * self._block_size : (block + 1) * self._block_size]

    def join(self, one: InFlight, prompt: Sequence[int]) -> None:
        """It is the last now; its `shared` is with the one that was."""
        one.before, self.last = self.last, one
        if one.before is not None:
            one.before.behind = one
        self.by_key[one.key] = one
        self._prompt, self._since_last = prompt, len(prompt) // self._block_size

    def leave(self, one: InFlight) -> None:
        """It has ended."""
        del self.by_key[one.key]
        if one.before is not None:
            one.before.behind = one.behind
        if one.behind is not None:
            one.behind.before = one.before
            one.behind.shared = min(one.behind.shared, one.shared)
        else:
            self.last, self._since_last = one.before, min(self._since_last, one.shared)
