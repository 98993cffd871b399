"""The ordered night: its sequences, each of a batch that is admitted together, and the buckets of their lengths."""

from dataclasses import dataclass

from tasks.core.request import SamplingParams

BUCKETS = (256, 512, 1024, 2048)
"""Upper edges, in tokens (prompt + allowed output), of the work-unit buckets; what is longer is in bucket 0, "over"."""


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
