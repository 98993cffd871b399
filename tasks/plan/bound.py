"""The least prefill that any order can reach, exactly: the tokens of the distinct full KV blocks in the trie of all prompts,
and of what lies beyond full blocks.

As in vLLM, whole blocks are reused, each known by its tokens and all before them, and at least the last token of a prompt is
computed, so that of n tokens in blocks of b at most floor((n - 1) / b) * b are. A block that some prompt ends with is
computed for that prompt's sake, and others find it.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


def reusable(
    shared: NDArray[np.int32 | np.int64], num_prompt: NDArray[np.int32 | np.int64], block_size: int
) -> NDArray[np.int64]:
    """Of each prompt the tokens that need not be computed, when it has `shared` tokens in common with an earlier one."""
    most = np.minimum(shared.astype(np.int64), num_prompt.astype(np.int64) - 1)
    return np.asarray(np.maximum(most, 0) // block_size * block_size)


@dataclass(slots=True)
class Bound:
    """Takes in the prompts of all sequences; `computed` is the bound in tokens. A block stands for a 64-bit hash."""

    block_size: int
    _least: int = 0
    _blocks: list[NDArray[np.uint64]] = field(default_factory=list)
    _ends: list[NDArray[np.uint64]] = field(default_factory=list)

    def add(
        self,
        num_prompt: NDArray[np.int32],
        n: NDArray[np.int32],
        blocks: NDArray[np.uint64],
        ends: NDArray[np.uint64],
    ) -> None:
        """Prompts of these lengths, each for `n` sequences. `blocks` are the hashes of their reusable full blocks, of which
        those may be left out that an earlier prompt has as well; `ends` those of full blocks that end a prompt."""
        behind = num_prompt - reusable(num_prompt, num_prompt, self.block_size)
        self._least += int((behind * n.astype(np.int64)).sum())
        self._blocks.append(blocks)
        self._ends.append(ends)

    @property
    def computed(self) -> int:
        nothing = np.empty(0, np.uint64)
        distinct = np.unique(np.concatenate([nothing, *self._blocks]))
        found = np.isin(distinct, np.concatenate([nothing, *self._ends]))
        return self._least + self.block_size * int((~found).sum())
