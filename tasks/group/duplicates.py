"""Which requests must have the same answer: same tokens, same sampling, same number of choices, nothing left to chance."""

import numpy as np
from numpy.typing import NDArray


def originals(
    hashes: NDArray[np.uint64], is_deterministic: NDArray[np.bool_], urgency: NDArray[np.int32]
) -> NDArray[np.int64]:
    """For each row the row whose answer it gets: of those with equal hashes, shape (rows, 2), the most urgent (`urgency`,
    the smaller the sooner), and of these the first. Most rows are their own."""
    original = np.arange(len(hashes))
    rows = np.flatnonzero(is_deterministic)
    if not len(rows):
        return original
    order = rows[np.lexsort((rows, urgency[rows], hashes[rows, 1], hashes[rows, 0]))]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (hashes[order[1:]] != hashes[order[:-1]]).any(axis=1)
    original[order] = order[is_first][np.cumsum(is_first) - 1]
    return original


def shared_among(shared: NDArray[np.int32], kept: NDArray[np.int64]) -> NDArray[np.int32]:
    """What each kept row (ascending) has in common with the kept row before it, where `shared` says it of neighbours in trie
    order: the least of what lies between."""
    if not len(kept):
        return shared[:0]
    starts = np.append(np.int64(0), kept[:-1] + 1)
    least: NDArray[np.int32] = np.minimum.reduceat(shared[: kept[-1] + 1], starts)
    return least
