"""Grouping and packing lose nothing, double nothing and keep their budgets."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tasks.core.config import GroupConfig, PlanConfig
from tasks.core.plan import BUCKETS, GroupMember, bucket_of
from tasks.core.request import SamplingParams
from tasks.group.prefix import Grouping, group
from tasks.plan.make import sequences
from tasks.plan.pack import pack

PROMPTS = st.lists(st.integers(0, 3), min_size=1, max_size=6).map(tuple)
SAMPLING = st.builds(
    SamplingParams,
    max_tokens=st.sampled_from([4, 300, 3000]),
    temperature=st.sampled_from([0.0, 0.7]),
    seed=st.sampled_from([None, 1]),
)
MEMBERS = st.lists(st.tuples(st.sampled_from("abc"), PROMPTS, SAMPLING, st.integers(1, 3)), max_size=30).map(
    lambda rows: [
        GroupMember(f"{source}/{i}", source, str(prompt), prompt, sampling, n)
        for i, (source, prompt, sampling, n) in enumerate(rows)
    ]
)
_IN_LETTERS = str.maketrans("0123456789", "abcdefghij")
BUDGETS = st.builds(PlanConfig, max_batch_tokens=st.integers(1, 5000), max_batch_seqs=st.integers(1, 8))


class HashEncoder:
    """Stands in for the sentence encoder: a vector that depends on the text alone."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([[len(text), sum(text.encode()) % 7, 1.0] for text in texts], dtype=np.float32)

    def reads_whole(self, texts: Sequence[str]) -> list[bool]:
        return [True] * len(texts)


class UnitEncoder(HashEncoder):
    """The same, of length one."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = super().embed(texts)
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def grouped(members: list[GroupMember]) -> Grouping:
    """Sources of six to nine requests are clustered by meaning, smaller and larger ones are not."""
    return group(members, HashEncoder, GroupConfig(cluster_size=3, max_embedded_rows=9))


@settings(deadline=None, max_examples=60)
@given(MEMBERS)
def test_groups_are_a_partition(members: list[GroupMember]) -> None:
    """Every request is in exactly one group, or a duplicate of one that is; a group has one source."""
    grouping = grouped(members)
    placed = [member for of in grouping.groups for member in of.members]
    assert Counter(m.request_id for m in placed) + Counter(grouping.duplicate_of.keys()) == Counter(
        m.request_id for m in members
    )
    assert all(member.source == of.source for of in grouping.groups for member in of.members)
    ids = {member.request_id for member in placed}
    assert set(grouping.duplicate_of.values()) <= ids


@settings(deadline=None, max_examples=60)
@given(MEMBERS)
def test_duplicates_have_equal_content_and_nothing_left_to_chance(members: list[GroupMember]) -> None:
    """A duplicate has its original's tokens, sampling and n, and no sampling without a seed; and all such are found."""
    by_id = {member.request_id: member for member in members}
    duplicate_of = grouped(members).duplicate_of

    def content(m: GroupMember) -> tuple[object, ...]:
        return m.prompt_token_ids, m.sampling, m.n

    for copy, original in duplicate_of.items():
        assert content(by_id[copy]) == content(by_id[original])
        assert by_id[copy].sampling.is_deterministic
    deterministic = [content(m) for m in members if m.sampling.is_deterministic]
    assert len(duplicate_of) == len(deterministic) - len(set(deterministic))


@settings(deadline=None, max_examples=30)
@given(MEMBERS, st.randoms())
def test_grouping_does_not_depend_on_the_order_of_input(members: list[GroupMember], random: object) -> None:
    """Shuffled requests give the same groups in the same order."""
    shuffled = list(members)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert grouped(shuffled) == grouped(members)


@settings(deadline=None, max_examples=60)
@given(MEMBERS, st.sampled_from([0.5, 0.99, 1.0]))
def test_near_duplicates_leave_a_partition(members: list[GroupMember], threshold: float) -> None:
    """With near-duplicates, too, each request is placed once or is the copy of a placed one, of its own kind."""
    worded = [replace(member, text=member.text.translate(_IN_LETTERS)) for member in members]
    grouping = group(worded, UnitEncoder, GroupConfig(cluster_size=3, max_embedded_rows=9, near_duplicates=threshold))
    placed = {member.request_id: member for of in grouping.groups for member in of.members}
    assert Counter([*placed, *grouping.duplicate_of]) == Counter(member.request_id for member in members)
    assert grouping.similarity.keys() <= grouping.duplicate_of.keys()
    assert all(threshold - 1e-5 <= near <= 1 for near in grouping.similarity.values())
    by_id = {member.request_id: member for member in members}
    for copy, original in grouping.duplicate_of.items():
        assert placed[original].sampling == by_id[copy].sampling
        assert (placed[original].n, by_id[copy].sampling.is_deterministic) == (by_id[copy].n, True)
        assert copy not in grouping.similarity or placed[original].source == by_id[copy].source


@settings(deadline=None, max_examples=60)
@given(MEMBERS, BUDGETS)
def test_batches_are_a_partition_within_budget(members: list[GroupMember], config: PlanConfig) -> None:
    """Each member is in one batch, of its own source, group and bucket; budgets hold unless it is alone."""
    groups = grouped(members).groups
    batches = pack(groups, config)
    packed = Counter(member.request_id for batch in batches for member in batch.members)
    assert packed == Counter(member.request_id for of in groups for member in of.members)
    assert [batch.batch_id for batch in batches] == list(range(len(batches)))
    for batch in batches:
        assert {member.source for member in batch.members} == {batch.source}
        assert {bucket_of(member.num_tokens) for member in batch.members} == {batch.bucket}
        if len(batch.members) > 1:
            assert sum(member.num_tokens * member.n for member in batch.members) <= config.max_batch_tokens
            assert sum(member.n for member in batch.members) <= config.max_batch_seqs


@settings(deadline=None, max_examples=60)
@given(MEMBERS, st.integers())
def test_plan_has_one_sequence_a_choice(members: list[GroupMember], seed: int) -> None:
    """Every choice of every member is planned once, with a key of its own and a seed of its own if it samples."""
    groups = grouped(members).groups
    planned = [sequence for _, sequence in sequences(pack(groups, PlanConfig()), lambda _: seed)]
    expected = Counter((m.request_id, i) for of in groups for m in of.members for i in range(m.n))
    assert Counter((s.request_id, s.choice_index) for s in planned) == expected
    assert len({s.key for s in planned}) == len(planned)
    sampled = [s for s in planned if not s.sampling.is_greedy]
    assert all(s.sampling.seed is not None for s in sampled)
    assert len({(s.request_id, s.sampling.seed) for s in sampled}) == len(sampled)


def test_buckets() -> None:
    """A bucket's edge belongs to it, and what is longer than the last edge is in bucket 0."""
    assert [bucket_of(n) for n in (1, 256, 257, 512, 1024, 2048, 2049)] == [256, 256, 512, 512, 1024, 2048, 0]
    assert sorted(BUCKETS) == list(BUCKETS)
