"""Sources that are larger than what is sorted at once."""

from typing import Any


def test_several_large_sources(ask: Any, grouped: Any) -> None:
    """Sources in many ranges each, one behind the other, give what sorting them whole gives."""
    asked = [
        ask(f"{i}", tuple((i * 7919 + k) % 23 for k in range(5 + i % 9)), source=source)
        for source in ("a", "b", "c")
        for i in range(400)
    ]
    whole, ranged = grouped(asked), grouped(asked, max_tokens_at_once=300)
    assert ranged.ids == whole.ids
    assert (ranged.table.shared_tokens == whole.table.shared_tokens).all()
    assert ranged.groups == whole.groups


def test_equal_prompts_are_one_range(ask: Any, grouped: Any) -> None:
    """Copies stay together however small a range may be, and stand by their ids."""
    asked = [ask(f"{i:03}", (1, 2, 3), temperature=1.0) for i in range(100)]
    made = grouped(asked[::-1], max_tokens_at_once=10)
    assert made.ids == [one.request_id for one in asked]
    assert made.table.shared_tokens.tolist() == [0] + [3] * 99
