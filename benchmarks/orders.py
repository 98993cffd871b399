"""The orders in which a suite's requests may go to the engine, ours and the ones it is measured against."""

import tempfile
from collections.abc import Callable, Sequence
from heapq import heapify, heappop
from itertools import pairwise, takewhile
from pathlib import Path

import numpy as np

from benchmarks.suites import Item, Suite, reordered
from tasks.core.config import GroupConfig, PlanConfig
from tasks.core.protocols import Tokenizer
from tasks.core.request import SamplingParams
from tasks.group.group import group
from tasks.ingest.fields.sample import Sample
from tasks.plan.make import sequences
from tasks.storage.parquet import REQUESTS, writing_table
from tasks.storage.planned import Labels
from tasks.storage.prompts import PromptFile

BUFFER, THRESHOLD = 5000, 0.33
"""Of the streaming scheduler that `buckets` is a re-implementation of: Daft's prefix bucketing, at its defaults."""
PORTION = 128
"""Requests that reach it at once; a guess, as it takes what the stage before it gives."""

Order = Callable[[Suite], list[Item]]


def arrival(suite: Suite) -> list[Item]:
    """As they came: what vLLM does with a list."""
    return list(suite.items)


def full_sort(suite: Suite) -> list[Item]:
    """Sorted by token ids."""
    return sorted(suite.items, key=lambda item: item.prompt_token_ids)


def buckets(suite: Suite, *, buffer: int = BUFFER, portion: int = PORTION) -> list[Item]:
    """Requests are collected in a buffer. When it overflows, and at the end, it is sorted and cut where neighbours share
    less than a third of either; the largest buckets go first, until the buffer holds no more than it may.

    A re-implementation from the published description and source of Daft's "vLLM prefix caching" provider, on token ids in
    place of bytes. There, buckets below a minimum of 16 are sent on together; one engine gets them in the same order.
    """
    sent: list[Item] = []
    held: list[Item] = []
    for start in range(0, len(suite.items), portion):
        held += suite.items[start : start + portion]
        if len(held) > buffer:
            held = _send_largest(held, buffer, sent)
    _send_largest(held, 0, sent)
    return sent


def _send_largest(held: list[Item], keep: int, sent: list[Item]) -> list[Item]:
    """Move buckets to `sent`, the largest first, until `keep` items are left, which are returned."""
    ordered = sorted(held, key=lambda item: item.prompt_token_ids)
    cuts = [0, *(i + 1 for i, (one, other) in enumerate(pairwise(ordered)) if _differ(one, other)), len(ordered)]
    found = [(start - end, -start, start, end) for start, end in pairwise(cuts)]
    heapify(found)
    left = len(ordered)
    while left > keep:
        size, _, start, end = heappop(found)
        sent += ordered[start:end]
        left += size
    return [item for _, _, start, end in found for item in ordered[start:end]]


def _differ(one: Item, other: Item) -> bool:
    first, second = one.prompt_token_ids, other.prompt_token_ids
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))
    return common / len(first) < THRESHOLD and common / len(second) < THRESHOLD


def our_order(suite: Suite) -> list[Item]:
    """The order of nightbatch's plan; a duplicate follows the request whose answer it would share."""
    items = {item.request_id: item for item in suite.items}
    planned, duplicate_of = _planned(suite)
    copies: dict[str, list[Item]] = {}
    for copy, original in sorted(duplicate_of.items()):
        copies.setdefault(original, []).append(items[copy])
    return [one for request_id in planned for one in (items[request_id], *copies.get(request_id, ()))]


def with_fields_in_order(suite: Suite, tokenizer: Tokenizer) -> Suite:
    """A table's rows with their fields in the order that ingest finds for them; other suites as they are."""
    if not all(item.row for item in suite.items):
        return suite
    sample = Sample([name for name, _ in suite.items[0].row])
    for item in suite.items:
        sample.add(item.row)
    order = sample.order()
    return reordered(suite, lambda item: [name for name, _ in order.arrange(item.row)], tokenizer)


def without_copies(suite: Suite) -> list[Item]:
    """Our order with each answer generated once."""
    items = {item.request_id: item for item in suite.items}
    return [items[request_id] for request_id in _planned(suite)[0]]


def _planned(suite: Suite) -> tuple[list[str], dict[str, str]]:
    """The request ids in the order of the plan, and each duplicate's original, by the stages themselves."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = sorted({item.source for item in suite.items})
        parts = [_write_part(folder / f"{i}.parquet", suite, source) for i, source in enumerate(sources)]
        groups = group(parts, folder / "groups.parquet", folder / "prompts.arrow", GroupConfig(), lambda _: (0, 0.0))
        planned = sequences(groups, PlanConfig(), np.zeros(len(sources), np.int32))
        with PromptFile(folder / "prompts.arrow") as prompts:
            ids = Labels(prompts).request_ids(np.arange(len(groups.source))).to_pylist()
    copies = np.flatnonzero(groups.is_copy).tolist()
    return [ids[row] for row in planned.row.tolist()], {ids[row]: ids[groups.original[row]] for row in copies}


def _write_part(path: Path, suite: Suite, source: str) -> Path:
    """The source's requests as ingest would have written them."""
    nothing = dict.fromkeys(REQUESTS.names)
    with writing_table(path, REQUESTS) as table:
        for item in (one for one in suite.items if one.source == source):
            sampling = SamplingParams(max_tokens=item.max_tokens, ignore_eos=True).to_json()
            told = {"request_id": item.request_id, "source": source, "sampling": sampling, "n": 1}
            told |= {"max_tokens": item.max_tokens, "prompt_tokens": len(item.prompt_token_ids)}
            table.append(nothing | told | {"prompt_token_ids": item.prompt_token_ids})
    return path


ORDERS: dict[str, Order] = {"arrival": arrival, "sort": full_sort, "buckets": buckets}
"""Those that ours is measured against."""


def checked(suite: Suite, ordered: Sequence[Item]) -> list[Item]:
    """The same, if it has each request once. Raises ValueError if not."""
    if sorted(item.request_id for item in ordered) != sorted(item.request_id for item in suite.items):
        raise ValueError(f"an order of {suite.name} loses or doubles requests")
    return list(ordered)
