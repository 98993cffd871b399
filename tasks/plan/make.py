"""Batches to the plan: one sequence per choice, each with its journal key and, if it samples, its own seed.

Deterministic: the same batches and seed give the same plan, byte for byte.
"""

from collections.abc import Callable, Iterable, Iterator

from tasks.core.errors import DamageError
from tasks.core.plan import Batch, GroupMember, PlannedSequence
from tasks.core.request import SamplingParams, derived_seed, sequence_key


def sequences(batches: Iterable[Batch], seed_of: Callable[[str], int]) -> Iterator[tuple[Batch, PlannedSequence]]:
    """Every sequence in the plan's order, with its batch; `seed_of` gives the seed of a source's requests that have none.

    Raises DamageError when two get one key (1 in 2^64 a pair).
    """
    seen: dict[int, str] = {}
    for batch in batches:
        for member in batch.members:
            for choice_index in range(member.n):
                key = sequence_key(member.request_id, choice_index)
                if key in seen:
                    raise DamageError(f"{member.request_id} and {seen[key]} have the same key; rename one of them")
                seen[key] = member.request_id
                sampling = seeded(member, choice_index, seed_of(batch.source))
                prompt = member.prompt_token_ids
                yield batch, PlannedSequence(key, member.request_id, choice_index, batch.batch_id, prompt, sampling)


def seeded(member: GroupMember, choice_index: int, seed: int) -> SamplingParams:
    """Sampling with the sequence's own seed: the request's, else one derived from the run's, plus the choice's index."""
    sampling = member.sampling
    if sampling.is_greedy:
        return sampling
    base = derived_seed(seed, member.request_id) if sampling.seed is None else sampling.seed
    wrapped = (base + choice_index + 2**63) % 2**64 - 2**63
    return sampling.with_seed(wrapped)
