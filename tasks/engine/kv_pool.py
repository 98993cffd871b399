"""The blocks of a KV cache: who holds them, which are cached, and which goes next, by the rules of vLLM 0.32.

Read from vLLM's v1/core/block_pool.py and kv_cache_utils.py (FreeKVCacheBlockQueue). A block that nobody holds keeps its
content until it is taken again, least recently used first; one without a hash is taken before all others. Equal blocks of
two sequences are not merged. Invariant: a block is in the free queue exactly when nobody holds it.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b


def next_hash(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """The hash of a full block behind `parent`, the hash of the block before it (empty for the first): 16 bytes."""
    return blake2b(parent + array("i", token_ids).tobytes(), digest_size=16).digest()


class KVPool:
    """`num_blocks` is vLLM's num_gpu_blocks, of which the first is a placeholder that holds nothing."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._holders = [0] * num_blocks
        self._hash_of: list[bytes | None] = [None] * num_blocks
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_blocks))
        self._cached: dict[bytes, dict[int, None]] = {}

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds, cached ones among them."""
        return len(self._free)

    @property
    def num_held(self) -> int:
        """Blocks that at least one sequence holds."""
        return self.num_blocks - 1 - len(self._free)

    def cached_run(self, hashes: Sequence[bytes], limit: int) -> list[int]:
        """The cached blocks of the first hashes, `limit` at most, up to the first that is not cached."""
        blocks: list[int] = []
        for i in range(min(limit, len(hashes))):
            found = self._cached.get(hashes[i])
            if found is None:
                break
            blocks.append(next(iter(found)))
        return blocks

    def num_idle(self, blocks: Iterable[int]) -> int:
        """How many of these blocks nobody holds."""
        return sum(self._holders[block] == 0 for block in blocks)

    def hold(self, blocks: Iterable[int]) -> None:
        """One more sequence holds these cached blocks."""
        for block in blocks:
            if self._holders[block] == 0:
                del self._free[block]
            self._holders[block] += 1

    def take(self, number: int) -> list[int]:
        """New blocks for one sequence; what was cached in them is forgotten. Raises KeyError when there are too few."""
        taken = [self._free.popitem(last=False)[0] for _ in range(number)]
        for block in taken:
            self._forget(block)
            self._holders[block] = 1
        return taken

    def cache(self, block: int, block_hash: bytes) -> None:
        """A held block is full and can be found by its hash."""
        self._hash_of[block] = block_hash
        self._cached.setdefault(block_hash, {})[block] = None

    def release(self, blocks: Sequence[int]) -> None:
        """A sequence lets go of its blocks, given from its first to its last: the last is taken again first."""
        for block in reversed(blocks):
            self._holders[block] -= 1
            if self._holders[block] == 0 and self._hash_of[block] is not None:
                self._free[block] = None
        for block in blocks:  # the last one without a hash ends in front
            if self._holders[block] == 0 and self._hash_of[block] is None:
                self._free[block] = None
                self._free.move_to_end(block, last=False)

    def reset(self) -> None:
        """Forget all that is cached. Raises ValueError while blocks are held, where vLLM refuses as well."""
        if self.num_held:
            raise ValueError(f"{self.num_held} blocks are held by sequences")
        self._cached.clear()
        self._hash_of = [None] * self.num_blocks

    def _forget(self, block: int) -> None:
        block_hash = self._hash_of[block]
        if block_hash is None:
            return
        self._hash_of[block] = None
        found = self._cached[block_hash]
        del found[block]
        if not found:
            del self._cached[block_hash]
