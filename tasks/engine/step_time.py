"""How long an engine step takes: seconds = c0 + c1 prefill tokens + c2 sequences decoding + c3 tokens attended to.

The coefficients are fitted to the engine's own steps by least squares that keeps them at or above zero, so that no kind of
work is said to gain time. A machine that is shared stalls now and then; steps that took far longer than the others of their
kind count less (Huber's weights). What is kept of a session are the normal equations of its weighted steps: of constant
size, and the sum of two sessions' is that of both. The model is linear in the loads, so the seconds of a night are those of
its sums.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tasks.core.step import StepLoad

NUM_SKIPPED = 8
"""The first steps of a session touch memory for the first time."""
_NUM_KEPT = 4096
_HUBER = 1.345
_ROUNDS = 10
_MOST_STEPS = 200_000
"""Older sessions fade once more steps are known, as drivers and machines change."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StepTime:
    """Fitted seconds: per step, per prefill token, per sequence decoding, per token of context attended to.

    `num_steps` is how many steps it was fitted to; `error` the mean error of a step over the mean step.
    """

    step_s: float
    prefill_token_s: float
    decode_seq_s: float
    context_token_s: float
    num_steps: int
    error: float

    def seconds(self, *, steps: float, prefill_tokens: float, decode_tokens: float, context_tokens: float) -> float:
        """The wall time of so much work: each is a sum over the steps."""
        return (
            self.step_s * steps
            + self.prefill_token_s * prefill_tokens
            + self.decode_seq_s * decode_tokens
            + self.context_token_s * context_tokens
        )


@dataclass(slots=True)
class StepSums:
    """The weighted normal equations of some steps: X'X (4 x 4), X'y, y'y; `absolute` sums errors, `total` seconds."""

    matrix: list[list[float]] = field(default_factory=lambda: [[0.0] * 4 for _ in range(4)])
    vector: list[float] = field(default_factory=lambda: [0.0] * 4)
    num_steps: int = 0
    absolute: float = 0.0
    total: float = 0.0

    def plus(self, newer: "StepSums") -> "StepSums":
        """Both together; the older ones fade when they are many."""
        share = min(1.0, _MOST_STEPS / max(self.num_steps + newer.num_steps, 1))
        matrix = share * np.array(self.matrix) + np.array(newer.matrix)
        vector = share * np.array(self.vector) + np.array(newer.vector)
        return StepSums(
            matrix.tolist(),
            vector.tolist(),
            int(share * self.num_steps) + newer.num_steps,
            share * self.absolute + newer.absolute,
            share * self.total + newer.total,
        )

    def fit(self) -> StepTime | None:
        """The coefficients; None when there are too few steps to tell."""
        if self.num_steps < 2 * NUM_SKIPPED:
            return None
        coefficients = _solve(np.array(self.matrix), np.array(self.vector))
        step, prefill, decode, context = coefficients.tolist()
        return StepTime(step, prefill, decode, context, self.num_steps, self.absolute / self.total if self.total else 0.0)


class StepTimer:
    """Takes a session's steps in: every one at first, every second when many are kept, every fourth, and so on."""

    def __init__(self) -> None:
        self._rows: list[tuple[float, float, float, float]] = []
        self._stride = 1
        self._seen = -NUM_SKIPPED

    def add(self, seconds: float, load: Callable[[], StepLoad]) -> None:
        """A step that has ended; its load is asked for when the step is one that is looked at."""
        self._seen += 1
        if self._seen > 0 and self._seen % self._stride == 0 and not (found := load()).is_empty:
            self._keep(seconds, found)

    def _keep(self, seconds: float, load: StepLoad) -> None:
        self._rows.append((seconds, load.prefill_tokens, load.decode_seqs, load.context_tokens))
        if len(self._rows) == _NUM_KEPT:
            del self._rows[::2]
            self._stride *= 2

    def sums(self) -> StepSums:
        """The session's steps, those that stalled at less weight."""
        if len(self._rows) < 2 * NUM_SKIPPED:
            return StepSums()
        rows = np.array(self._rows)
        seconds, features = rows[:, 0], np.column_stack([np.ones(len(rows)), rows[:, 1:]])
        weights = _robust_weights(features, seconds)
        weighted = features * weights[:, None]
        errors = np.abs(seconds - features @ _solve(features.T @ weighted, weighted.T @ seconds))
        return StepSums(
            (features.T @ weighted).tolist(),
            (weighted.T @ seconds).tolist(),
            len(rows),
            float(weights @ errors),
            float(weights @ seconds),
        )


def _robust_weights(features: Floats, seconds: Floats) -> Floats:
    """Huber's weights, relative to the fitted step: a stall of a short step is no better than that of a long one."""
    weights = 1 / np.maximum(seconds, np.median(seconds) / 10)
    relative = weights
    for _ in range(_ROUNDS):
        weighted = features * weights[:, None]
        fitted = features @ _solve(features.T @ weighted, weighted.T @ seconds)
        errors = np.abs(seconds - fitted) / np.maximum(fitted, 1e-9)
        scale = _HUBER * max(float(np.median(errors)) / 0.6745, 1e-6)
        relative = np.minimum(1.0, scale / np.maximum(errors, 1e-12)) ** 2
        weights = relative / np.maximum(fitted, np.median(fitted) / 10)
    return weights


def _solve(matrix: Floats, vector: Floats) -> Floats:
    """Non-negative least squares from normal equations, columns scaled alike."""
    from scipy.optimize import nnls

    scale = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    scaled = matrix / np.outer(scale, scale)
    values, vectors = np.linalg.eigh(scaled)
    kept = values > 1e-12 * max(float(values.max()), 1e-300)
    root = np.sqrt(values[kept])
    half = (vectors[:, kept] * root).T
    right = (vectors[:, kept].T @ (vector / scale)) / root
    found: Floats = nnls(half, right)[0] / scale
    return found
