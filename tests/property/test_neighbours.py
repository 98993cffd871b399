"""What sequences in flight share, against the trie of their prompts."""

from hypothesis import given
from hypothesis import strategies as st

from tasks.generate.neighbours import InFlight, Neighbours

BLOCK = 2
PROMPTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9).map(tuple), min_size=1, max_size=12)


def distinct(prompts: list[tuple[int, ...]]) -> int:
    """Full blocks of all prompts' trie: no engine holds fewer."""
    return len({prompt[:end] for prompt in prompts for end in range(BLOCK, len(prompt) + 1, BLOCK)})


def counted(flight: Neighbours) -> int:
    return sum(one.num_prompt // BLOCK - one.shared for one in flight.by_key.values())


def play(prompts: list[tuple[int, ...]], leaving: list[bool]) -> tuple[Neighbours, list[tuple[int, ...]]]:
    """All join in turn, and before each the one that joined longest ago leaves where that is said."""
    flight, left = Neighbours(BLOCK), dict[int, tuple[int, ...]]()
    for key, prompt in enumerate(prompts):
        if left and leaving[key % len(leaving)]:
            gone = list(left)[key % len(left)]
            flight.leave(flight.by_key[gone])
            del left[gone]
        flight.join(InFlight(key, len(prompt), 0, 9, 0, 1.0, 0, shared=flight.shared_with_last(prompt)), prompt)
        left[key] = prompt
    return flight, list(left.values())


@given(PROMPTS, st.lists(st.booleans(), min_size=1, max_size=12))
def test_no_order_understates_what_is_held(prompts: list[tuple[int, ...]], leaving: list[bool]) -> None:
    """Whatever joins and leaves, no fewer blocks are counted than the trie of what is in flight has."""
    flight, left = play(prompts, leaving)
    assert counted(flight) >= distinct(left)


@given(PROMPTS, st.lists(st.booleans(), min_size=1, max_size=12))
def test_in_the_order_of_the_trie_the_count_is_exact(prompts: list[tuple[int, ...]], leaving: list[bool]) -> None:
    """In a depth-first order, each block of what is in flight is counted once."""
    ends_within_a_block = [prompt if len(prompt) % BLOCK else (*prompt, 0) for prompt in prompts]
    flight, left = play(sorted(ends_within_a_block), leaving)
    assert counted(flight) == distinct(left)
