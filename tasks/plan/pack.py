"""Groups to Batches: work units of one group and one token bucket, under the token and sequence budgets.

Each member of each group is in exactly one batch; what is more urgent comes first, and else the groups' order, and within a
bucket the group's own order, is kept. A member that is alone
over the token budget is a batch by itself.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tasks.core.config import PlanConfig
from tasks.core.plan import BUCKETS, Batch, GroupMember, PrefixGroup, bucket_of


def pack(groups: Iterable[PrefixGroup], config: PlanConfig) -> list[Batch]:
    """All batches: the most urgent first, then in the groups' order, and from the short bucket to the long one within a
    group."""
    batches: list[Batch] = []
    for group in by_urgency(groups):
        for bucket in (*BUCKETS, 0):
            members = [member for member in group.members if bucket_of(member.num_tokens) == bucket]
            for unit in _units(members, config):
                batches.append(Batch(len(batches), group.source, group.group_id, bucket, tuple(unit)))
    return batches


def by_urgency(groups: Iterable[PrefixGroup]) -> list[PrefixGroup]:
    """The groups, the most urgent first; one whose members are not equally urgent is taken apart."""
    parts: list[tuple[tuple[int, float], PrefixGroup]] = []
    for group in groups:
        members: dict[tuple[int, float], list[GroupMember]] = {}
        for member in group.members:
            members.setdefault(member.urgency, []).append(member)
        parts += [(urgency, replace(group, members=tuple(alike))) for urgency, alike in members.items()]
    return [part for _, part in sorted(parts, key=lambda part: part[0])]


def _units(members: list[GroupMember], config: PlanConfig) -> Iterator[list[GroupMember]]:
    unit: list[GroupMember] = []
    tokens = seqs = 0
    for member in members:
        more_tokens, more_seqs = member.num_tokens * member.n, member.n
        if unit and (tokens + more_tokens > config.max_batch_tokens or seqs + more_seqs > config.max_batch_seqs):
            yield unit
            unit, tokens, seqs = [], 0, 0
        unit.append(member)
        tokens, seqs = tokens + more_tokens, seqs + more_seqs
    if unit:
        yield unit
