"""The static encoder: token ids in, unit vectors out, without a network and without tokenising again.

A prompt's vector is the sum over its tokens, each weighted by how rare it is among the prompts that were counted: its
inverse document frequency. A token's vector is its row of the served model's own embedding matrix, projected at random;
pairs and triples of tokens have random vectors, and weigh only what they tell beyond their parts. In scripts that the
tokenizer cuts into pieces of characters it is these that tell texts apart. Invariant: sums are of whole numbers, so that the
vectors are the same whatever the batches and the number of threads.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.engine.embeddings import EmbeddingMatrix, find_embeddings
from tasks.group import kernels

DIMENSION = 256
_ROWS_AT_ONCE = 1024
_TOKEN_UNIT, _GRAM_UNIT = 36, 24
"""Standard deviation of a component, in 8 bits: of tokens, and of pairs and triples."""
_EXACT = 4096.0
"""Components are rounded to whole parts of this, so that products with signs add up exactly in 32-bit floats."""
_WEIGHT_SCALE = 8.0
"""Weights are natural logarithms times this, as whole numbers up to 255: enough for 10^13 rows."""

Ids = NDArray[np.int32]
Offsets = NDArray[np.int64]
Vectors = NDArray[np.float32]


class StaticEncoder:
    """Vectors for the ids of one vocabulary; what is common among the prompts is learnt by `fit` beforehand."""

    def __init__(self, token_vectors: NDArray[np.int8]) -> None:
        self._token_vectors = token_vectors
        self.vocab_size, self.dimension = token_vectors.shape
        self._gram_vectors = _signs(kernels.NUM_GRAM_VECTORS, self.dimension, seed=1) * np.int8(_GRAM_UNIT)
        num_grams = 1 << kernels.GRAM_BITS
        self._of_tokens, self._of_grams = np.zeros(self.vocab_size, np.int32), np.zeros(num_grams, np.int32)
        self._last_token, self._last_gram = np.full(self.vocab_size, -1, np.int64), np.full(num_grams, -1, np.int64)
        self._weights: tuple[NDArray[np.uint8], NDArray[np.uint8]] | None = None
        self.num_rows = 0

    def fit(self, token_ids: Ids, offsets: Offsets) -> None:
        """Count these prompts too. Row i is token_ids[offsets[i]:offsets[i + 1]]. Raises ValueError for an unknown id."""
        self._check(token_ids)
        counts = (self._of_tokens, self._of_grams, self._last_token, self._last_gram)
        kernels.count_features(token_ids, offsets, *counts, self.num_rows)
        self.num_rows += len(offsets) - 1
        self._weights = None

    def embed_tokens(self, token_ids: Ids, offsets: Offsets) -> Vectors:
        """Shape (number of rows, dimension); a row that has nothing but what all have is zero, others have length one."""
        self._check(token_ids)
        if self._weights is None:
            self._weights = _weights(self._of_tokens, self.num_rows), _weights(self._of_grams, self.num_rows)
        tables = (*self._weights, self._token_vectors, self._gram_vectors)
        out = np.empty((len(offsets) - 1, self.dimension), dtype=np.float32)

        def embed(start: int) -> None:
            end = min(start + _ROWS_AT_ONCE, len(out))
            kernels.sum_vectors(token_ids, offsets[start : end + 1], *tables, out[start:end])

        with ThreadPoolExecutor(_num_threads()) as pool:
            list(pool.map(embed, range(0, len(out), _ROWS_AT_ONCE)))
        return out

    def _check(self, token_ids: Ids) -> None:
        """The compiled code looks rows up without asking."""
        if len(token_ids) and not (token_ids.min() >= 0 and token_ids.max() < self.vocab_size):
            raise ValueError(f"token ids must be from 0 to {self.vocab_size - 1}")


def open_static_encoder(model: Path | None, vocab_size: int) -> StaticEncoder:
    """The encoder of a model's folder, for the tokenizer's `vocab_size` ids. Where there is no folder, or no embedding
    matrix in it that can be read, tokens have random vectors: the same words are alike then, and related ones are not."""
    found = find_embeddings(model) if model else None
    vectors = _signs(max(vocab_size, found.num_rows if found else 0), DIMENSION, seed=0) * np.int8(_TOKEN_UNIT)
    if found:
        vectors[: found.num_rows] = _projected(found)
    return StaticEncoder(vectors)


def _projected(matrix: EmbeddingMatrix) -> NDArray[np.int8]:
    """The rows without their mean, of length one, times random signs (Achlioptas 2003), in 8 bits."""
    signs = _signs(matrix.num_columns, DIMENSION, seed=2).astype(np.float32)
    mean = sum(chunk.sum(axis=0, dtype=np.float64) for chunk in matrix.chunks()) / matrix.num_rows
    out = np.empty((matrix.num_rows, DIMENSION), dtype=np.int8)
    start = 0
    for chunk in matrix.chunks():
        rows = chunk - mean
        lengths = np.maximum(np.sqrt((rows * rows).sum(axis=1, keepdims=True)), 1e-12)
        projected = np.rint(rows / lengths * _EXACT).astype(np.float32) @ signs
        out[start : start + len(chunk)] = np.clip(np.rint(projected / _EXACT * _TOKEN_UNIT), -127, 127)
        start += len(chunk)
    return out


def _weights(num_rows_with: NDArray[np.int32], num_rows: int) -> NDArray[np.uint8]:
    """Inverse document frequency: nothing for what all prompts have, most for what none has."""
    logarithms = np.log((num_rows + 1) / (num_rows_with + 1.0))
    return np.clip(np.rint(_WEIGHT_SCALE * logarithms), 0, 255).astype(np.uint8)


def _signs(num_rows: int, num_columns: int, seed: int) -> NDArray[np.int8]:
    bits = np.random.default_rng(seed).integers(0, 2, size=(num_rows, num_columns), dtype=np.int8)
    return bits * np.int8(2) - np.int8(1)


def _num_threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
