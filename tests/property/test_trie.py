"""The compiled walk of the trie against plain Python."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tasks.compiled import content_hashes
from tasks.group.trie import gather, ranges_of, shared_with_previous, trie_order

Prompt = tuple[int, ...]
PROMPTS = st.lists(st.lists(st.integers(0, 2), max_size=9).map(tuple), max_size=40)
DEEP = st.lists(st.lists(st.integers(0, 1), max_size=4).map(lambda tail: (7,) * 33 + tuple(tail)), max_size=40)


def flat(prompts: Sequence[Prompt]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    offsets = np.cumsum([0, *map(len, prompts)]).astype(np.int64)
    return np.array([token for prompt in prompts for token in prompt], np.int32), offsets


def common(one: Prompt, other: Prompt) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@settings(deadline=None)
@given(st.one_of(PROMPTS, DEEP))
def test_the_order_is_that_of_the_token_ids(prompts: list[Prompt]) -> None:
    """Depth first through the trie, equal prompts as they come; the tokens follow, and neighbours share what they share."""
    token_ids, offsets = flat(prompts)
    order = trie_order(token_ids, offsets)
    assert order.tolist() == sorted(range(len(prompts)), key=lambda row: (prompts[row], row))
    ordered = [prompts[row] for row in order]
    taken, ends = gather(token_ids, offsets, order)
    assert (taken.tolist(), ends.tolist()) == tuple(array.tolist() for array in flat(ordered))
    before = np.array([7, 7], np.int32)
    expected = [common(*pair) for pair in zip([(7, 7), *ordered[:-1]], ordered, strict=True)] if ordered else []
    assert shared_with_previous(taken, ends, before).tolist() == expected


@settings(deadline=None)
@given(PROMPTS, PROMPTS)
def test_ranges_follow_the_order(prompts: list[Prompt], splitters: list[Prompt]) -> None:
    """A prompt is in the range behind all splitters that stand before it; equal prompts are in one range."""
    found = ranges_of(*flat(prompts), *flat(sorted(splitters)))
    assert found.tolist() == [sum(splitter < prompt for splitter in splitters) for prompt in prompts]


@settings(deadline=None)
@given(PROMPTS)
def test_hashes_are_equal_where_prompts_are(prompts: list[Prompt]) -> None:
    """Prompts of few tokens, zeros among them, have as many hashes in each half as there are different ones; a salt tells
    equal ones apart."""
    salts = np.zeros((len(prompts), 2), np.uint64)
    hashes = content_hashes(*flat(prompts), salts)
    assert len({*hashes[:, 0].tolist()}) == len({*hashes[:, 1].tolist()}) == len({*prompts})
    assert not (content_hashes(*flat(prompts), salts + np.uint64(1)) == hashes).any()
