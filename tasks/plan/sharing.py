"""What a source's prompts have in common: the prefixes that spare the most, and the histogram of lengths.

Rows are in trie order, so that what each has in common with the one before it tells all.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.core.plan import BUCKETS
from tasks.plan.batches import Rows, buckets


@dataclass(frozen=True, slots=True)
class Prefix:
    """A prefix of `num_tokens` that `num_requests` neighbours begin with, the first of them in row `row`."""

    row: int
    num_tokens: int
    num_requests: int

    @property
    def spared_tokens(self) -> int:
        """What need not be computed again for it."""
        return self.num_tokens * (self.num_requests - 1)


def top_prefixes(shared: NDArray[np.int32], number: int, least_tokens: int) -> list[Prefix]:
    """The prefixes of one source that spare the most, of at least `least_tokens`; a longer one counts for what it adds to
    the one within it, and is left out when that is less.

    `shared[i]` is what row i has in common with the row before. A prefix is an interval of rows whose neighbours all have at
    least so much in common: those are the inner nodes of the trie (Kasai et al. 2001 walk them with a stack).
    """
    found = sorted(_intervals(shared, least_tokens), key=lambda pair: (-pair[1], pair[0].row, pair[0].num_tokens))
    return [prefix for prefix, added in found[:number] if added >= least_tokens]


def _intervals(shared: NDArray[np.int32], least_tokens: int) -> Iterator[tuple[Prefix, int]]:
    """Each inner node of at least so many tokens, and what it spares beyond the one around it."""
    stack: list[tuple[int, int]] = []
    lengths = np.append(shared, np.int32(0)).tolist()
    lengths[0] = 0
    for row, length in enumerate(lengths):
        begin = row - 1
        while stack and stack[-1][0] > length:
            depth, begin = stack.pop()
            around = max(length, stack[-1][0] if stack else 0)
            prefix = Prefix(begin, depth, row - begin)
            yield prefix, (depth - around) * (prefix.num_requests - 1)
        if length >= least_tokens and (not stack or stack[-1][0] < length):
            stack.append((length, begin))


def histogram(rows: Rows) -> dict[str, int]:
    """How many sequences are in each bucket of lengths, prompt and allowed output together."""
    of = buckets(rows.num_tokens)
    names = {**{edge: str(edge) for edge in BUCKETS}, 0: "over"}
    return {name: int(rows.n[of == edge].sum()) for edge, name in names.items()}
