"""The trie of the prompts, over flat token ids: its depth-first order, what neighbours share, and what is the same.

Prompts come in CSR form: `token_ids`, int32, all prompts one behind the other, and `offsets`, int64, where each begins and
the last one ends. Compiled by numba and free of the interpreter's lock, so that two threads sort two sources.
"""

import numpy as np
from numpy.typing import NDArray

from tasks.compiled import finished, kept

_FEW = 8
_LOW = np.uint64(0xFFFFFFFF)
_WORD = np.uint64(32)

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Hashes = NDArray[np.uint64]


@kept
def _is_less(token_ids: Ints, offsets: Longs, x: int, y: int, depth: int) -> bool:
    """Whether prompt x stands before y, which begin with the same `depth` tokens; among equals the smaller row does."""
    a, a_end = offsets[x] + depth, offsets[x + 1]
    b, b_end = offsets[y] + depth, offsets[y + 1]
    while a < a_end and b < b_end:
        if token_ids[a] != token_ids[b]:
            return bool(token_ids[a] < token_ids[b])
        a += 1
        b += 1
    if a < a_end or b < b_end:
        return bool(a >= a_end)
    return x < y


@kept
def _sort_few(order: Longs, token_ids: Ints, offsets: Longs, low: int, high: int, depth: int) -> None:
    for i in range(low + 1, high):
        row, j = order[i], i
        while j > low and _is_less(token_ids, offsets, row, order[j - 1], depth):
            order[j] = order[j - 1]
            j -= 1
        order[j] = row


@kept
def _two_tokens(token_ids: Ints, offsets: Longs, row: int, depth: int) -> np.uint64:
    """The prompt's next two tokens as one number that sorts as they do; an end is 0, so that it stands first."""
    at, end = offsets[row] + depth, offsets[row + 1]
    word = np.uint64(0)
    if at < end:
        word = np.uint64(token_ids[at] + 1) << _WORD
    if at + 1 < end:
        word |= np.uint64(token_ids[at + 1] + 1)
    return word


@kept
def trie_order(token_ids: Ints, offsets: Longs) -> Longs:
    """The rows in the order of a depth-first walk of the trie, which is that of their token ids; equals as they come.

    A radix sort from the front, two tokens a round: what is equal so far is sorted further, and few are compared at once.
    """
    order = np.arange(len(offsets) - 1)
    words = np.empty(len(order), np.uint64)
    work = [(0, len(order), 0)]
    while len(work) > 0:
        low, high, depth = work.pop()
        if high - low <= _FEW:
            _sort_few(order, token_ids, offsets, low, high, depth)
            continue
        first = _two_tokens(token_ids, offsets, order[low], depth)
        is_one = True
        for i in range(low, high):
            words[i] = _two_tokens(token_ids, offsets, order[i], depth)
            is_one &= words[i] == first
        if not is_one:
            ranks = np.argsort(words[low:high])
            order[low:high] = order[low:high][ranks]
            words[low:high] = words[low:high][ranks]
        begin = low
        for i in range(low + 1, high + 1):
            if i < high and words[i] == words[begin]:
                continue
            if words[begin] & _LOW == 0:  # they end here, and are equal
                order[begin:i] = np.sort(order[begin:i])
            elif i - begin > 1:
                work.append((begin, i, depth + 2))
            begin = i
    return order


@kept
def gather(token_ids: Ints, offsets: Longs, order: Longs) -> tuple[Ints, Longs]:
    """The prompts of these rows, in their order, in CSR form."""
    taken = np.zeros(len(order) + 1, np.int64)
    for i, row in enumerate(order):
        taken[i + 1] = taken[i] + offsets[row + 1] - offsets[row]
    out = np.empty(taken[-1], np.int32)
    for i, row in enumerate(order):
        out[taken[i] : taken[i + 1]] = token_ids[offsets[row] : offsets[row + 1]]
    return out, taken


@kept
def shared_with_previous(token_ids: Ints, offsets: Longs, before: Ints) -> Ints:
    """How many tokens each prompt has in common with the one before it, from the front; `before` stands before the first.

    In trie order this is the most that it has in common with any earlier one.
    """
    shared = np.zeros(len(offsets) - 1, np.int32)
    for row in range(len(shared)):
        prompt = token_ids[offsets[row] : offsets[row + 1]]
        previous = token_ids[offsets[row - 1] : offsets[row]] if row else before
        most, length = min(len(prompt), len(previous)), 0
        while length < most and prompt[length] == previous[length]:
            length += 1
        shared[row] = length
    return shared


@kept
def ranges_of(token_ids: Ints, offsets: Longs, splitters: Ints, splitter_offsets: Longs) -> Longs:
    """Which of the ranges between sorted splitters each prompt is in: how many of them stand before it."""
    both = np.concatenate((token_ids, splitters))
    rows, number = len(offsets) - 1, len(splitter_offsets) - 1
    ends = np.concatenate((offsets, splitter_offsets[1:] + offsets[-1]))
    found = np.empty(rows, np.int64)
    for row in range(rows):
        low, high = 0, number
        while low < high:
            middle = (low + high) // 2
            if _is_less(both, ends, row, rows + middle, 0):
                high = middle
            else:
                low = middle + 1
        found[row] = low
    return found


@kept
def block_hashes(token_ids: Ints, offsets: Longs, shared: Ints, block_size: int) -> tuple[Hashes, Hashes]:
    """Hashes of full blocks, each with all that stands before it: of those that end before their prompt does, but for those
    within the first `shared` tokens; and of those that end with it. The first ones row by row, from front to back."""
    mix, spread = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)
    number = 0
    for row in range(len(shared)):
        length = offsets[row + 1] - offsets[row]
        number += max(0, (length - 1) // block_size - shared[row] // block_size)
    blocks = np.empty(number, np.uint64)
    ends = np.empty(len(shared), np.uint64)
    at = last = 0
    for row in range(len(shared)):
        length, word = offsets[row + 1] - offsets[row], mix
        for block in range(length // block_size):
            begin = offsets[row] + block * block_size
            for place in range(begin, begin + block_size):
                word = (word ^ np.uint64(token_ids[place]) * spread) * mix
                word = word << np.uint64(31) | word >> np.uint64(33)
            word = finished(word)
            if (block + 1) * block_size == length:
                ends[last] = word
                last += 1
            elif block >= shared[row] // block_size:
                blocks[at] = word
                at += 1
    return blocks[:at], ends[:last]
