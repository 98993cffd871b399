"""The work ahead: in the plan's order, what is much longer first at its end."""

from collections.abc import Callable, Iterator

from tasks.core.plan import PlannedSequence
from tasks.generate.ahead import Ahead
from tasks.generate.resume import Work


def test_the_order_is_kept_until_the_end_is_in_sight(make_sequence: Callable[..., PlannedSequence]) -> None:
    """All items come as they were, but of the last few what is much longer than the others goes first, by its length."""
    lengths = [3, 9, 1, 7, 2, 5, 9, 3, 4, 8]
    work = [Work(make_sequence(f"{i}", max_tokens=length)) for i, length in enumerate(lengths)]
    ahead, taken = Ahead(iter(work), lambda one: one.sequence.sampling.max_tokens, num_at_hand=7), []
    while (one := ahead.peek()) is not None:
        assert ahead.peek() is one
        ahead.pop()
        taken.append(int(one.sequence.request_id))
    assert taken == [0, 1, 2, 3, 6, 9, 4, 5, 7, 8]


def test_no_more_is_read_than_is_at_hand(make_sequence: Callable[..., PlannedSequence]) -> None:
    """A long plan is not drawn into memory."""
    drawn = []

    def work() -> Iterator[Work]:
        for i in range(100):
            drawn.append(i)
            yield Work(make_sequence(str(i)))

    ahead = Ahead(work(), lambda one: 0.0, num_at_hand=4)
    ahead.peek()
    assert len(drawn) == 4
