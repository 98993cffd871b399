"""Token ids to weighted sums of vectors, compiled: the inner loops of the static encoder.

A row is given by CSR offsets into a flat array of ids. Its features are tokens, pairs and triples of neighbours. All sums
are of whole numbers, so that they are the same in whatever order, by however many threads and on any processor.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.compiled import kept

GRAM_BITS = 20
"""Pairs and triples are counted under a hash of so many bits."""
NUM_GRAM_VECTORS = 4096
MAX_READ = 4096
"""A longer prompt is read half from its head and half from its tail. Also keeps the sums within 32 bits."""


@kept
def _hash(a: Any, b: Any, c: Any) -> Any:
    """Of a pair (c is -1) or a triple of token ids; multiplicative, with an odd constant for each place."""
    mixed = (
        np.uint64(a + 1) * np.uint64(0x9E3779B97F4A7C15)
        ^ np.uint64(b + 1) * np.uint64(0xC2B2AE3D27D4EB4F)
        ^ np.uint64(c + 1) * np.uint64(0x165667B19E3779F9)
    )
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return np.int64(mixed >> np.uint64(64 - GRAM_BITS))


@kept
def _place(i: Any, length: Any) -> Any:
    """Where the i-th token that is read stands in its row."""
    return i if length <= MAX_READ or i < MAX_READ // 2 else length - MAX_READ + i


@kept
def count_features(
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
    of_tokens: NDArray[np.int32],
    of_grams: NDArray[np.int32],
    last_token: NDArray[np.int64],
    last_gram: NDArray[np.int64],
    first_row: int,
) -> None:
    """Add to each feature's number of rows that have it. `last_*` are the rows that had it last, counted over all calls."""
    for row in range(len(offsets) - 1):
        start, length = offsets[row], offsets[row + 1] - offsets[row]
        a, b, number = -1, -1, first_row + row
        for i in range(min(length, MAX_READ)):
            c = ids[start + _place(i, length)]
            if last_token[c] != number:
                last_token[c] = number
                of_tokens[c] += 1
            if b >= 0:
                pair = _hash(b, c, -1)
                if last_gram[pair] != number:
                    last_gram[pair] = number
                    of_grams[pair] += 1
                if a >= 0:
                    triple = _hash(a, b, c)
                    if last_gram[triple] != number:
                        last_gram[triple] = number
                        of_grams[triple] += 1
            a, b = b, c


@kept
def sum_vectors(
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
    token_weights: NDArray[np.uint8],
    gram_weights: NDArray[np.uint8],
    token_vectors: NDArray[np.int8],
    gram_vectors: NDArray[np.int8],
    out: NDArray[np.float32],
) -> None:
    """Each row's sum, made a unit vector; zero for a row without features that weigh anything.

    A pair weighs as much as it tells beyond the rarer of its tokens, a triple as much as beyond the rarer of its pairs.
    """
    total = np.empty(out.shape[1], dtype=np.int32)
    for row in range(len(offsets) - 1):
        total[:] = 0
        start, length = offsets[row], offsets[row + 1] - offsets[row]
        a, b = -1, -1
        weight_b: Any = 0
        weight_ab: Any = 0
        for i in range(min(length, MAX_READ)):
            c = ids[start + _place(i, length)]
            weight_c: Any = np.int32(token_weights[c])
            weight_bc: Any = 0
            if weight_c > 0:
                _add(total, token_vectors[c], weight_c)
            if b >= 0:
                pair = _hash(b, c, -1)
                weight_bc = np.int32(gram_weights[pair])
                if weight_bc > max(weight_b, weight_c):
                    _add(total, gram_vectors[pair % NUM_GRAM_VECTORS], weight_bc - max(weight_b, weight_c))
                if a >= 0:
                    triple = _hash(a, b, c)
                    more = np.int32(gram_weights[triple]) - max(weight_ab, weight_bc)
                    if more > 0:
                        _add(total, gram_vectors[triple % NUM_GRAM_VECTORS], more)
            a, b, weight_b, weight_ab = b, c, weight_c, weight_bc
        _make_unit(total, out[row])


@kept
def _add(total: NDArray[np.int32], vector: NDArray[np.int8], weight: Any) -> None:
    for j in range(len(total)):
        total[j] += np.int32(weight) * np.int32(vector[j])


@kept
def _make_unit(total: NDArray[np.int32], out: NDArray[np.float32]) -> None:
    square = np.int64(0)
    for j in range(len(total)):
        square += np.int64(total[j]) * np.int64(total[j])
    length = max(np.sqrt(np.float64(square)), 1.0)
    for j in range(len(total)):
        out[j] = np.float32(np.float64(total[j]) / length)
