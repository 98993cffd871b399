"""Density blending: prefill-heavy and decode-heavy work units taken in turn, so that each stretch of the night has the mix
of the whole (the idea of two scanners over an ordered list is that of arXiv 2411.16102).

It pays where a step with both kinds costs the larger of two bounds, as on a GPU that computes while it reads memory; where
costs add up, as on a CPU, it gains nothing. Units keep their order within each of the two scanners, so that neighbours which
share a prefix stay neighbours; a unit is never split.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def blended_order(prefill_s: Floats, decode_s: Floats, *, stretch: int = 1) -> Ints:
    """The new order of work units, as their old positions. Costs in seconds, in the plan's order.

    One scanner has the units whose share of prefill is above the whole night's, the other the rest. At each place comes the
    next of the one that brings what has been taken so far nearer to the night's mix. `stretch` units are taken at once.
    """
    total_prefill, total_decode = float(prefill_s.sum()), float(decode_s.sum())
    excess = prefill_s * total_decode - decode_s * total_prefill
    heavy = excess > 0
    scanners = np.flatnonzero(heavy), np.flatnonzero(~heavy)
    if not (len(scanners[0]) and len(scanners[1])):
        return np.arange(len(prefill_s))
    targets = [_balance_points(excess, scanner, stretch) for scanner in scanners]
    places = np.concatenate([targets[0], targets[1]])
    return np.concatenate(scanners)[np.argsort(places, kind="stable")]


def _balance_points(excess: Floats, scanner: Ints, stretch: int) -> Floats:
    """Where each unit of a scanner belongs: at the middle of its own excess, as a share of the scanner's whole. What both
    scanners have up to one share cancels out, so that in the order of the shares the mix is that of the night."""
    size = np.abs(excess[scanner])
    ends = np.cumsum(size)
    middles = (ends - size / 2) / max(float(ends[-1]), 1e-300)
    first = np.arange(len(scanner)) // stretch * stretch
    found: Floats = middles[first]
    return found
