"""How long answers get, learnt while they come: the survival curve of each class of sequences.

A class is a source, apart for sequences whose length was predicted (their lengths are taken relative to the prediction) and
those of which nothing is known. Within a class, bins of answer length that widen by 2^(1/4); of each, how many answers got
as far and how many ended in it, the Kaplan-Meier estimate. So what still runs counts as evidence of long answers, an answer
cut off at its limit only of what it reached, and one that went on from saved tokens only of what came after. What is not
yet known comes from a prior: few answers end for classes without a prediction, a log-normal around it for the others. The
survival at x, given that k was reached, is S(x) / S(k).
"""

import math

import numpy as np
from numpy.typing import NDArray

_FIRST = 8.0
_PER_OCTAVE = 4
_NUM_BINS = 64
_PREDICTED = 64.0
"""What a predicted length is scaled to, on the axis of bins."""
_PRIOR_WEIGHT = 1.0
_POOL_WEIGHT = 3.0
_PRIOR_HAZARD = 0.02
_PRIOR_SIGMA = 0.6
_FORGET_AT = 2048.0

Floats = NDArray[np.float64]


class LengthClasses:
    """The survival curves of all classes, learnt from what is told. Lengths are in tokens. The curves change with `look`.

    The first two rows are the pools: of all without a prediction, of all with one.
    """

    def __init__(self) -> None:
        self._index: dict[tuple[str, bool], int] = {}
        self._pool = np.array([0, 1])
        self._reached = np.zeros((2, _NUM_BINS))
        self._ended = np.zeros((2, _NUM_BINS))
        self._inside = np.zeros((2, _NUM_BINS))
        self._log_survival: Floats | None = None

    def class_of(self, source: str, predicted_tokens: int | None) -> int:
        """The number of a sequence's class."""
        name = source, predicted_tokens is not None
        if (known := self._index.get(name)) is not None:
            return known
        self._index[name] = len(self._pool)
        self._pool = np.append(self._pool, int(predicted_tokens is not None))
        row = np.zeros((1, _NUM_BINS))
        self._reached, self._ended = np.vstack([self._reached, row]), np.vstack([self._ended, row])
        self._inside, self._log_survival = np.vstack([self._inside, row]), None
        return self._index[name]

    def reach(self, class_: int, first: int, last: int) -> None:
        """An answer has got into the bins from `first` to `last`."""
        for row in (class_, self._pool[class_]):
            self._reached[row, first : last + 1] += 1

    def end(self, class_: int, bin_: int) -> None:
        """An answer has ended by itself in this bin."""
        for row in (class_, self._pool[class_]):
            self._ended[row, bin_] += 1
            if self._ended[row].sum() > _FORGET_AT:  # what was long ago says less of what comes
                self._ended[row] /= 2
                self._reached[row] /= 2

    def look(self, classes: NDArray[np.int64], bins: NDArray[np.int64]) -> None:
        """Learn from what was told. Where the answers that still run are: the bin that one is in has been half tried."""
        self._inside[:] = 0
        np.add.at(self._inside, (classes, bins), 0.5)
        np.add.at(self._inside, (self._pool[classes], bins), 0.5)
        self._log_survival = None

    def log_survival(self, classes: NDArray[np.int64], bins: Floats) -> Floats:
        """log S of each class at places on the axis of bins, in between linearly; `classes` broadcasts to `bins`."""
        table = self._table()
        places = np.minimum(bins, _NUM_BINS - 1e-6)
        below = places.astype(np.int64)
        left = table[classes, below]
        return left + (places - below) * (table[classes, below + 1] - left)

    def _table(self) -> Floats:
        """log S at the lower edge of each bin and the end of the last, one row a class."""
        if self._log_survival is None:
            tried = np.maximum(self._reached - self._inside, self._ended)
            pools = (self._ended[:2] + _PRIOR_WEIGHT * _PRIOR) / (tried[:2] + _PRIOR_WEIGHT)
            hazard = (self._ended + _POOL_WEIGHT * pools[self._pool]) / (tried + _POOL_WEIGHT)
            steps = np.log1p(-np.minimum(hazard, 0.999))
            self._log_survival = np.concatenate([np.zeros((len(steps), 1)), np.cumsum(steps, axis=1)], axis=1)
        return self._log_survival

    def expected_tokens(self, class_: int, scale: float, max_tokens: int) -> float:
        """The mean length of an answer of this class, its limit regarded."""
        edges = np.minimum(_EDGES / scale, max_tokens)
        survival = np.exp(self._table()[class_])
        return float(np.sum(np.diff(edges) * (survival[1:] + survival[:-1]) / 2))


def scale_of(predicted_tokens: int | None) -> float:
    """What a sequence's tokens are multiplied by before they are put on the axis of bins."""
    return 1.0 if predicted_tokens is None else _PREDICTED / max(predicted_tokens, 1)


def bin_of(scaled_tokens: float) -> int:
    """The bin of a length."""
    return min(int(_PER_OCTAVE * math.log2(1 + scaled_tokens / _FIRST)), _NUM_BINS - 1)


def places(scaled_tokens: Floats) -> Floats:
    """Where lengths lie on the axis of bins."""
    placed: Floats = _PER_OCTAVE * np.log2(1 + scaled_tokens / _FIRST)
    return placed


_EDGES: Floats = _FIRST * (2.0 ** (np.arange(_NUM_BINS + 1) / _PER_OCTAVE) - 1)


def _log_normal_hazard() -> list[float]:
    """The hazard of each bin when the length is log-normal around the prediction."""
    tail = [0.5 * math.erfc(math.log(max(edge, 1e-9) / _PREDICTED) / _PRIOR_SIGMA / math.sqrt(2)) for edge in _EDGES]
    survival = np.maximum(np.array(tail), 1e-12)
    hazard: list[float] = np.minimum(1 - survival[1:] / survival[:-1], 0.5).tolist()
    return hazard


_PRIOR: Floats = np.array([[_PRIOR_HAZARD] * _NUM_BINS, _log_normal_hazard()])
