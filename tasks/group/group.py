"""The stage: the dataset's requests to the groups table and the prompts' file, in the order of the prompts' trie.

A partition: every request is in exactly one group, or is a duplicate of one that is, exact or near. Deterministic, and
independent of the order in which the requests come.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.core.config import GroupConfig
from tasks.group.arrange import MAX_TOKENS_AT_ONCE, Arranged, arrange
from tasks.group.cut import cut
from tasks.group.duplicates import originals, shared_among
from tasks.group.near import Near
from tasks.storage.planned import GroupTable, Labels, write_groups
from tasks.storage.prompts import PromptFile, part_facts, prompt_writer

FindNear = Callable[[str, frozenset[str]], Mapping[str, Near]]
"""Of a source those of the named requests that are merged into another one of them."""
Predict = Callable[[Arranged, PromptFile], NDArray[np.int32]]
"""The likely length of each row's answer in tokens, and one that hardly any exceeds, shape (2, rows); -1 is not known."""


def group(
    parts: Sequence[Path],
    table: Path,
    prompts: Path,
    settings: GroupConfig,
    urgency_of: Callable[[str], tuple[int, float]],
    *,
    find_near: FindNear | None = None,
    predict: Predict | None = None,
    max_tokens_at_once: int = MAX_TOKENS_AT_ONCE,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> GroupTable:
    """Write both files. Of requests that must have the same answer the most urgent one is answered, then the first."""
    facts = [part_facts(path) for path in parts]
    with tempfile.TemporaryDirectory(dir=prompts.parent, prefix=".ranges-") as scratch, prompt_writer(prompts) as writer:
        arranged = arrange(facts, writer, Path(scratch), max_tokens_at_once=max_tokens_at_once, on_rows=on_rows)
    with PromptFile(prompts) as file:
        labels = Labels(file)
        known = predict(arranged, file) if predict else np.full((2, len(arranged.source)), -1, np.int32)
    original = originals(arranged.hashes, arranged.is_deterministic, ranks(arranged.sources, urgency_of)[arranged.source])
    similarity = np.full(len(original), np.nan, np.float32)
    if find_near is not None:
        _merge_near(arranged, labels, original, similarity, find_near)
    made = _table(arranged, original, similarity, known, settings)
    write_groups(table, made, labels)
    return made


def ranks(sources: Sequence[str], urgency_of: Callable[[str], tuple[int, float]]) -> NDArray[np.int32]:
    """How urgent each source is, as a number: the smaller the sooner, equal where none goes first."""
    levels = {urgency: i for i, urgency in enumerate(sorted({urgency_of(source) for source in sources}))}
    return np.array([levels[urgency_of(source)] for source in sources], np.int32)


def _merge_near(
    arranged: Arranged,
    labels: Labels,
    original: NDArray[np.int64],
    similarity: NDArray[np.float32],
    find_near: FindNear,
) -> None:
    """Give near-duplicates their originals; an exact duplicate of a merged request goes along."""
    own = original == np.arange(len(original))
    for index, source in enumerate(arranged.sources):
        rows = np.flatnonzero(own & (arranged.source == index))
        row_of = dict(zip(labels.request_ids(rows).to_pylist(), rows.tolist(), strict=True))
        for copy, near in find_near(source, frozenset(row_of)).items():
            original[row_of[copy]], similarity[row_of[copy]] = row_of[near.original], near.similarity
    similarity[:] = np.where(own, similarity, similarity[original])
    original[:] = original[original]


def _table(
    arranged: Arranged,
    original: NDArray[np.int64],
    similarity: NDArray[np.float32],
    predicted: NDArray[np.int32],
    settings: GroupConfig,
) -> GroupTable:
    kept = np.flatnonzero(original == np.arange(len(original)))
    shared = arranged.num_tokens.copy()
    shared[kept] = shared_among(arranged.shared, kept)
    source = arranged.source[kept]
    begins = cut(source, arranged.num_tokens[kept], shared[kept], settings)
    group = np.full(len(original), -1, np.int64)
    group[kept] = np.repeat(np.arange(len(begins) - 1), np.diff(begins))
    return GroupTable(
        sources=arranged.sources,
        group_ids=_names(arranged.sources, source[begins[:-1]]),
        source=arranged.source,
        group=group,
        original=original,
        similarity=similarity,
        prompt_tokens=arranged.num_tokens,
        shared_tokens=shared,
        n=arranged.n,
        max_tokens=arranged.max_tokens,
        predicted_tokens=predicted[0],
        upper_tokens=predicted[1],
    )


def _names(sources: Sequence[str], source: NDArray[np.int32]) -> list[str]:
    """Each group's name: its source's, and its number among that source's groups."""
    firsts = np.searchsorted(source, np.arange(len(sources)))
    return [f"{sources[of]}#{i - firsts[of]:04d}" for i, of in enumerate(source.tolist())]
