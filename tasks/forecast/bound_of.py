"""The least prefill that any order of a run's prompts can reach."""

import numpy as np

from tasks.group.trie import block_hashes, gather
from tasks.plan.bound import Bound
from tasks.storage.planned import GroupTable
from tasks.storage.prompts import PromptFile


def bound_of(prompts: PromptFile, groups: GroupTable, block_size: int) -> int:
    """In tokens, for what is answered itself; a few thousand prompts in memory at a time, and 8 bytes a block."""
    bound, begin = Bound(block_size), 0
    for batch in prompts.batches():
        of_batch = slice(begin, begin + len(batch))
        kept = np.flatnonzero(~groups.is_copy[of_batch])
        token_ids, offsets = gather(batch.token_ids, batch.offsets, kept)
        shared = groups.shared_tokens[of_batch][kept]
        blocks, ends = block_hashes(token_ids, offsets, shared, block_size)
        bound.add(groups.prompt_tokens[of_batch][kept], groups.n[of_batch][kept], blocks, ends)
        begin += len(batch)
    return bound.computed
