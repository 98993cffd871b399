"""How long answers will be, learnt from those of earlier runs: quantiles by source, and by finer cells where these pay.

A cell of a source is a cluster of alike prompts or a range of prompt lengths. Cells with few rows lean on their source's
distribution, and a source with few rows on that of all. An answer that was cut at max_tokens says only that it would have
been longer, and is counted so (Kaplan and Meier 1958). What was never seen is not predicted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tasks.group.clusters import Clusters, split

UNKNOWN = -1
"""In place of a length, where there is nothing to tell it from."""

_PRIOR_ROWS = 4.0
"""As many rows as the wider distribution counts for, in a narrower one."""
_PRIOR_POINTS = (np.arange(32) + 0.5) / 32
_MIN_ROWS = 48
"""A source is not divided below that."""
_CELL_ROWS, _MAX_CELLS = (32, 8), 256
"""The sizes of clusters that are tried, and how many of them there may be in a source."""
_NUM_LENGTH_BINS = 4
_FOLDS = 4
_MUST_GAIN = 0.05
"""The share of a source's error by which cells must lower it, in cross-validation, to be used."""

Ints = NDArray[np.int32]
Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class History:
    """Answers of earlier runs, one a row: where the request came from, tokens of its prompt and answer, whether the answer
    was cut at its max_tokens, and unit vectors of the prompts, if there are any."""

    sources: NDArray[np.str_]
    prompt_tokens: Ints
    output_tokens: Ints
    was_cut: NDArray[np.bool_]
    vectors: Vectors | None = None


@dataclass(frozen=True, slots=True)
class Curve:
    """The distribution of a length that was seen, in part, cut off: its rows by length, and the share that is longer."""

    lengths: NDArray[np.float64]
    survival: NDArray[np.float64]

    def quantiles(self, of: NDArray[np.float64]) -> NDArray[np.float64]:
        """The lengths below which these shares are; infinite where that was never seen."""
        places = np.searchsorted(1.0 - self.survival, of - 1e-9)
        return np.append(self.lengths, np.inf)[places]

    def quantile(self, of: float) -> float:
        return float(self.quantiles(np.array([of]))[0])


@dataclass(frozen=True, slots=True)
class _Cells:
    """How a source is divided: by clusters around a mean, by edges of prompt lengths, or not at all."""

    name: str = "source"
    edges: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    mean: Vectors | None = None
    clusters: Clusters | None = None

    def of(self, prompt_tokens: Ints, vectors: Vectors | None) -> Ints | None:
        """Each row's cell; None where the vectors that it takes are missing."""
        if self.clusters is None or self.mean is None:
            return np.searchsorted(self.edges, prompt_tokens, side="right").astype(np.int32)
        return None if vectors is None else self.clusters.nearest(vectors, self.mean)


@dataclass(frozen=True, slots=True)
class _Source:
    whole: Curve
    cells: _Cells
    curves: tuple[Curve, ...]

    def quantiles(self, prompt_tokens: Ints, vectors: Vectors | None, of: float) -> NDArray[np.float64]:
        """Of each row's cell, or of the whole source where its cell cannot be told."""
        cells = self.cells.of(prompt_tokens, vectors)
        if cells is None:
            return np.full(len(prompt_tokens), self.whole.quantile(of))
        return np.array([one.quantile(of) for one in self.curves])[cells]


class LengthModel:
    """Made by `fit`; `divided_by` says for each source what its cells are: source (none), prompt length or cluster."""

    def __init__(self, sources: dict[str, _Source]) -> None:
        self._sources = sources

    @property
    def divided_by(self) -> dict[str, str]:
        return {name: source.cells.name for name, source in self._sources.items()}

    @staticmethod
    def fit(history: History) -> "LengthModel":
        """Learn from these rows; the order of rows within a source decides ties alone."""
        everywhere = curve(history.output_tokens, history.was_cut).quantiles(_PRIOR_POINTS)
        names, places = np.unique(history.sources, return_inverse=True)
        order = np.argsort(places, kind="stable")
        bounds = np.searchsorted(places[order], np.arange(len(names) + 1))
        parts = (order[start:end] for start, end in pairwise(bounds))
        return LengthModel(
            {str(name): _fit_source(_rows(history, rows), everywhere) for name, rows in zip(names, parts, strict=True)}
        )

    def predict(
        self,
        sources: Sequence[str],
        source_ids: Ints,
        prompt_tokens: Ints,
        max_tokens: Ints,
        vectors: Vectors | None = None,
        quantile: float = 0.5,
    ) -> Ints:
        """A length in tokens for each row, at most its max_tokens; UNKNOWN for a source that was never seen.

        Row i is of sources[source_ids[i]]. Without vectors, sources that are divided by cluster are taken whole.
        """
        predicted = np.full(len(source_ids), UNKNOWN, dtype=np.int32)
        order = np.argsort(source_ids, kind="stable")
        bounds = np.searchsorted(source_ids[order], np.arange(len(sources) + 1))
        for number, name in enumerate(sources):
            rows = order[bounds[number] : bounds[number + 1]]
            if (model := self._sources.get(name)) is not None and len(rows):
                found = model.quantiles(prompt_tokens[rows], None if vectors is None else vectors[rows], quantile)
                predicted[rows] = np.minimum(found, max_tokens[rows])
        return predicted


def curve(lengths: Ints, was_cut: NDArray[np.bool_], points: NDArray[np.float64] | None = None) -> Curve:
    """The product-limit estimate of Kaplan and Meier, with `points` of a wider distribution as a few rows more."""
    values, ended, weights = lengths.astype(np.float64), ~was_cut, np.ones(len(lengths))
    if points is not None:
        values = np.concatenate([values, points])
        ended = np.concatenate([ended, np.isfinite(points)])
        weights = np.concatenate([weights, np.full(len(points), _PRIOR_ROWS / len(points))])
    order = np.lexsort((~ended, values))
    values, ended, weights = values[order], ended[order], weights[order]
    at_risk = np.cumsum(weights[::-1])[::-1]
    survival = np.cumprod(1.0 - ended * weights / at_risk)
    return Curve(values[ended], survival[ended])


def centred(vectors: Vectors, mean: Vectors) -> Vectors:
    """Unit vectors of what is left without the mean; what is all mean stays zero."""
    rest = vectors - mean
    lengths = np.sqrt((rest * rest).sum(axis=1, keepdims=True))
    unit: Vectors = np.divide(rest, lengths, out=np.zeros_like(rest), where=lengths > 1e-6)
    return unit


def _rows(history: History, rows: NDArray[np.intp]) -> History:
    vectors = None if history.vectors is None else history.vectors[rows]
    return History(
        history.sources[rows], history.prompt_tokens[rows], history.output_tokens[rows], history.was_cut[rows], vectors
    )


def _fit_source(history: History, everywhere: NDArray[np.float64]) -> _Source:
    """The source as a whole, or divided in the way that errs least, if that is clearly less."""
    whole = curve(history.output_tokens, history.was_cut, everywhere)
    best, best_error = _Cells(), (1 - _MUST_GAIN) * _error(history, _Cells(), everywhere)
    for cells in _ways_to_divide(history):
        if (error := _error(history, cells, everywhere)) < best_error:
            best, best_error = cells, error
    return _Source(whole, best, _curves(history, best, whole))


def _ways_to_divide(history: History) -> list[_Cells]:
    if len(history.sources) < _MIN_ROWS:
        return []
    bins = np.quantile(history.prompt_tokens, np.arange(1, _NUM_LENGTH_BINS) / _NUM_LENGTH_BINS)
    ways = [_Cells("prompt length", edges=np.unique(bins))]
    if history.vectors is not None:
        mean = history.vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
        rest, at_least = centred(history.vectors, mean), len(history.vectors) // _MAX_CELLS
        sizes = sorted({max(size, at_least) for size in _CELL_ROWS}, reverse=True)
        ways += [_Cells("cluster", mean=mean, clusters=split(rest, size)) for size in sizes]
    return ways


def _curves(history: History, cells: _Cells, whole: Curve) -> tuple[Curve, ...]:
    of = cells.of(history.prompt_tokens, history.vectors)
    if of is None or cells.name == "source":
        return (whole,)
    points = whole.quantiles(_PRIOR_POINTS)
    number = len(cells.clusters.centres) if cells.clusters else len(cells.edges) + 1
    return tuple(curve(history.output_tokens[of == i], history.was_cut[of == i], points) for i in range(number))


def _error(history: History, cells: _Cells, everywhere: NDArray[np.float64]) -> float:
    """The mean error of the median of rows that were left out in turn, in tokens."""
    fold = np.arange(len(history.sources)) % _FOLDS
    errors = np.zeros(len(fold))
    of = cells.of(history.prompt_tokens, history.vectors)
    assert of is not None
    for left_out in range(_FOLDS):
        seen, rest = _rows(history, np.flatnonzero(fold != left_out)), fold == left_out
        whole = curve(seen.output_tokens, seen.was_cut, everywhere)
        medians = np.array([one.quantile(0.5) for one in _curves(seen, cells, whole)])
        actual = history.output_tokens[rest]
        errors[rest] = np.abs(np.minimum(medians[of[rest]], np.where(history.was_cut[rest], actual, np.inf)) - actual)
    return float(np.minimum(errors, history.output_tokens.max(initial=1)).mean()) if len(errors) else 0.0
