"""Which prefixes spare the most."""

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tasks.plan.sharing import Prefix, top_prefixes


def test_the_prefixes_that_spare_the_most() -> None:
    """A system prompt of 100 tokens over six rows, and within it two documents of 50 and 20 tokens more."""
    shared = np.array([0, 150, 150, 100, 120, 100], np.int32)
    assert top_prefixes(shared, 9, 1) == [Prefix(0, 100, 6), Prefix(0, 150, 3), Prefix(3, 120, 2)]
    assert top_prefixes(shared, 1, 1) == [Prefix(0, 100, 6)]
    assert top_prefixes(shared, 9, 21) == [Prefix(0, 100, 6), Prefix(0, 150, 3)]
    assert top_prefixes(np.zeros(4, np.int32), 3, 1) == []


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=6).map(tuple), min_size=1, max_size=20).map(sorted))
def test_the_prefixes_are_the_inner_nodes(prompts: Any) -> None:
    """Each prefix is one that so many prompts begin with and no further; none is left out."""

    def common(one: Any, other: Any) -> int:
        return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))

    shared = np.array([0, *map(common, prompts[:-1], prompts[1:])], np.int32)
    found = top_prefixes(shared, 1000, 1)
    for prefix in found:
        begins = prompts[prefix.row][: prefix.num_tokens]
        of = [prompt for prompt in prompts if prompt[: prefix.num_tokens] == begins]
        assert len(of) == prefix.num_requests > 1
        assert min(common(one, other) for one, other in pairwise(of)) == prefix.num_tokens
    assert len({(prefix.row, prefix.num_tokens) for prefix in found}) == len(found)
    assert {prefix.num_tokens for prefix in found} == {length for length in shared.tolist() if length}
