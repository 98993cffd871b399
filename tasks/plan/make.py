"""Groups to the plan table: one sequence per choice, each with its journal key and, if it samples, its own seed.

Deterministic: the same groups and settings give the same plan, byte for byte.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.core.config import PlanConfig
from tasks.core.errors import DamageError
from tasks.core.request import SamplingParams, derived_seed, is_sampled
from tasks.core.step import PREFILL_STEPS
from tasks.plan.batches import Batches, Rows, batches, buckets
from tasks.plan.blend import blended_order
from tasks.plan.mix import prefill_shares
from tasks.plan.tail import full_rate, tail_order
from tasks.plan.turns import in_turns
from tasks.storage.planned import GroupTable, Labels, plan_writer

_AT_ONCE = 1 << 16
_SOME_SEED = 0x5EED_5EED_5EED

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sequences:
    """The night in order, by columns: `row` is the request's in the groups table, `choice` one of its n, `batch` its work
    unit, which counts on from 0."""

    row: NDArray[np.int64]
    choice: NDArray[np.int32]
    batch: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.row)


def rows_of(groups: GroupTable) -> tuple[Rows, NDArray[np.int64]]:
    """The requests that are to be answered themselves, and where each stands in the groups table."""
    kept = np.flatnonzero(~groups.is_copy)
    rows = Rows(
        source=groups.source[kept],
        group=groups.group[kept],
        shared=groups.shared_tokens[kept],
        num_prompt=groups.prompt_tokens[kept],
        max_tokens=groups.max_tokens[kept],
        predicted=groups.predicted_tokens[kept],
        upper=groups.upper_tokens[kept],
        n=groups.n[kept],
    )
    return rows, kept


def sequences(
    groups: GroupTable,
    config: PlanConfig,
    urgency: NDArray[np.int32],
    num_in_flight: int = 64,
    *,
    blend: bool = False,
) -> Sequences:
    """Every sequence in the order of the night; `urgency` is of each of the groups' sources, the smaller the sooner, and
    `num_in_flight` what the engine has in flight when it is full. With `blend`, equally urgent units are mixed."""
    rows, kept = rows_of(groups)
    units = batches(rows, config)
    in_order = in_turns(rows, units, urgency)
    order, batch = _rows_in_order(units, _blended(rows, units, in_order, urgency) if blend else in_order)
    times = rows.n[order]
    first = np.cumsum(times) - times
    choice = np.arange(int(times.sum())) - np.repeat(first, times)
    row = np.repeat(order, times)
    last = _with_full_end(rows, row, choice, urgency, num_in_flight)
    return Sequences(kept[row][last], choice[last].astype(np.int32), np.repeat(batch, times)[last])


def mix(groups: GroupTable, planned: Sequences, num_in_flight: int) -> list[float]:
    """The share of prefill along the plan; see mix.py."""
    row = planned.row
    prefill = np.where(planned.choice > 0, 0, groups.prompt_tokens[row] - groups.shared_tokens[row])
    known = groups.predicted_tokens[row]
    return prefill_shares(prefill.astype(np.int64), np.where(known >= 0, known, groups.max_tokens[row]), num_in_flight)


def _blended(rows: Rows, units: Batches, in_order: Ints, urgency: NDArray[np.int32]) -> Ints:
    """The units with their prefill and their decode mixed, those of each urgency among themselves."""
    prefill = np.add.reduceat((rows.num_prompt - rows.shared)[units.order], units.begins[:-1])[in_order]
    decode = np.add.reduceat(rows.expected_output[units.order], units.begins[:-1])[in_order]
    level = urgency[rows.source[units.first_rows[in_order]]]
    mixed = [
        of[blended_order(prefill[of].astype(np.float64), decode[of].astype(np.float64))]
        for of in (np.flatnonzero(level == one) for one in np.unique(level))
    ]
    return in_order[np.concatenate(mixed)] if mixed else in_order


def _with_full_end(rows: Rows, row: Ints, choice: Ints, urgency: NDArray[np.int32], num_in_flight: int) -> Ints:
    """The order of the sequences in which the night's end runs full, as their places; the most urgent ones stay where they
    are, as only those that are the least urgent of all are moved."""
    level = urgency[rows.source[row]]
    begin = int(np.searchsorted(level, level[-1])) if len(level) else 0
    moved = row[begin:]
    prefill = np.where(choice[begin:] > 0, 0, rows.num_prompt[moved] - rows.shared[moved])
    known = rows.predicted[moved] >= 0
    predicted, upper = (np.where(known, of[moved], np.nan) for of in (rows.predicted, rows.upper))
    cost, duration = full_rate(
        prefill, predicted, upper, num_in_flight=num_in_flight, prefill_token_s=PREFILL_STEPS, step_s=1.0
    )
    return np.append(np.arange(begin), begin + tail_order(cost, duration))


def _rows_in_order(units: Batches, order: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows of the batches in this order, and the number of each one's batch."""
    sizes = np.diff(units.begins)[order]
    begins = np.cumsum(sizes) - sizes
    within = np.arange(int(sizes.sum())) - np.repeat(begins, sizes)
    return units.order[np.repeat(units.begins[:-1][order], sizes) + within], np.repeat(np.arange(len(order)), sizes)


def write_plan(path: Path, groups: GroupTable, labels: Labels, planned: Sequences, seed_of: Callable[[str], int]) -> None:
    """Write the plan; `seed_of` gives the seed of a source's requests that have none.

    Raises DamageError when two sequences get one key (1 in 2^64 a pair).
    """
    seeds = [seed_of(source) for source in groups.sources]
    keys = []
    with plan_writer(path) as writer:
        for begin in range(0, len(planned), _AT_ONCE):
            part = slice(begin, begin + _AT_ONCE)
            row, choice = planned.row[part], planned.choice[part]
            keys.append(labels.keys(row, choice))
            sampling = labels.sampling(row)
            if any(map(is_sampled, labels.distinct_sampling(row))):
                ids = labels.request_ids(row).to_pylist()
                sampling = _seeded(sampling.to_pylist(), ids, choice, groups.source[row], seeds)
            writer.append(
                key=keys[-1],
                request_id=labels.request_ids(row),
                choice_index=choice,
                batch_id=planned.batch[part],
                source=(groups.source[row], groups.sources),
                group_id=(groups.group[row], groups.group_ids),
                bucket=buckets(groups.prompt_tokens[row].astype(np.int64) + groups.max_tokens[row]),
                max_tokens=groups.max_tokens[row],
                predicted_tokens=groups.predicted_tokens[row],
                prompt_tokens=groups.prompt_tokens[row],
                sampling=sampling,
                prompt=row,
            )
    if len(np.unique(np.concatenate([np.empty(0, np.uint64), *keys]))) < len(planned):
        raise DamageError(f"{path}: two sequences have the same key; rename one of their requests")


def _seeded(
    sampling: list[str], ids: Sequence[str], choice: NDArray[np.int32], source: NDArray[np.int32], seeds: Sequence[int]
) -> list[str]:
    """The parameters with each sampled sequence's own seed in the place of the request's."""
    for i, text in enumerate(sampling):
        if is_sampled(text):
            base, before, behind = _around_seed(text)
            start = derived_seed(seeds[source[i]], ids[i]) if base is None else base
            sampling[i] = f"{before}{sequence_seed(start, int(choice[i]))}{behind}"
    return sampling


def sequence_seed(base: int, choice_index: int) -> int:
    """The seed of one choice: the request's, plus its index, within 64 bits."""
    return (base + choice_index + 2**63) % 2**64 - 2**63


@lru_cache(maxsize=4096)
def _around_seed(text: str) -> tuple[int | None, str, str]:
    """A request's own seed, and the text of its parameters before and behind a seed."""
    sampling = SamplingParams.from_json(text)
    before, found, behind = sampling.with_seed(_SOME_SEED).to_json().rpartition(f'"seed":{_SOME_SEED}')
    return sampling.seed, before + found[: -len(str(_SOME_SEED))], behind
