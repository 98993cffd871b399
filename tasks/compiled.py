"""Compiled functions of integers and arrays, with their types kept: numba behind one door, and the hash that all use.

They run without the interpreter's lock, so that threads share the cores.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Cells = NDArray[np.int32]
Hashes = NDArray[np.uint64]

_F = TypeVar("_F", bound=Callable[..., object])


def compiled(function: _F) -> _F:
    """Compiled where it is first needed, and not kept: what calls it from outside is."""
    return cast("_F", numba.njit(nogil=True)(function))


def kept(function: _F) -> _F:
    """Compiled once for all processes, where there is a place to keep it.

    numba makes it anew when its own file or what it encloses is another, and does not see a change in what it calls.
    """
    try:
        return cast("_F", numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:
        return compiled(function)


@kept
def finished(word: np.uint64) -> np.uint64:
    """Every bit of the outcome depends on all bits of the word (splitmix64's finish, Steele and others 2014)."""
    word = (word ^ word >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ word >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return word ^ word >> np.uint64(31)


@kept
def content_hashes(items: NDArray[Any], offsets: Ints, salts: Hashes) -> Hashes:
    """Two 64-bit hashes of each row and its salts, shape (rows, 2), the same on every machine: multiply and rotate as in
    xxHash, each lane with constants of its own, and the finish of splitmix64. Rows are in CSR form: `items`, whole numbers
    of any type, one row behind the other, and `offsets`, where each begins and the last one ends."""
    first, second = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)
    left, right = np.uint64(31), np.uint64(33)
    hashes = np.empty((len(offsets) - 1, 2), np.uint64)
    for row in range(len(hashes)):
        length = np.uint64(offsets[row + 1] - offsets[row])
        a, b = finished(salts[row, 0] + length * first), finished(salts[row, 1] + length * second)
        for at in range(offsets[row], offsets[row + 1]):
            item = np.uint64(items[at])
            a = (a ^ item * second) * first
            a = a << left | a >> right
            b = (b + item * first) * second
            b = b << right | b >> left
        hashes[row, 0], hashes[row, 1] = finished(a), finished(b)
    return hashes
