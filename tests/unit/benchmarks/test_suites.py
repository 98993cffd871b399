"""The suites that benchmarks run on are what their names say, and the same each time; the orders lose nothing."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from tasks.engine.scheduling import EngineShape
from tasks.engine.tokenizer import ByteTokenizer

REPOSITORY = Path(__file__).parent.parent.parent.parent
NAMES = ("S1", "S2", "S3", "S4", "S5")


class Bench(NamedTuple):
    """The modules under test, which lie beside the packages and not in them."""

    suites: ModuleType
    orders: ModuleType
    replay: ModuleType


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(REPOSITORY))
        from benchmarks import orders, replay, suites

        yield Bench(suites, orders, replay)


@pytest.fixture(scope="module")
def make(bench: Bench) -> Callable[..., Any]:
    """A suite, tokenised by the byte, so that no model is needed."""
    return lambda name, **given: bench.suites.make_suite(name, ByteTokenizer(), **given)


@pytest.mark.parametrize("name", NAMES)
def test_a_suite_is_the_same_every_time(make: Any, name: str) -> None:
    """Token for token, and another one with another seed; lengths are within what the planner may see."""
    suite = make(name, scale=0.3)
    assert suite == make(name, scale=0.3)
    assert suite.items != make(name, scale=0.3, seed=1).items
    assert all(1 <= item.true_tokens <= item.max_tokens for item in suite.items)
    assert len({item.request_id for item in suite.items}) == len(suite.items)


def test_suites_are_what_they_are_for(make: Any) -> None:
    """S1 shares most, S2 little as its fields lie, S3 nothing; a fifth of S5 are copies; S4's lengths are spread widely."""
    suites = {name: make(name) for name in NAMES}
    assert 0.75 <= suites["S1"].shareable <= 0.95
    assert len({item.source for item in suites["S1"].items}) >= 6
    assert suites["S2"].shareable < 0.4
    assert suites["S3"].shareable == 0
    prompts = [item.prompt_token_ids for item in suites["S5"].items]
    assert len(prompts) - len(set(prompts)) == len(prompts) // 5
    lengths = sorted(item.true_tokens for item in suites["S4"].items)
    assert lengths[-1] >= 10 * lengths[len(lengths) // 2]
    assert {item.max_tokens for item in suites["S4"].items} == {160}


def test_history_tells_the_distribution_only(make: Any) -> None:
    """An earlier night of S4 has the same sources and kinds of question, other requests, and lengths of the same order."""
    suite = make("S4")
    assert {item.source for item in suite.history} == {item.source for item in suite.items}
    assert not {item.text for item in suite.history} & {item.text for item in suite.items}
    assert {item.text[:8] for item in suite.history} == {item.text[:8] for item in suite.items}


def test_moved_fields_share_more(bench: Bench, make: Any) -> None:
    """With what repeats in front, rows share more; ids, order of arrival and lengths stay."""
    suite = make("S2")
    moved = bench.suites.reordered(suite, lambda item: tuple(reversed(bench.suites.TABLE_FIELDS)), ByteTokenizer())
    assert moved.shareable > suite.shareable
    assert [item.request_id for item in moved.items] == [item.request_id for item in suite.items]
    assert [item.true_tokens for item in moved.items] == [item.true_tokens for item in suite.items]
    assert dict(moved.items[0].row) == dict(suite.items[0].row)


@pytest.mark.parametrize("name", NAMES)
def test_the_optimum_is_what_a_boundless_cache_gives(bench: Bench, make: Any, name: str) -> None:
    """Sorted, with room for everything, a run hits exactly the optimum; in its own order and cache, no more than that."""
    suite = make(name, scale=0.3)
    optimum = bench.suites.cacheable_tokens(item.prompt_token_ids for item in suite.items)
    for items, num_blocks in ((bench.orders.full_sort(suite), 100_000), (suite.items, suite.num_blocks)):
        shape = EngineShape(bench.suites.BLOCK_SIZE, num_blocks, 8, 512)
        found = bench.replay.replay_simulated(shape, [item.sequence() for item in items])
        assert found.hit == optimum if num_blocks == 100_000 else found.hit <= optimum


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("buffer", [7, 5000])
def test_orders_lose_nothing(bench: Bench, make: Any, name: str, buffer: int) -> None:
    """Each order has each request once."""
    suite = make(name, scale=0.3)
    for order in (bench.orders.arrival, bench.orders.full_sort, lambda s: bench.orders.buckets(s, buffer=buffer, portion=3)):
        bench.orders.checked(suite, order(suite))
    with pytest.raises(ValueError, match="loses or doubles"):
        bench.orders.checked(suite, suite.items[1:])


def test_buckets_go_by_size(bench: Bench, make: Any) -> None:
    """What shares a third goes together, the largest bucket first; an overflowing buffer sends what it has by then."""
    suite = make("S3", scale=0.2)
    first, second, third = ((letter,) * 6 for letter in (1, 2, 3))
    prompts = [first, second, third, (*second, 9), (*third, 9), (*third, 8), (*first, 7), first, first, first]
    suite = replace(
        suite,
        items=tuple(replace(suite.items[0], request_id=str(i), prompt_token_ids=prompt) for i, prompt in enumerate(prompts)),
    )
    at_the_end, on_the_way = [1] * 5 + [3] * 3 + [2] * 2, [3] * 3 + [1] * 4 + [2] * 2 + [1]
    for given, expected in (({}, at_the_end), ({"buffer": 5, "portion": 1}, on_the_way)):
        assert [item.prompt_token_ids[0] for item in bench.orders.buckets(suite, **given)] == expected
