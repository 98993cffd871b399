"""All requests in the order of their prompts' trie, source by source, whatever their number.

What is larger than memory should hold is split into ranges of the order first (samplesort, Frazer and McKellar 1970,
with files for buckets), and each range is sorted by itself; the outcome is the same. Deterministic: the order
depends on the prompts and ids alone, not on files, ranges or threads.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tasks.compiled import content_hashes
from tasks.core.request import is_deterministic
from tasks.group.trie import gather, ranges_of, shared_with_previous, trie_order
from tasks.storage.prompts import PartFacts, PromptFile, Prompts, PromptWriter, joined, prompt_writer, read_prompts

MAX_TOKENS_AT_ONCE = 16 << 20
"""Of a range that is sorted in memory: 64 MB, some four times of which are there at once."""
_SAMPLED_GROUPS = 32
_SAMPLED_EVERY = 8
_WORKERS = 2


@dataclass(frozen=True, slots=True)
class Arranged:
    """All rows in order, by columns. `sources` are names, `source` (int32) says whose each row is; `shared` (int32) is the
    number of tokens in common with the row before, of the same source; `hashes` (uint64, (rows, 2)) are equal where prompt,
    sampling and number of choices are, and nothing is left to chance (`is_deterministic`)."""

    sources: tuple[str, ...]
    source: NDArray[np.int32]
    num_tokens: NDArray[np.int32]
    shared: NDArray[np.int32]
    n: NDArray[np.int32]
    max_tokens: NDArray[np.int32]
    is_deterministic: NDArray[np.bool_]
    hashes: NDArray[np.uint64]


Columns = tuple[NDArray[np.generic], ...]


def arrange(
    parts: Sequence[PartFacts],
    writer: PromptWriter,
    scratch: Path,
    *,
    max_tokens_at_once: int = MAX_TOKENS_AT_ONCE,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> Arranged:
    """Write all requests in order; `scratch` is an empty folder for ranges. `on_rows` hears how many are done."""
    sources = tuple(sorted({part.source for part in parts}))
    columns: list[Columns] = []
    ranges = _ranges(sources, parts, scratch, max_tokens_at_once)
    last = (-1, np.empty(0, np.int32))
    for index, prompts in _ahead(_sorted_range, ranges):
        before = last[1] if last[0] == index else np.empty(0, np.int32)
        columns.append((np.full(len(prompts), index, np.int32), *_columns(prompts, before)))
        last = (index, prompts.token_ids[prompts.offsets[-2] :].copy())
        writer.append(prompts)
        on_rows(writer.num_rows)
    return Arranged(sources, *(np.concatenate(column) for column in zip(*columns, strict=True)))


def _columns(prompts: Prompts, before: NDArray[np.int32]) -> Columns:
    """num_tokens, shared, n, max_tokens, is_deterministic, hashes."""
    shared = shared_with_previous(prompts.token_ids, prompts.offsets, before)
    n = prompts.column("n")
    codes, distinct = prompts.codes("sampling")
    deterministic = np.array([is_deterministic(text) for text in distinct], np.bool_)[codes]
    digests = [hashlib.blake2b(text.encode(), digest_size=16).digest() for text in distinct]
    salts = np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)[codes]
    hashes = content_hashes(prompts.token_ids, prompts.offsets, salts + n.astype(np.uint64)[:, None])
    return prompts.num_tokens, shared, n, prompts.column("max_tokens"), deterministic, hashes


Load = Callable[[], Prompts]
_In = TypeVar("_In")
_Out = TypeVar("_Out")


def _ahead(work: Callable[[_In], _Out], items: Iterable[_In]) -> Iterator[_Out]:
    """What work makes of each item, in order; two are worked on while one is used."""
    pending: deque[Future[_Out]] = deque()
    with ThreadPoolExecutor(_WORKERS) as pool:
        for item in items:
            pending.append(pool.submit(work, item))
            if len(pending) > _WORKERS:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _sorted_range(item: tuple[int, Load]) -> tuple[int, Prompts]:
    return item[0], _sorted(item[1])


def _sorted(load: Load) -> Prompts:
    prompts = load()
    order = trie_order(prompts.token_ids, prompts.offsets)
    prompts = prompts.with_rows(order, *gather(prompts.token_ids, prompts.offsets, order))
    lengths = prompts.num_tokens
    shared = shared_with_previous(prompts.token_ids, prompts.offsets, np.empty(0, np.int32))
    is_tied = (shared == lengths) & (np.append(np.int32(-1), lengths[:-1]) == lengths)
    is_tied[:1] = False
    ties = prompts.ties_by_id(is_tied)
    return prompts.with_rows(ties, prompts.token_ids, prompts.offsets) if is_tied.any() else prompts


def _ranges(
    sources: Sequence[str], parts: Sequence[PartFacts], scratch: Path, max_tokens: int
) -> Iterator[tuple[int, Load]]:
    """Each source's index with what loads it, or a range of it, into memory; ranges in their order."""
    for index, source in enumerate(sources):
        of_source = [part for part in parts if part.source == source]
        number = -(-sum(part.num_tokens for part in of_source) // max_tokens)
        if number < 2:
            yield index, partial(_load_parts, of_source)
        else:
            own = scratch / str(index)  # the ranges of the source before may not have been read yet
            own.mkdir()
            yield from ((index, partial(_load_file, path)) for path in _split(of_source, number, own))


def _load_parts(parts: Sequence[PartFacts]) -> Prompts:
    return joined([prompts for part in parts for prompts in read_prompts(part.path)])


def _load_file(path: Path) -> Prompts:
    with PromptFile(path) as file:
        prompts = joined(list(file.batches()))
    path.unlink()
    return prompts


def _split(parts: Sequence[PartFacts], number: int, scratch: Path) -> list[Path]:
    """The requests of these parts in files by the range of the order that they are in."""
    splitters = _splitters(parts, number)
    paths = [scratch / f"range-{i:05d}.arrow" for i in range(len(splitters) + 1)]
    groups = ((part, i) for part in parts for i in range(part.num_row_groups))
    with ExitStack() as stack:
        writers = [stack.enter_context(prompt_writer(path, "lz4")) for path in paths]
        for pieces in _ahead(partial(_divided, splitters), groups):
            for i, piece in pieces:
                writers[i].append(piece)
    return [path for path in paths if _has_rows(path)]


def _divided(splitters: Prompts, group: tuple[PartFacts, int]) -> list[tuple[int, Prompts]]:
    """A row group's requests by range."""
    prompts = joined(list(read_prompts(group[0].path, [group[1]])))
    ranges = ranges_of(prompts.token_ids, prompts.offsets, splitters.token_ids, splitters.offsets)
    order = np.argsort(ranges, kind="stable")
    ordered = prompts.with_rows(order, *gather(prompts.token_ids, prompts.offsets, order))
    ends = np.searchsorted(ranges[order], np.arange(len(splitters) + 2)).tolist()
    return [(i, ordered.slice(begin, end)) for i, (begin, end) in enumerate(pairwise(ends)) if begin < end]


def _has_rows(path: Path) -> bool:
    with PromptFile(path) as file:
        return len(file) > 0


def _splitters(parts: Sequence[PartFacts], number: int) -> Prompts:
    """Prompts that cut the order into about so many ranges of about one size: those between equal shares of a sample."""
    groups = [(part, i) for part in parts for i in range(part.num_row_groups)]
    taken = groups[:: -(-len(groups) // _SAMPLED_GROUPS)]
    pieces = []
    for part, i in taken:
        for prompts in read_prompts(part.path, [i]):
            rows = np.arange(0, len(prompts), _SAMPLED_EVERY)
            pieces.append(prompts.with_rows(rows, *gather(prompts.token_ids, prompts.offsets, rows)))
    sample = joined(pieces)
    order = trie_order(sample.token_ids, sample.offsets)
    chosen = order[(np.arange(1, number) * len(order)) // number]
    return sample.with_rows(chosen, *gather(sample.token_ids, sample.offsets, chosen))
