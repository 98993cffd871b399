"""The least prefill that any order can reach, exactly: the tokens of the distinct full KV blocks in the trie of all prompts,
and of what lies beyond full blocks.

As in vLLM, whole blocks are reused, each known by its tokens and all before them, and at least the last token of a prompt is
computed, so that of n tokens in blocks of b at most floor((n - 1) / b) * b are.
"""

import numpy as np
from numpy.typing import NDArray


def reusable(shared: NDArray[np.int32], num_prompt: NDArray[np.int32], block_size: int) -> NDArray[np.int64]:
    """Of each prompt the tokens that need not be computed, when it has `shared` tokens in common with an earlier one."""
    most = np.minimum(shared.astype(np.int64), num_prompt.astype(np.int64) - 1)
    return np.asarray(np.maximum(most, 0) // block_size * block_size)


def ideal_prefill(shared: NDArray[np.int32], num_prompt: NDArray[np.int32], n: NDArray[np.int32], block_size: int) -> int:
    """Tokens to compute for prompts in trie order, of which no two are the same; of `n` choices all but one find their own
    prompt."""
    once = num_prompt - reusable(shared, num_prompt, block_size)
    again = num_prompt - reusable(num_prompt, num_prompt, block_size)
    return int(once.sum() + ((n.astype(np.int64) - 1) * again).sum())
