"""A table to its tree of tests: at each node several divisions are tried out to their end, the best is taken. Compiled."""

from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import numpy as np

from tasks.compiled import Cells, Ints, compiled, kept
from tasks.ingest.fields.grouping import AVERAGE, NO_COLUMN, ROOT, constant, divide, regroup, saved
from tasks.ingest.fields.trees import clustered, exact, tested

_EXACT, _CLUSTERED = -2, -1
_MAX_CLUSTERED = 64
MAX_FIELDS = 60
_EXACT_OF = ((14, 14), (12, 200), (10, 2000), (8, 1 << 62))
"""How many rows are divided by trying everything, and how large a table may be for it."""

_MAX_THOROUGH = 50_000
"""Cells of a table for which each column is tried as the first one, too."""


@compiled
def _tried(
    codes: Cells,
    lengths: Cells,
    rows: Ints,
    lo: int,
    hi: int,
    open_: int,
    num_groups: int,
    way: int,
    policy: int,
    desk: Ints,
) -> int:
    """What the groups that rows[lo:hi] are labelled with save in the end, the rest of the way done by `way`."""
    label, room, trial = desk[1], desk[2], desk[3]
    for i in range(lo, hi):
        trial[i] = rows[i]
    group_ends = regroup(trial, lo, hi, label, num_groups, room)
    total, begin = 0, lo
    for group in range(num_groups):
        end, most = group_ends[group], 0
        if way == _EXACT:
            most, _ = exact(codes, lengths, trial, begin, end, open_, label)
        else:
            if way == _CLUSTERED:
                most, _ = clustered(codes, lengths, trial, begin, end, open_, label)
            most = max(most, saved(codes, lengths, trial, begin, end, open_, policy, desk))
        total += most
        begin = end
    return total


@compiled
def choose(
    codes: Cells, lengths: Cells, rows: Ints, lo: int, hi: int, open_: int, max_exact: int, with_columns: bool, desk: Ints
) -> tuple[Ints, Ints, int]:
    """The division of rows[lo:hi] that saves most of several, each tried out to its end. The label of each row is its group
    afterwards. Field and value of each group, and their number."""
    label = desk[1]
    best, best_num, possible = -1, 0, -1
    best_fields, best_values = np.empty(0, np.int64), np.empty(0, np.int64)
    best_label, own = np.empty(hi - lo, np.int64), np.empty(hi - lo, np.int64)
    num_policies = ROOT + 1
    for way in range(_EXACT, num_policies + (codes.shape[1] if with_columns else 0)):
        policy, column = max(way, 0), int(np.int64(NO_COLUMN))
        if way >= num_policies:
            policy, column = AVERAGE, way - num_policies
            if not (open_ >> column) & 1:
                continue
        if way >= 0:
            fields, values, num_groups = divide(codes, lengths, rows, lo, hi, open_, policy, column, desk)
        else:
            if hi - lo > (max_exact if way == _EXACT else _MAX_CLUSTERED) or (way == _CLUSTERED and possible >= 0):
                continue
            if way == _EXACT:
                possible, num_groups = exact(codes, lengths, rows, lo, hi, open_, label)
            else:
                _, num_groups = clustered(codes, lengths, rows, lo, hi, open_, label)
            fields, values, num_groups = tested(codes, rows, lengths, lo, hi, open_, label, num_groups)
        for i in range(lo, hi):
            own[i - lo] = label[i]
        total = _tried(codes, lengths, rows, lo, hi, open_, num_groups, _EXACT if possible >= 0 else way, policy, desk)
        if total > best:
            best, best_num, best_fields, best_values = total, num_groups, fields, values
            best_label, own = own, best_label
        if best == possible:
            break
    for i in range(lo, hi):
        label[i] = best_label[i - lo]
    return best_fields, best_values, best_num


@compiled
def _solve(codes: Cells, lengths: Cells, max_exact: int, with_columns: bool) -> Ints:
    num_rows = len(codes)
    nodes = np.empty((num_rows + 1, 4), np.int64)
    rows, desk = np.arange(num_rows), np.zeros((4, max(num_rows, codes.max() + 1)), np.int64)
    begins, ends, opens = (
        np.empty(num_rows + 1, np.int64),
        np.empty(num_rows + 1, np.int64),
        np.empty(num_rows + 1, np.int64),
    )
    nodes[0, 0], nodes[0, 1], nodes[0, 2] = -1, -1, -1
    begins[0], ends[0], opens[0], num_nodes, node = 0, num_rows, (1 << codes.shape[1]) - 1, 1, 0
    while node < num_nodes:
        begin, end = begins[node], ends[node]
        alike = constant(codes, rows, begin, end, opens[node])
        nodes[node, 3] = alike
        still = opens[node] & ~alike
        if still != 0 and end - begin > 2:
            fields, values, num_groups = choose(codes, lengths, rows, begin, end, still, max_exact, with_columns, desk)
            group_ends = regroup(rows, begin, end, desk[1], num_groups, desk[2])
            for group in range(num_groups):
                begins[num_nodes], ends[num_nodes], opens[num_nodes] = begin, group_ends[group], still
                nodes[num_nodes, 0], nodes[num_nodes, 1], nodes[num_nodes, 2] = node, fields[group], values[group]
                begin = group_ends[group]
                num_nodes += 1
        node += 1
    return nodes[:num_nodes]


def _stamped(stamp: int) -> Callable[[Cells, Cells, int, bool], Ints]:
    """The search, with what is kept of its compiled code bound to the state of this room's files."""

    @kept
    def search(codes: Cells, lengths: Cells, max_exact: int, with_columns: bool) -> Ints:
        if stamp < 0:
            raise ValueError
        return _solve(codes, lengths, max_exact, with_columns)

    return search


_search = _stamped(crc32(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))))


def solve(codes: Cells, lengths: Cells) -> Ints:
    """The tree of tests for distinct rows in a canonical order, of at least one row and at most MAX_FIELDS fields.

    Each node is its parent, the field and the code by whose equality a row gets there, and the mask of the fields that all
    its rows share, that field among them; a row goes to the first child, in their order, whose test it passes. The root is
    first, with field -1. `lengths` are those of the cells; what is shared is counted in their unit.
    """
    num_rows = len(codes)
    max_exact = next(most for most, rows in _EXACT_OF if num_rows <= rows)
    return _search(codes, lengths, max_exact, codes.size <= _MAX_THOROUGH)
