"""Groups to batches: the work units, in trie order, each of one group and within the token and sequence budgets.

What is longer than the last bucket's edge, prompt and allowed output together, has a lane of its own: batches that follow
those of the same group. Each row is in exactly one batch; one that is alone over the budget is a batch by itself.
"""

from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tasks.core.config import PlanConfig
from tasks.core.plan import BUCKETS
from tasks.plan.bound import reusable


@dataclass(frozen=True, slots=True)
class Rows:
    """Requests to be answered, in trie order, by columns of one length: `source` and `group` are indices that rise along the
    rows, `shared` is the number of tokens in common with the row before, `num_prompt` and `max_tokens` are lengths in
    tokens, `predicted` the answer's likely length and `upper` one that it hardly exceeds (-1: not known), `n` the number of
    choices."""

    source: NDArray[np.int32]
    group: NDArray[np.int64]
    shared: NDArray[np.int32]
    num_prompt: NDArray[np.int32]
    max_tokens: NDArray[np.int32]
    predicted: NDArray[np.int32]
    upper: NDArray[np.int32]
    n: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.source)

    def take(self, places: NDArray[np.int64]) -> "Rows":
        """Some of the rows."""
        return Rows(**{one.name: getattr(self, one.name)[places] for one in fields(self)})

    def reusable(self, block_size: int) -> int:
        """Prompt tokens that need not be computed, as the row before has them in full blocks."""
        return int(reusable(self.shared, self.num_prompt, block_size).sum())

    @property
    def num_tokens(self) -> NDArray[np.int64]:
        """Prompt plus the largest output allowed."""
        return np.asarray(self.num_prompt.astype(np.int64) + self.max_tokens)

    @property
    def expected_output(self) -> NDArray[np.int64]:
        """Output tokens of all choices, as far as one knows."""
        return np.asarray(self.n * np.where(self.predicted >= 0, self.predicted, self.max_tokens).astype(np.int64))


@dataclass(frozen=True, slots=True)
class Batches:
    """`order` are the rows, batch by batch; batch i has order[begins[i]:begins[i + 1]]."""

    order: NDArray[np.int64]
    begins: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.begins) - 1

    @property
    def first_rows(self) -> NDArray[np.int64]:
        return self.order[self.begins[:-1]]


def buckets(num_tokens: NDArray[np.int64]) -> NDArray[np.int32]:
    """The upper edge of the bucket of each length in tokens, 0 for what is longer than the last."""
    edges = np.array([*BUCKETS, 0], np.int32)
    found: NDArray[np.int32] = edges[np.searchsorted(edges[:-1], num_tokens)]
    return found


def batches(rows: Rows, config: PlanConfig) -> Batches:
    """All batches, in the order of their groups."""
    is_long = rows.num_tokens > BUCKETS[-1]
    lane = rows.group * 2 + is_long
    order = np.argsort(lane, kind="stable")
    tokens = np.append(np.int64(0), np.cumsum((rows.num_tokens * rows.n)[order]))
    seqs = np.append(np.int64(0), np.cumsum(rows.n[order], dtype=np.int64))
    ends = [*(np.flatnonzero(np.diff(lane[order])) + 1).tolist(), len(order)] if len(order) else []
    begins = [0]
    for begin, end in pairwise([0, *ends]):
        if tokens[end] - tokens[begin] <= config.max_batch_tokens and seqs[end] - seqs[begin] <= config.max_batch_seqs:
            begins.append(end)
            continue
        while (at := begins[-1]) < end:
            fits = int(np.searchsorted(tokens, tokens[at] + config.max_batch_tokens, "right")) - 1
            fits = min(fits, int(np.searchsorted(seqs, seqs[at] + config.max_batch_seqs, "right")) - 1)
            begins.append(min(end, max(fits, at + 1)))
    return Batches(order, np.array(begins, np.int64))
