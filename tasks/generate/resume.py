"""Plan and Progress to what is left to do: by identity, in the plan's order."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tasks.core.plan import PlannedSequence
from tasks.core.request import Progress, SamplingParams


@dataclass(frozen=True, slots=True)
class Work:
    """A sequence and the tokens of its answer that need not be generated again."""

    sequence: PlannedSequence
    saved_token_ids: Sequence[int] = ()


def remaining(
    plan: Iterable[PlannedSequence],
    progress: Mapping[int, Progress],
    continues_exactly: Callable[[SamplingParams], bool],
) -> Iterator[Work]:
    """Each sequence that has not ended. Saved tokens are used where going on from them is exact; else it starts anew."""
    for sequence in plan:
        known = progress.get(sequence.key)
        if known is None:
            yield Work(sequence)
        elif not known.is_final:
            yield Work(sequence, known.token_ids if continues_exactly(sequence.sampling) else ())
