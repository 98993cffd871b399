"""Vectors to clusters of about one size: k-means by the angle, split again until the parts are small enough.

Deterministic, whatever the number of threads: components are rounded to whole numbers so small that every product that is
compared is exact in 32-bit floats, in whatever order a library adds it up. A cluster's label is its place in the tree of
splits, so that clusters next to each other are alike.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

Vectors = NDArray[np.float32]
Labels = NDArray[np.int32]

_BRANCHES = 32
_ROUNDS = 8
_ROWS_PER_BRANCH = 256
"""Centres are found on a sample of so many rows each."""
_ROWS_AT_ONCE = 4096
_MAX_COMPONENT = 127
_MAX_DIMENSION = 1024
"""127 x 127 x 1024 < 2^24: sums of products are whole numbers that a 32-bit float holds."""


@dataclass(frozen=True, slots=True)
class Clusters:
    """Each row's label, from 0, and the clusters' unit vectors, by label."""

    labels: Labels
    centres: Vectors

    def nearest(self, vectors: Vectors, mean: Vectors) -> Labels:
        """The label of the centre at the smallest angle to what is left of each unit vector without the mean, the first of
        equals. Needs no pass over the vectors but one: lengths do not change angles."""
        centres = whole(self.centres)
        labels = np.empty(len(vectors), dtype=np.int32)
        for start in range(0, len(vectors), _ROWS_AT_ONCE):
            points = whole(vectors[start : start + _ROWS_AT_ONCE])
            labels[start : start + len(points)] = _nearest(points, centres, -(whole(mean[None]) @ centres.T))
        return labels


def split(vectors: Vectors, cluster_size: int) -> Clusters:
    """Clusters of `cluster_size` rows at the most, but for rows that are all alike. Vectors of length one, or zero."""
    with _blas().limit(limits=1, user_api="blas"):
        return _split(whole(vectors), cluster_size)


@cache
def _blas() -> ThreadpoolController:
    """The products are small: several threads would wait for each other, on a busy computer ten times as long."""
    return ThreadpoolController()


def _split(points: Vectors, cluster_size: int) -> Clusters:
    labels = np.empty(len(points), dtype=np.int32)
    centres: list[Vectors] = []
    waiting = [np.arange(len(points))]
    while waiting:
        rows = waiting.pop()
        parts = _parts(points[rows], cluster_size)
        if len(parts) == 1:
            labels[rows] = len(centres)
            centres.append(_centre(points[rows]))
        else:
            waiting += [rows[part] for part in reversed(parts)]
    return Clusters(labels, np.concatenate(centres) if centres else np.empty((0, points.shape[1]), np.float32))


def whole(vectors: Vectors) -> Vectors:
    """Unit vectors in whole numbers of at most 127. Raises ValueError for more components than can be added up exactly."""
    if vectors.shape[1] > _MAX_DIMENSION:
        raise ValueError(f"vectors have {vectors.shape[1]} components, and clusters are made of at most {_MAX_DIMENSION}")
    scale = _MAX_COMPONENT / max(1e-6, _typical_peak(vectors.shape[1]))
    rounded: Vectors = np.clip(np.rint(vectors * np.float32(scale)), -_MAX_COMPONENT, _MAX_COMPONENT)
    return rounded


def _typical_peak(dimension: int) -> float:
    """Five standard deviations of a component of a random unit vector; what is beyond is cut."""
    return min(1.0, 5.0 / float(np.sqrt(dimension)))


def _parts(points: Vectors, cluster_size: int) -> list[NDArray[np.intp]]:
    """The places of each part's rows, in their order; one part where there is nothing to split."""
    num_parts = min(_BRANCHES, -(-len(points) // cluster_size))
    if num_parts < 2:
        return [np.arange(len(points))]
    labels = _nearest(points, _means(points, num_parts))
    order = np.argsort(labels, kind="stable")
    return [part for part in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1) if len(part)]


def _means(points: Vectors, num_parts: int) -> Vectors:
    """Centres by Lloyd's rounds on an even sample, from rows evenly spaced in it."""
    sample = points[_evenly(len(points), min(len(points), num_parts * _ROWS_PER_BRANCH))]
    centres = sample[_evenly(len(sample), num_parts)]
    for _ in range(_ROUNDS):
        labels = _nearest(sample, centres)
        members = np.zeros((num_parts, len(sample)), dtype=np.float32)
        members[labels, np.arange(len(sample))] = 1
        sums = members @ sample  # at most 127 x 8192 each: exact
        new = whole(_unit(sums.astype(np.float64)))
        new[~members.any(axis=1)] = centres[~members.any(axis=1)]
        if np.array_equal(new, centres):
            break
        centres = new
    return centres


def _nearest(points: Vectors, centres: Vectors, added: Vectors | float = 0.0) -> Labels:
    """The centre with the largest product, after `added`; all in whole numbers."""
    labels = np.empty(len(points), dtype=np.int32)
    for start in range(0, len(points), _ROWS_AT_ONCE):
        some = points[start : start + _ROWS_AT_ONCE]
        labels[start : start + len(some)] = (some @ centres.T + added).argmax(axis=1)
    return labels


def _centre(points: Vectors) -> Vectors:
    """Shape (1, dimension)."""
    return _unit(points.sum(axis=0, dtype=np.float64, keepdims=True))


def _unit(sums: NDArray[np.float64]) -> Vectors:
    lengths = np.sqrt((sums * sums).sum(axis=1, keepdims=True))
    unit: Vectors = (sums / np.maximum(lengths, 1e-12)).astype(np.float32)
    return unit


def _evenly(number: int, of: int) -> NDArray[np.intp]:
    return (np.arange(of, dtype=np.int64) * number // of).astype(np.intp)
