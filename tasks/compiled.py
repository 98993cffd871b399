"""Compiled functions of integers and arrays, with their types kept: numba behind one door.

They run without the interpreter's lock, so that threads share the cores.
"""

from collections.abc import Callable
from typing import TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Cells = NDArray[np.int32]

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
