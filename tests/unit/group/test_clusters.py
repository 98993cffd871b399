"""Clusters: pure, bounded in size, the same for any number of threads."""

import numpy as np
import pytest
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from tasks.group.clusters import _split, split, whole


def around(num_centres: int, each: int, spread: float = 0.3, dimension: int = 64) -> NDArray[np.float32]:
    """Unit vectors around some directions; row i belongs to direction i % num_centres."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(num_centres, dimension))
    rows = np.tile(centres, (each, 1)) + spread * rng.normal(size=(num_centres * each, dimension))
    unit: NDArray[np.float32] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit


def test_what_is_alike_comes_together() -> None:
    """Each direction's rows get a label of their own."""
    clusters = split(around(4, 50), 50)
    of_directions = [set(clusters.labels[i::4].tolist()) for i in range(4)]
    assert all(not a & b for i, a in enumerate(of_directions) for b in of_directions[:i])
    assert clusters.centres.shape == (clusters.labels.max() + 1, 64)
    assert np.allclose(np.linalg.norm(clusters.centres, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("cluster_size", [1, 7, 100])
def test_no_cluster_is_too_large(cluster_size: int) -> None:
    """Sizes hold, and every label is used."""
    sizes = np.bincount(split(around(5, 60), cluster_size).labels)
    assert 1 <= sizes.min() <= sizes.max() <= cluster_size


def test_equal_rows_stay_together() -> None:
    """What cannot be told apart is one cluster, whatever its size; so is what fits one, and nothing is none."""
    rows = np.tile(around(2, 1), (20, 1))
    assert len(split(rows, 4).centres) == 2
    assert split(rows[::2], 4).labels.tolist() == [0] * 20
    assert split(rows[:3], 4).labels.tolist() == [0] * 3
    assert split(rows[:0], 4).labels.tolist() == []
    assert split(np.zeros((9, 64), np.float32), 4).labels.tolist() == [0] * 9


def test_threads_change_nothing() -> None:
    """One thread and two give the same labels: all products are exact."""
    rows = around(50, 80, spread=1.0, dimension=256)
    labels = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            labels.append(_split(whole(rows), 8).labels.tobytes())
    assert labels[0] == labels[1] == split(rows, 8).labels.tobytes()
    points = whole(rows)
    assert (points == np.rint(points)).all()
    assert (points @ points.T == (points.astype(np.int64) @ points.astype(np.int64).T)).all()


def test_new_rows_go_to_the_nearest_cluster() -> None:
    """The rows themselves find their own way back, whatever was taken off as their mean."""
    rows = around(6, 40)
    clusters = split(rows, 60)
    assert (clusters.nearest(rows, np.zeros(64, np.float32)) == clusters.labels).mean() > 0.98
    with pytest.raises(ValueError, match="at most 1024"):
        split(np.ones((2, 2000), np.float32), 1)
