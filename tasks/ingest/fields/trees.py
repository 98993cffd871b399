"""A few rows to the groups that save most, found by whole rows and not by their fields one at a time. Compiled.

What rows save, put behind each other with their fields in the best order, is a sum over a binary tree of them: for each
inner node the length of the fields that are constant below it. So the best tree is the best order.
"""

import numpy as np

from tasks.compiled import Cells, Ints, compiled
from tasks.ingest.fields.grouping import length


@compiled
def _lowest(bits: int) -> int:
    place = 0
    while not (bits >> place) & 1:
        place += 1
    return place


@compiled
def exact(codes: Cells, lengths: Cells, rows: Ints, lo: int, hi: int, open_: int, label: Ints) -> tuple[int, int]:
    """The most that rows[lo:hi] can save, by trying all binary trees: 3 ** (hi - lo) steps. `label` gets the groups of rows
    below the best tree's root that have something in common; their number."""
    everything = (1 << (hi - lo)) - 1
    alike = np.empty(everything + 1, np.int64)
    best = np.zeros(everything + 1, np.int64)
    half = np.zeros(everything + 1, np.int64)
    for some in range(1, everything + 1):
        low = some & -some
        rest = some ^ low
        if rest == 0:
            alike[some] = open_
            continue
        one, other = rows[lo + _lowest(some)], rows[lo + _lowest(rest)]
        same = alike[rest]
        for field in range(codes.shape[1]):
            if codes[one, field] != codes[other, field]:
                same &= ~(1 << field)
        alike[some] = same
        most = -1
        part = rest
        while part > 0:
            value = best[part] + best[some ^ part]
            if value > most:
                most = value
                half[some] = part
            part = (part - 1) & rest
        best[some] = most + length(lengths, one, same)
    for i in range(lo, hi):
        label[i] = -1
    waiting, depth, num_groups = np.empty(hi - lo + 1, np.int64), 1, 0
    waiting[0] = everything
    while depth > 0:
        depth -= 1
        some = waiting[depth]
        if some & (some - 1) == 0:
            continue
        if alike[some] != 0:
            for i in range(hi - lo):
                if (some >> i) & 1:
                    label[lo + i] = num_groups
            num_groups += 1
        else:
            waiting[depth], waiting[depth + 1] = half[some], some ^ half[some]
            depth += 2
    return best[everything], num_groups


@compiled
def _nearest(
    codes: Cells, lengths: Cells, heads: Ints, alike: Ints, weight: Ints, num: int, one: int
) -> tuple[int, int, int]:
    """The earlier cluster that has most in common with this one and, of those, loses least by it; how much that is."""
    place, most, least = -1, -1, 0
    for other in range(num):
        if other == one or weight[other] < 0:
            continue
        common = 0
        both = alike[one] & alike[other]
        for field in range(codes.shape[1]):
            if (both >> field) & 1 and codes[heads[one], field] == codes[heads[other], field]:
                common += lengths[heads[one], field]
        loss = weight[one] + weight[other]
        if common > most or (common == most and loss < least):
            place, most, least = other, common, loss
    return place, most, least


@compiled
def clustered(codes: Cells, lengths: Cells, rows: Ints, lo: int, hi: int, open_: int, label: Ints) -> tuple[int, int]:
    """As `exact`, but the tree is made by joining, again and again, the two clusters that have most in common."""
    num = hi - lo
    heads, alike, weight = np.empty(num, np.int64), np.empty(num, np.int64), np.empty(num, np.int64)
    near, most, least = np.empty(num, np.int64), np.empty(num, np.int64), np.empty(num, np.int64)
    group, group_of = np.empty(num, np.int64), np.empty(num, np.int64)
    for one in range(num):
        heads[one], alike[one], group[one], group_of[one] = rows[lo + one], open_, -1, one
        weight[one] = length(lengths, heads[one], open_)
    for one in range(num):
        near[one], most[one], least[one] = _nearest(codes, lengths, heads, alike, weight, num, one)
    total = 0
    for _ in range(num - 1):
        one = -1
        for i in range(num):
            if weight[i] >= 0 and (one < 0 or most[i] > most[one] or (most[i] == most[one] and least[i] < least[one])):
                one = i
        other = near[one]
        total += most[one]
        for field in range(codes.shape[1]):
            if codes[heads[one], field] != codes[heads[other], field]:
                alike[one] &= ~(1 << field)
        alike[one] &= alike[other]
        if alike[one] != 0:
            for i in range(num):
                if group_of[i] == other:
                    group_of[i] = one
            group[one], group[other] = 1, -1
        weight[one], weight[other] = length(lengths, heads[one], alike[one]), -1
        for i in range(num):
            if weight[i] >= 0 and (i == one or near[i] == one or near[i] == other):
                near[i], most[i], least[i] = _nearest(codes, lengths, heads, alike, weight, num, i)
    num_groups = 0
    for one in range(num):
        label[lo + one] = -1
    for one in range(num):
        if group[one] > 0:
            size = 0
            for i in range(num):
                if group_of[i] == one:
                    label[lo + i] = num_groups
                    size += 1
            num_groups += size > 0
    return total, num_groups


@compiled
def tested(
    codes: Cells, rows: Ints, lengths: Cells, lo: int, hi: int, open_: int, label: Ints, num_groups: int
) -> tuple[Ints, Ints, int]:
    """Groups that were found by whole rows, as groups that one value of one field tells, in the order of the tests; those
    that take the fewest rows of others first. `label` is made anew. Field and value of each, and their number."""
    alike, firsts = np.full(num_groups, open_, np.int64), np.full(num_groups, -1, np.int64)
    for i in range(lo, hi):
        group = label[i]
        if group >= 0:
            firsts[group] = rows[i] if firsts[group] < 0 else firsts[group]
            for field in range(codes.shape[1]):
                if codes[rows[i], field] != codes[firsts[group], field]:
                    alike[group] &= ~(1 << field)
    fields, values, num_kept = np.empty(num_groups, np.int64), np.empty(num_groups, np.int64), 0
    for _ in range(num_groups):
        chosen, on, fewest, longest = 0, 0, hi - lo + 1, 0
        for group in range(num_groups):
            worth = length(lengths, firsts[group], alike[group])
            for field in range(codes.shape[1]):
                if not (alike[group] >> field) & 1:
                    continue
                value, num = codes[firsts[group], field], 0
                for i in range(lo, hi):
                    num += label[i] > -2 and label[i] != group and codes[rows[i], field] == value
                if num < fewest or (num == fewest and worth > longest):
                    chosen, on, fewest, longest = group, field, num, worth
        value, num, alike[chosen] = codes[firsts[chosen], on], 0, 0
        for i in range(lo, hi):
            num += label[i] > -2 and codes[rows[i], on] == value
        if num > 1:
            for i in range(lo, hi):
                if label[i] > -2 and codes[rows[i], on] == value:
                    label[i] = -3 - num_kept
            fields[num_kept], values[num_kept] = on, value
            num_kept += 1
    for i in range(lo, hi):
        label[i] = -3 - label[i] if label[i] <= -3 else -1
    return fields, values, num_kept
