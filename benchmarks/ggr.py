"""Greedy Group Recursion, a re-implementation from the description in arXiv 2403.05821: the peer of field order.

The value that promises most, by squared length times its further rows, with the columns that functionally depend on its own,
takes its rows out of the table; so on with the rest, and within, until there is nothing left or a depth is reached. There
one order of columns, by what they promise on average, is used for what remains.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]
Order = tuple[int, ...]


def dependencies(codes: Codes) -> list[list[int]]:
    """For each column those that it determines."""
    numbers = [int(column.max()) + 1 for column in codes.T]
    found: list[list[int]] = []
    for one in range(codes.shape[1]):
        pairs = [len(np.unique(codes[:, one] * number + codes[:, other])) for other, number in enumerate(numbers)]
        found.append([other for other, num in enumerate(pairs) if other != one and num == len(np.unique(codes[:, one]))])
    return found


def ggr(codes: Codes, lengths: Codes, max_row_depth: int, max_column_depth: int) -> list[Order]:
    """The order of each row's fields."""
    orders: list[Order] = [()] * len(codes)
    squared = lengths.astype(np.float64) ** 2
    follows = dependencies(codes)
    waiting: list[tuple[Codes, Order, Order, int]] = [(np.arange(len(codes)), tuple(range(codes.shape[1])), (), 0)]
    while waiting:
        rows, columns, before, column_depth = waiting.pop()
        row_depth = 0
        while len(rows) and row_depth < max_row_depth and column_depth < max_column_depth:
            worth, own, taken = _best(codes, squared, follows, rows, columns)
            if worth <= 0:
                break
            left = tuple(column for column in columns if column not in taken)
            waiting.append((rows[own], left, (*before, *taken), column_depth + 1))
            rows = rows[~own]
            row_depth += 1
        rest = _by_statistics(codes, squared, rows, columns) if len(rows) else columns
        for row in rows:
            orders[row] = (*before, *rest)
    return orders


def _best(
    codes: Codes, squared: NDArray[np.float64], follows: list[list[int]], rows: Codes, columns: Order
) -> tuple[float, NDArray[np.bool_], Order]:
    """What the best value promises, which of the rows have it, and its columns."""
    best, where, value = 0.0, 0, 0
    taken: Order = ()
    for column in columns:
        own = codes[rows, column]
        counts = np.bincount(own)
        with_it = (column, *(other for other in follows[column] if other in columns))
        means = np.bincount(own, squared[np.ix_(rows, np.array(with_it))].sum(axis=1)) / np.maximum(counts, 1)
        worths = means * (counts - 1)
        if worths.max() > best:
            best, where, value, taken = float(worths.max()), column, int(worths.argmax()), with_it
    return best, codes[rows, where] == value, taken


def _by_statistics(codes: Codes, squared: NDArray[np.float64], rows: Codes, columns: Order) -> Order:
    """The columns by their mean squared length times the rows to a value."""
    promise = {column: squared[rows, column].mean() * len(rows) / len(np.unique(codes[rows, column])) for column in columns}
    return tuple(sorted(columns, key=lambda column: (-promise[column], column)))


def saved(codes: Codes, lengths: Codes, orders: Sequence[Order]) -> int:
    """What the rows share with the one before them when each has its fields in this order and all are sorted."""
    order = np.array(orders)
    at = np.arange(len(codes))[:, None]
    keys = codes[at, order] * codes.shape[1] + order
    places = np.lexsort(keys.T[::-1])
    keys, ordered = keys[places], lengths[at, order][places]
    same = np.logical_and.accumulate(keys[1:] == keys[:-1], axis=1)
    return int((ordered[1:] * same).sum())
