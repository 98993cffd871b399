"""Rows of a table to groups with one value in one field, and what their fields' order saves then. Compiled.

A table has a row of value codes and a row of lengths for each distinct row of cells; `rows` are some of its rows in an order
that is changed here. A set of fields is a mask of bits, `open_` are those that no test has used yet. `desk` is room to work
on: for counts of codes, for each row's group, for rows, and for rows that are tried out.
"""

import numpy as np

from tasks.compiled import Cells, Floats, Ints, compiled

AVERAGE, TOTAL, SQUARE, ROOT = range(4)
"""What a group of k rows with one value is worth when groups are taken greedily: what is saved a row of it, in all, in all
with squared lengths (as in arXiv 2403.05821), or between the first two. Which is best depends on the table."""

NO_COLUMN = -1
_PREFERRED = 1e15


@compiled
def constant(codes: Cells, rows: Ints, lo: int, hi: int, open_: int) -> int:
    """The open fields that have one value in all of rows[lo:hi]."""
    found = open_
    first = rows[lo]
    for field in range(codes.shape[1]):
        if (found >> field) & 1:
            value = codes[first, field]
            for i in range(lo + 1, hi):
                if codes[rows[i], field] != value:
                    found &= ~(1 << field)
                    break
    return found


@compiled
def length(lengths: Cells, row: int, fields: int) -> int:
    """Of these fields of a row."""
    total = 0
    for field in range(lengths.shape[1]):
        if (fields >> field) & 1:
            total += lengths[row, field]
    return total


@compiled
def _worth(
    codes: Cells,
    lengths: Cells,
    rows: Ints,
    label: Ints,
    members: Ints,
    lo: int,
    hi: int,
    field: int,
    open_: int,
    policy: int,
) -> tuple[float, int]:
    """What the group of those of members[lo:hi] that have no label yet is worth, and their number; they share this field."""
    alike = open_
    first = -1
    num = 0
    for at in range(lo, hi):
        i = members[at]
        if label[i] >= 0:
            continue
        num += 1
        row = rows[i]
        if first < 0:
            first = row
        elif alike != 1 << field:
            for other in range(codes.shape[1]):
                if (alike >> other) & 1 and codes[row, other] != codes[first, other]:
                    alike &= ~(1 << other)
    if num < 2:
        return 0.0, num
    total = 0.0
    for other in range(codes.shape[1]):
        if (alike >> other) & 1:
            size = float(lengths[first, other])
            total += size * size if policy == SQUARE else size
    total *= num - 1
    if policy == AVERAGE:
        total /= num
    elif policy == ROOT:
        total /= num**0.5
    return total, num


@compiled
def _items(codes: Cells, rows: Ints, lo: int, hi: int, open_: int, count: Ints) -> tuple[Ints, Ints, Ints, Ints, int]:
    """Each value that several of rows[lo:hi] have: its field, where its rows begin and end in a list of places, the list."""
    size = (hi - lo) * codes.shape[1]
    fields, begins, ends = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    members, seen = np.empty(size, np.int64), np.empty(hi - lo, np.int64)
    num_items = at = 0
    for field in range(codes.shape[1]):
        if not (open_ >> field) & 1:
            continue
        num_seen = 0
        for i in range(lo, hi):
            value = codes[rows[i], field]
            if count[value] == 0:
                seen[num_seen] = value
                num_seen += 1
            count[value] += 1
        for i in range(num_seen):
            value = seen[i]
            num = count[value]
            count[value] = 0
            if num > 1:
                fields[num_items], begins[num_items], ends[num_items] = field, at, at
                num_items += 1
                count[value] = num_items
                at += num
        for i in range(lo, hi):
            item = count[codes[rows[i], field]] - 1
            if item >= 0:
                members[ends[item]] = i
                ends[item] += 1
        for i in range(num_seen):
            count[seen[i]] = 0
    return fields, begins, ends, members, num_items


@compiled
def _is_before(one: int, other: int, worths: Floats) -> bool:
    return worths[one] > worths[other] or (worths[one] == worths[other] and one < other)


@compiled
def _sift_up(heap: Ints, place: int, item: int, worths: Floats) -> None:
    """Put an item into the heap of the items before this place; the one that is worth most is first."""
    while place > 0 and _is_before(item, heap[(place - 1) // 2], worths):
        heap[place] = heap[(place - 1) // 2]
        place = (place - 1) // 2
    heap[place] = item


@compiled
def _sift_down(heap: Ints, size: int, item: int, worths: Floats) -> None:
    """Put an item into the heap of this size in place of the first one."""
    place = 0
    while 2 * place + 1 < size:
        below = 2 * place + 1
        if below + 1 < size and _is_before(heap[below + 1], heap[below], worths):
            below += 1
        if not _is_before(heap[below], item, worths):
            break
        heap[place] = heap[below]
        place = below
    heap[place] = item


@compiled
def divide(
    codes: Cells, lengths: Cells, rows: Ints, lo: int, hi: int, open_: int, policy: int, column: int, desk: Ints
) -> tuple[Ints, Ints, int]:
    """Take the group that is worth most, again and again; those of one column first if there is one.

    Afterwards each row's label is its group, or -1. Field and value of each group, and their number.
    """
    count, label = desk[0], desk[1]
    fields, begins, ends, members, num_items = _items(codes, rows, lo, hi, open_, count)
    for i in range(lo, hi):
        label[i] = -1
    heap, worths, known = np.empty(num_items, np.int64), np.empty(num_items), np.empty(num_items, np.int64)
    size = 0
    for item in range(num_items):
        worths[item], known[item] = _worth(
            codes, lengths, rows, label, members, begins[item], ends[item], fields[item], open_, policy
        )
        worths[item] += _PREFERRED if fields[item] == column else 0.0
        if worths[item] > 0:
            _sift_up(heap, size, item, worths)
            size += 1
    chosen, values, num_groups = np.empty((hi - lo) // 2, np.int64), np.empty((hi - lo) // 2, np.int64), 0
    while size > 0:
        item = heap[0]
        size -= 1
        _sift_down(heap, size, heap[size], worths)
        num = 0
        for at in range(begins[item], ends[item]):
            num += label[members[at]] < 0
        if num < 2:
            continue
        if num < known[item]:
            worths[item], known[item] = _worth(
                codes, lengths, rows, label, members, begins[item], ends[item], fields[item], open_, policy
            )
            worths[item] += _PREFERRED if fields[item] == column else 0.0
            _sift_up(heap, size, item, worths)
            size += 1
            continue
        chosen[num_groups], values[num_groups] = fields[item], codes[rows[members[begins[item]]], fields[item]]
        for at in range(begins[item], ends[item]):
            if label[members[at]] < 0:
                label[members[at]] = num_groups
        num_groups += 1
    return chosen, values, num_groups


@compiled
def regroup(rows: Ints, lo: int, hi: int, label: Ints, num_groups: int, room: Ints) -> Ints:
    """Put each group's rows together, in order, those without one last; where each of the groups ends."""
    at = np.zeros(num_groups + 2, np.int64)
    for i in range(lo, hi):
        at[(label[i] if label[i] >= 0 else num_groups) + 1] += 1
    at[0] = lo
    for group in range(num_groups + 1):
        at[group + 1] += at[group]
    for i in range(lo, hi):
        group = label[i] if label[i] >= 0 else num_groups
        room[at[group]] = rows[i]
        at[group] += 1
    for i in range(lo, hi):
        rows[i] = room[i]
    return at


@compiled
def saved(codes: Cells, lengths: Cells, rows: Ints, lo: int, hi: int, open_: int, policy: int, desk: Ints) -> int:
    """What one policy, from here to the end, saves of rows[lo:hi], which it puts into another order."""
    begins, ends, opens = np.empty(hi - lo + 1, np.int64), np.empty(hi - lo + 1, np.int64), np.empty(hi - lo + 1, np.int64)
    begins[0], ends[0], opens[0] = lo, hi, open_
    label, room, no_column = desk[1], desk[2], int(np.int64(NO_COLUMN))
    depth, total = 1, 0
    while depth > 0:
        depth -= 1
        begin, end, still = begins[depth], ends[depth], opens[depth]
        if end - begin < 2:
            continue
        alike = constant(codes, rows, begin, end, still)
        total += (end - begin - 1) * length(lengths, rows[begin], alike)
        still &= ~alike
        if still == 0 or end - begin == 2:
            continue
        _, _, num_groups = divide(codes, lengths, rows, begin, end, still, policy, no_column, desk)
        group_ends = regroup(rows, begin, end, label, num_groups, room)
        for group in range(num_groups):
            begins[depth], ends[depth], opens[depth] = begin, group_ends[group], still
            begin = group_ends[group]
            depth += 1
    return total
