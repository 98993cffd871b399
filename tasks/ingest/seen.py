"""Seen: which ids a source has had and where each stood first, in 16 bytes an id.

An id is known by its 64-bit hash, keyed anew in every process: of ten million ids two may be taken for one with a
probability of 1 in 400,000, and then a row is rejected as a duplicate, visibly.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

NEW = -1
Keys = NDArray[np.int64]


class Seen:
    """Sorted runs of growing size, merged as they come: adding is cheap, and so is looking up."""

    def __init__(self) -> None:
        self._runs: list[tuple[Keys, Keys]] = []

    def add(self, ids: Sequence[str], places: Keys) -> Keys:
        """For each id the place of the first with it, among those before and these; NEW for the first itself.

        Places are any numbers from 0 on.
        """
        keys = np.fromiter(map(hash, ids), np.int64, len(ids))
        firsts = np.full(len(keys), NEW, np.int64)
        for known, where in self._runs:
            at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
            firsts = np.where((known[at] == keys) & (firsts == NEW), where[at], firsts)
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        begins = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        if len(begins) < len(keys):
            leaders = np.repeat(order[begins], np.diff(np.r_[begins, len(keys)]))
            follows = leaders != order
            firsts[order[follows]] = np.where(
                firsts[leaders[follows]] == NEW, places[leaders[follows]], firsts[leaders[follows]]
            )
        is_new = firsts[order] == NEW
        self._insert(ordered[is_new], places[order][is_new])
        return firsts

    def _insert(self, keys: Keys, places: Keys) -> None:
        if not len(keys):
            return
        self._runs.append((keys, places))
        while len(self._runs) > 1 and 2 * len(self._runs[-1][0]) >= len(self._runs[-2][0]):
            (more, there), (most, where) = self._runs.pop(), self._runs.pop()
            both = np.concatenate([most, more])
            order = np.argsort(both, kind="stable")
            self._runs.append((both[order], np.concatenate([where, there])[order]))
