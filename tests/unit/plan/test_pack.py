"""Batches in the order of their urgency."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tasks.core.config import PlanConfig
from tasks.core.plan import GroupMember, PrefixGroup
from tasks.plan.pack import pack

MakeMember = Callable[..., GroupMember]

EARLY, LATE = datetime(2026, 12, 1, 6, tzinfo=UTC), datetime(2026, 12, 1, 9, tzinfo=UTC)


def urgent(member: GroupMember, priority: int = 0, deadline: datetime | None = None) -> GroupMember:
    return replace(member, priority=priority, deadline=deadline)


def order(*groups: tuple[GroupMember, ...]) -> list[list[str]]:
    made = [PrefixGroup("src", f"g{i}", members) for i, members in enumerate(groups)]
    batches = pack(made, PlanConfig())
    assert [batch.batch_id for batch in batches] == list(range(len(batches)))
    return [[member.request_id for member in batch.members] for batch in batches]


def test_higher_priority_goes_first_then_the_earlier_deadline(make_member: MakeMember) -> None:
    """Priority decides, then the deadline, of which none is the last; what is equal keeps the groups' order."""
    levels: list[dict[str, Any]] = [
        {},
        {"priority": -1, "deadline": EARLY},
        {"deadline": LATE},
        {"priority": 5},
        {"deadline": EARLY},
        {"priority": 5, "deadline": LATE},
        {},
    ]
    groups = [(urgent(make_member(str(i)), **level),) for i, level in enumerate(levels)]
    assert order(*groups) == [[f"src/{i}"] for i in (5, 3, 4, 2, 0, 6, 1)]


def test_a_group_of_several_urgencies_is_taken_apart(make_member: MakeMember) -> None:
    """A single urgent member does not pull its group along, and both parts keep their order."""
    a, b, c = (make_member(name) for name in "abc")
    first, last = (make_member("f"),), (make_member("l"),)
    assert order(first, (a, urgent(b, 1), c), last) == [["src/b"], ["src/f"], ["src/a", "src/c"], ["src/l"]]


def test_a_member_is_as_urgent_as_its_most_urgent_copy(make_member: MakeMember) -> None:
    """The more urgent of two gives both priority and deadline; a lower priority's early deadline does not count."""
    member = urgent(make_member("a"), 1, LATE)
    assert member.as_urgent_as(urgent(make_member("b"), 0, EARLY)) is member
    assert member.as_urgent_as(urgent(make_member("b"), 1, EARLY)) == urgent(make_member("a"), 1, EARLY)
    assert member.as_urgent_as(urgent(make_member("b"), 2)) == urgent(make_member("a"), 2)
