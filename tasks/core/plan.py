"""The ordered night: groups of requests that share, batches that are admitted together, and the plan's sequences."""

import math
from dataclasses import dataclass, replace
from datetime import datetime

from tasks.core.request import SamplingParams

BUCKETS = (256, 512, 1024, 2048)
"""Upper edges, in tokens (prompt + allowed output), of the work-unit buckets; what is longer is in bucket 0, "over"."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """What grouping and planning need of a request; tokens stay in their Parquet file where they can.

    `context` stands for all of the prompt but `text`; it is known where near-duplicates are looked for.
    """

    request_id: str
    source: str
    text: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    n: int = 1
    context: str = ""
    priority: int = 0
    deadline: datetime | None = None

    @property
    def urgency(self) -> tuple[int, float]:
        """Smaller is more urgent: by priority, then by deadline, of which none is the last."""
        return -self.priority, self.deadline.timestamp() if self.deadline else math.inf

    def as_urgent_as(self, copy: "GroupMember") -> "GroupMember":
        """The member, needed as early as the more urgent of the two."""
        first = min(self, copy, key=lambda member: member.urgency)
        return self if first is self else replace(self, priority=first.priority, deadline=first.deadline)

    @property
    def num_tokens(self) -> int:
        """Prompt plus the largest output allowed, in tokens."""
        return len(self.prompt_token_ids) + self.sampling.max_tokens


@dataclass(frozen=True, slots=True)
class PrefixGroup:
    """Requests of one source that are alike, ordered so that neighbours share the longest token prefix."""

    source: str
    group_id: str
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """A work unit: members of one group and one token bucket, within the token and sequence budgets."""

    batch_id: int
    source: str
    group_id: str
    bucket: int
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True)
class PlannedSequence:
    """One sequence for the engine: a request's prompt and one of its n choices. `key` is its identity in the journal.

    `predicted_tokens` is the length of its answer as far as it is known beforehand, in tokens; None where nothing is.
    """

    key: int
    request_id: str
    choice_index: int
    batch_id: int
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    source: str = ""
    predicted_tokens: int | None = None


def bucket_of(num_tokens: int) -> int:
    """The bucket's upper edge in tokens, or 0 for longer ones."""
    return next((edge for edge in BUCKETS if num_tokens <= edge), 0)
