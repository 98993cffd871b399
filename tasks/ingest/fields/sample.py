"""Sample: a table's rows as hashes and lengths, 16 bytes a cell; in the end, the order of its fields.

Of a table with more cells than `max_cells` it keeps the rows whose own hash is small, so that what is kept, and so the order
of fields, is the same whatever the order of the rows and files.
"""

from array import array
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from tasks.compiled import Cells
from tasks.ingest.fields.order import ABSENT, Cell, FieldOrder, Rule, value_hash
from tasks.ingest.fields.search import MAX_FIELDS, solve

MAX_CELLS = 4_000_000
_Hashes = NDArray[np.uint64]


class Sample:
    """Takes a table's rows. `names` are its fields where they are known; else the order is of all fields that there are."""

    def __init__(self, names: Sequence[str] | None = None, max_cells: int = MAX_CELLS) -> None:
        self._names = names
        self._max_cells = max_cells
        self._column_of: dict[str, int] = {name: i for i, name in enumerate(names or ())}
        self._limit = 1 << 64
        self._keys, self._sizes = array("Q"), array("I")
        self._columns, self._hashes, self._lengths = array("I"), array("Q"), array("I")

    @property
    def num_rows(self) -> int:
        """How many rows are kept."""
        return len(self._keys)

    def add(self, cells: Sequence[Cell]) -> None:
        """One row more. A line of the prompt is as long as its bytes, which stand for tokens."""
        hashes = [value_hash(text) for _, text in cells]
        columns = [self._column_of.setdefault(name, len(self._column_of)) for name, _ in cells]
        own = sorted((name, known) for (name, _), known in zip(cells, hashes, strict=True))
        key = int.from_bytes(blake2b(repr(own).encode(), digest_size=8).digest(), "little")
        if key < self._limit:
            self._keys.append(key)
            self._sizes.append(len(cells))
            self._columns.extend(columns)
            self._hashes.extend(hashes)
            self._lengths.extend(_line_bytes(name, text) for name, text in cells)
        while self._num_cells > self._max_cells and self._limit > 1:
            self._limit //= 2
            self._thin()

    @property
    def _num_cells(self) -> int:
        """Of the table that is searched, where no row may have all fields."""
        return max(len(self._hashes), len(self._keys) * min(len(self._column_of), MAX_FIELDS))

    def _thin(self) -> None:
        keys, sizes = np.frombuffer(self._keys, np.uint64), np.frombuffer(self._sizes, np.uint32)
        rows = keys < self._limit
        cells = np.repeat(rows, sizes)
        kept = [np.frombuffer(of, of.typecode)[cells] for of in (self._columns, self._hashes, self._lengths)]
        self._columns, self._hashes, self._lengths = (array(of.dtype.char, of.tobytes()) for of in kept)
        self._keys, self._sizes = array("Q", keys[rows].tobytes()), array("I", sizes[rows].tobytes())

    def order(self) -> FieldOrder:
        """The order of fields that lets the rows share the longest beginnings."""
        names = self._searched()
        hashes, lengths = self._dense(names)
        codes, values = _coded(hashes)
        worth = _worth(codes, lengths)
        rest = tuple(sorted(range(len(names)), key=lambda field: (-worth[field], field)))
        if not codes.size:
            return FieldOrder(tuple(names), rest, (), ())
        distinct = _distinct(codes)
        nodes = solve(codes[distinct], lengths[distinct]).tolist()
        shared = [tuple(field for field in range(len(names)) if mask >> field & 1) for *_, mask in nodes]
        rules = [
            Rule(parent, field, int(values[field][code]), own)
            for (parent, field, code, _), own in zip(nodes[1:], shared[1:], strict=True)
        ]
        return FieldOrder(tuple(names), rest, shared[0], tuple(rules))

    def _searched(self) -> list[str]:
        """The fields that are put in order: of more than MAX_FIELDS those that are longest in all."""
        names = list(self._names or sorted(self._column_of))
        if len(names) <= MAX_FIELDS:
            return names
        total = np.bincount(self._columns, self._lengths, len(self._column_of))
        longest = sorted(names, key=lambda name: (-total[self._column_of[name]], name))[:MAX_FIELDS]
        return [name for name in names if name in set(longest)]

    def _dense(self, names: Sequence[str]) -> tuple[_Hashes, Cells]:
        """Of each row kept and each of these fields the hash and the length of its cell."""
        place_of = np.full(len(self._column_of), -1, np.int64)
        place_of[[self._column_of[name] for name in names]] = np.arange(len(names))
        rows = np.repeat(np.arange(len(self._keys)), np.frombuffer(self._sizes, np.uint32))
        columns = place_of[np.frombuffer(self._columns, np.uint32)]
        own = columns >= 0
        hashes = np.full((len(self._keys), len(names)), ABSENT, np.uint64)
        lengths = np.zeros((len(self._keys), len(names)), np.int32)
        hashes[rows[own], columns[own]] = np.frombuffer(self._hashes, np.uint64)[own]
        lengths[rows[own], columns[own]] = np.frombuffer(self._lengths, np.uint32)[own]
        return hashes, lengths


def _line_bytes(name: str, text: str) -> int:
    return min(len(name) + len(text.encode("utf-8", "replace")) + 3, 1 << 20)


def _coded(hashes: _Hashes) -> tuple[Cells, list[_Hashes]]:
    """Each column's hashes as numbers from 0 on, in the hashes' order, and the hashes by them."""
    codes = np.empty(hashes.shape, np.int32)
    values = []
    for field in range(hashes.shape[1]):
        distinct, codes[:, field] = np.unique(hashes[:, field], return_inverse=True)
        values.append(distinct)
    return codes, values


def _distinct(codes: Cells) -> NDArray[np.int64]:
    """One row of each kind, in the order of their codes."""
    order: NDArray[np.int64] = np.lexsort(codes.T[::-1])
    is_new = np.r_[True, (codes[order[1:]] != codes[order[:-1]]).any(axis=1)]
    distinct: NDArray[np.int64] = order[is_new]
    return distinct


def _worth(codes: Cells, lengths: Cells) -> list[int]:
    """What each column would save if it were the first one."""
    total = []
    for field in range(codes.shape[1]):
        first = np.unique(codes[:, field], return_index=True)[1]
        total.append(int(lengths[:, field].sum(dtype=np.int64)) - int(lengths[first, field].sum(dtype=np.int64)))
    return total
