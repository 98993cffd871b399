"""Grouping and planning lose nothing, double nothing, keep their budgets, and depend on nothing but the requests."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.core.config import PlanConfig
from tasks.core.plan import BUCKETS, PlannedSequence, bucket_of
from tasks.forecast.bound_of import bound_of
from tasks.group.near import Near
from tasks.plan.batches import batches, buckets
from tasks.plan.make import rows_of, sequences, write_plan
from tasks.storage.layout import PART, Run
from tasks.storage.parquet import read_rows
from tasks.storage.planned import read_groups
from tasks.storage.prompts import PromptFile
from tasks.worker import read_plan

PROMPTS = st.lists(st.integers(0, 2), min_size=1, max_size=7)
KINDS = st.fixed_dictionaries(
    {"max_tokens": st.sampled_from([4, 300, 3000]), "temperature": st.sampled_from([0.0, 0.7])},
    optional={"seed": st.sampled_from([1, -5])},
)
ROWS = st.lists(st.tuples(st.sampled_from("abc"), PROMPTS, KINDS, st.integers(1, 3)), min_size=1, max_size=30)
BUDGETS = st.builds(PlanConfig, max_batch_tokens=st.integers(1, 5000), max_batch_seqs=st.integers(1, 8))
pytestmark = pytest.mark.usefixtures("hasty")
thorough = settings(deadline=None, max_examples=30)


def requests(ask: Callable[..., Any], rows: list[Any]) -> list[Any]:
    return [ask(str(i), tuple(prompt), source=source, n=n, **kind) for i, (source, prompt, kind, n) in enumerate(rows)]


def content(one: Any) -> tuple[object, ...]:
    return one.prompt, one.sampling, one.n


@thorough
@given(rows=ROWS, max_rows=st.integers(1, 9), max_tokens=st.integers(1, 40))
def test_groups_are_a_partition(ask: Any, grouped: Any, rows: Any, max_rows: int, max_tokens: int) -> None:
    """Every request is in one group or a copy of one that is; a group has one source and keeps its budgets; the groups one
    behind the other are the trie's order."""
    asked = requests(ask, rows)
    made = grouped(asked, max_group_rows=max_rows, max_group_tokens=max_tokens)
    placed = [request_id for of in made.groups.values() for request_id in of]
    assert Counter([*placed, *made.duplicate_of]) == Counter(one.request_id for one in asked)
    assert {*made.duplicate_of.values()} <= {*placed}
    by_id = {one.request_id: one for one in asked}
    for name, of in made.groups.items():
        assert {by_id[one].source for one in of} == {name.split("#")[0]}
        assert len(of) <= max_rows
        assert len(of) == 1 or sum(len(by_id[one].prompt) for one in of) <= max_tokens
    assert placed == sorted(placed, key=lambda one: (by_id[one].source, by_id[one].prompt, one))


@thorough
@given(rows=ROWS)
def test_copies_have_equal_content_and_nothing_left_to_chance(ask: Any, grouped: Any, rows: Any) -> None:
    """A copy has its original's tokens, sampling and n, and no sampling without a seed; and all such are found."""
    asked = requests(ask, rows)
    by_id = {one.request_id: one for one in asked}
    duplicate_of = grouped(asked).duplicate_of
    assert all(content(by_id[copy]) == content(by_id[original]) for copy, original in duplicate_of.items())
    assert all(by_id[copy].sampling.is_deterministic for copy in duplicate_of)
    deterministic = [content(one) for one in asked if one.sampling.is_deterministic]
    assert len(duplicate_of) == len(deterministic) - len(set(deterministic))


@settings(deadline=None, max_examples=20)
@given(rows=ROWS, random=st.randoms())
def test_the_same_bytes_whatever_the_order_of_input(ask: Any, grouped: Any, rows: Any, random: Any) -> None:
    """Shuffled requests in other files, sorted at once or in small ranges, give the same groups, prompts and plan."""
    asked = requests(ask, rows)
    shuffled = random.sample(asked, len(asked))
    outcomes = []
    for made in (grouped(asked), grouped(shuffled), grouped(shuffled, max_tokens_at_once=10)):
        planned = sequences(made.table, PlanConfig(), np.zeros(3, np.int32))
        write_plan(made.folder / "plan.parquet", made.table, made.labels, planned, lambda _: 3)
        with_tokens = [*read_prompt_rows(made)]
        outcomes.append(((made.folder / "plan.parquet").read_bytes(), made.ids, made.duplicate_of, with_tokens))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def read_prompt_rows(made: Any) -> list[list[int]]:
    with PromptFile(made.prompts) as file:
        return [file.token_ids(row).tolist() for row in range(len(file))]


@thorough
@given(rows=ROWS, nearness=st.lists(st.floats(0.5, 1), min_size=30, max_size=30))
def test_near_duplicates_leave_a_partition(ask: Any, grouped: Any, rows: Any, nearness: list[float]) -> None:
    """With merges, too, each request is placed once or is the copy of a placed one; exact copies of merged ones go along."""
    asked = requests(ask, rows)

    def find(source: str, ids: frozenset[str]) -> dict[str, Near]:
        ordered = sorted(ids)
        return {one: Near(ordered[0], nearness[i]) for i, one in enumerate(ordered) if i % 3 == 1}

    made = grouped(asked, find_near=find)
    placed = {request_id for of in made.groups.values() for request_id in of}
    assert Counter([*placed, *made.duplicate_of]) == Counter(one.request_id for one in asked)
    assert {*made.duplicate_of.values()} <= placed
    assert made.similarity.keys() <= made.duplicate_of.keys()
    assert {made.duplicate_of[one].split("/")[0] for one in made.similarity} <= {*"abc"}


@thorough
@given(rows=ROWS, config=BUDGETS)
def test_batches_are_a_partition_within_budget(ask: Any, grouped: Any, rows: Any, config: PlanConfig) -> None:
    """Each request is in one batch, of one group and one lane; budgets hold unless it is alone."""
    made, kept = rows_of(grouped(requests(ask, rows), max_group_rows=7).table)
    units = batches(made, config)
    assert sorted(units.order.tolist()) == list(range(len(kept)))
    for begin, end in pairwise(units.begins.tolist()):
        of = units.order[begin:end]
        assert len({*made.group[of].tolist()}) == 1
        assert len({*(made.num_tokens[of] > BUCKETS[-1]).tolist()}) == 1
        if end - begin > 1:
            assert (made.num_tokens[of] * made.n[of]).sum() <= config.max_batch_tokens
            assert made.n[of].sum() <= config.max_batch_seqs


@thorough
@given(rows=ROWS, levels=st.lists(st.integers(0, 1), min_size=3, max_size=3))
def test_blending_moves_units_within_their_urgency(ask: Any, grouped: Any, rows: Any, levels: list[int]) -> None:
    """Blended, the plan has the same sequences, each source's urgency in its place."""
    made = grouped(requests(ask, rows), max_group_rows=2).table
    urgency = np.array(levels[: len(made.sources)], np.int32)
    plain, blended = (sequences(made, PlanConfig(), urgency, blend=blend) for blend in (False, True))
    assert Counter(zip(blended.row, blended.choice, strict=True)) == Counter(zip(plain.row, plain.choice, strict=True))
    assert np.diff(urgency[made.source[blended.row]]).min(initial=0) >= 0


@thorough
@given(rows=ROWS, seed=st.integers(0, 2**40))
def test_the_plan_has_one_sequence_a_choice(ask: Any, grouped: Any, rows: Any, seed: int) -> None:
    """Every choice is planned once with its own prompt and key; and with a seed of its own if it samples, which is the
    request's plus the choice's index where it brings one."""
    asked = {one.request_id: one for one in requests(ask, rows)}
    made = grouped([*asked.values()])
    planned = plan_of(made, seed)
    expected = Counter((one, i) for of in made.groups.values() for one in of for i in range(asked[one].n))
    assert Counter((s.request_id, s.choice_index) for s in planned) == expected
    assert len({s.key for s in planned}) == len(planned)
    for s in planned:
        one = asked[s.request_id]
        assert (s.prompt_token_ids, s.source) == (one.prompt, one.source)
        assert s.sampling.with_seed(0) == one.sampling.with_seed(0)
        assert (s.sampling.seed is not None) >= (not s.sampling.is_greedy)
        if one.sampling.seed is not None and not s.sampling.is_greedy:
            assert s.sampling.seed == one.sampling.seed + s.choice_index
    sampled = [s for s in planned if not s.sampling.is_greedy]
    assert len({(s.request_id, s.sampling.seed) for s in sampled}) == len(sampled)


def plan_of(made: Any, seed: int = 0) -> list[PlannedSequence]:
    run = Run("run", made.folder / "home", made.folder / "journals")
    for path in (run.plan, run.prompts):
        path.parent.mkdir(parents=True)
    planned = sequences(made.table, PlanConfig(), np.zeros(len(made.table.sources), np.int32))
    write_plan(run.plan, made.table, made.labels, planned, lambda _: seed)
    run.prompts.write_bytes(made.prompts.read_bytes())
    assert run.plan.name == PART
    assert [row["position"] for row in read_rows(run.plan)] == list(range(len(planned)))
    return list(read_plan(run))


@thorough
@given(rows=ROWS, block_size=st.integers(1, 4))
def test_the_bound_is_that_of_the_trie(ask: Any, grouped: Any, rows: Any, block_size: int) -> None:
    """Over all sources: each distinct full block once, and of each sequence what it cannot reuse."""
    asked = requests(ask, rows)
    made = grouped(asked)
    least, seen = 0, set()
    for one in sorted((by_id(asked)[i] for of in made.groups.values() for i in of), key=lambda one: one.prompt):
        for _ in range(one.n):
            blocks = [one.prompt[:end] for end in range(block_size, len(one.prompt) + 1, block_size)]
            usable = [block for block in blocks if len(block) < len(one.prompt)]
            least += len(one.prompt) - block_size * sum(block in seen for block in usable)
            seen.update(blocks)
    with PromptFile(made.prompts) as file:
        assert bound_of(file, made.table, block_size) == least


def by_id(asked: list[Any]) -> dict[str, Any]:
    return {one.request_id: one for one in asked}


@settings(deadline=None)
@given(rows=ROWS)
def test_the_groups_table_is_what_was_grouped(ask: Any, grouped: Any, rows: Any) -> None:
    """Read back from its file the table equals what was written."""
    made = grouped(requests(ask, rows), max_group_rows=3)
    known, again = made.table, read_groups(made.folder / "groups.parquet")
    assert [*again.sources] == [*known.sources]
    assert [*again.group_ids] == [*known.group_ids]
    for name in (
        "source",
        "group",
        "original",
        "prompt_tokens",
        "shared_tokens",
        "n",
        "max_tokens",
        "predicted_tokens",
        "upper_tokens",
    ):
        assert (getattr(again, name) == getattr(known, name)).all(), name


def test_buckets() -> None:
    """A bucket's edge belongs to it, and what is longer than the last edge is in bucket 0."""
    lengths = (1, 256, 257, 512, 1024, 2048, 2049)
    assert [bucket_of(n) for n in lengths] == [256, 256, 512, 512, 1024, 2048, 0]
    assert buckets(np.array(lengths)).tolist() == [bucket_of(n) for n in lengths]
    assert sorted(BUCKETS) == list(BUCKETS)
