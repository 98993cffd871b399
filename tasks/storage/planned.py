"""The groups table and the plan table by their columns: numbers as arrays, strings taken from the prompts' file."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tasks.compiled import content_hashes
from tasks.core.errors import DamageError
from tasks.storage.parquet import GROUPS, PLAN, writing_table
from tasks.storage.prompts import PromptFile

_ROWS_AT_ONCE = 1 << 16
_NUMBERS = ("prompt_tokens", "shared_tokens", "n", "max_tokens", "predicted_tokens", "upper_tokens")


@dataclass(frozen=True, slots=True)
class GroupTable:
    """All requests of a run in trie order, by columns of one length. `source` and `group` are places in `sources` and
    `group_ids`; the group of a copy is -1, and its `original` another row. `shared_tokens` is what a prompt has in common
    with the one before it that is answered itself, in the same source. `predicted_tokens` is the likely length
    of the answer and `upper_tokens` one that hardly any such answer exceeds; -1 is not known. A `similarity` that is not a
    number is that of no near-duplicate."""

    sources: Sequence[str]
    group_ids: Sequence[str]
    source: NDArray[np.int32]
    group: NDArray[np.int64]
    original: NDArray[np.int64]
    similarity: NDArray[np.float32]
    prompt_tokens: NDArray[np.int32]
    shared_tokens: NDArray[np.int32]
    n: NDArray[np.int32]
    max_tokens: NDArray[np.int32]
    predicted_tokens: NDArray[np.int32]
    upper_tokens: NDArray[np.int32]

    @property
    def is_copy(self) -> NDArray[np.bool_]:
        return np.asarray(self.original != np.arange(len(self.original)))


class Labels:
    """The strings of a run's requests, by row."""

    def __init__(self, prompts: PromptFile) -> None:
        table = pa.Table.from_batches(list(prompts.labels()))
        self._ids, self._sampling = table["request_id"].combine_chunks(), table["sampling"].combine_chunks()

    def request_ids(self, rows: NDArray[np.int64]) -> pa.Array:
        return self._ids.take(pa.array(rows))

    def keys(self, rows: NDArray[np.int64], choices: NDArray[np.int32]) -> NDArray[np.uint64]:
        """The identities of these requests' choices, under which the journal files their tokens: hashes of the ids in UTF-8,
        salted with the choice."""
        _, offsets, text = self._ids.take(pa.array(rows)).cast(pa.large_binary()).buffers()
        salts = np.zeros((len(rows), 2), np.uint64)
        salts[:, 0] = choices
        return content_hashes(
            np.frombuffer(text or b"", np.uint8), np.frombuffer(offsets, np.int64)[: len(rows) + 1], salts
        )[:, 0]

    def distinct_sampling(self, rows: NDArray[np.int64]) -> list[str]:
        """The parameters that these requests have, each once."""
        return list(self._sampling.take(pa.array(rows)).unique().to_pylist())

    def rows_of(self, request_ids: Sequence[str]) -> NDArray[np.int64]:
        """Where each of these requests is."""
        return np.asarray(pc.index_in(pa.array(request_ids, pa.string()), value_set=self._ids), np.int64)

    def sampling(self, rows: NDArray[np.int64]) -> pa.Array:
        return self._sampling.take(pa.array(rows))


def write_groups(path: Path, table: GroupTable, labels: Labels) -> None:
    """Write the groups table, a slice at a time."""
    sources, group_ids = pa.array(table.sources, pa.string()), pa.array(table.group_ids, pa.string())
    with writing_table(path, GROUPS) as writer:
        for begin in range(0, len(table.source), _ROWS_AT_ONCE):
            part = slice(begin, begin + _ROWS_AT_ONCE)
            original = table.original[part]
            rows = np.arange(begin, begin + len(original))
            is_copy = original != rows
            columns: dict[str, Any] = {name: getattr(table, name)[part] for name in _NUMBERS}
            columns |= {
                "position": rows,
                "request_id": labels.request_ids(rows),
                "source": sources.take(pa.array(table.source[part])),
                "group_id": group_ids.take(pa.array(table.group[part], mask=is_copy)),
                "duplicate_of": labels.request_ids(np.where(is_copy, original, rows)).filter(pa.array(is_copy)),
                "similarity": pa.array(table.similarity[part], mask=np.isnan(table.similarity[part])),
                "predicted_tokens": _known(table.predicted_tokens[part]),
                "upper_tokens": _known(table.upper_tokens[part]),
            }
            places = np.cumsum(is_copy) - 1
            columns["duplicate_of"] = columns["duplicate_of"].take(pa.array(places, mask=~is_copy))
            writer.extend(columns, len(rows))


def _known(lengths: NDArray[np.int32]) -> pa.Array:
    return pa.array(lengths, mask=lengths < 0)


def read_groups(path: Path) -> GroupTable:
    """The groups table as it was written. Raises DamageError when it is not readable."""
    try:
        wanted = [name for name in GROUPS.names if name != "position"]
        table = pq.read_table(path, columns=wanted, read_dictionary=["source", "group_id"], page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise DamageError(f"{path} is damaged: {error}") from error
    source, sources = _coded(table["source"])
    group, group_ids = _coded(table["group_id"])
    rows = np.arange(len(table))
    original, copies = rows.copy(), np.flatnonzero(np.asarray(table["duplicate_of"].is_valid()))
    if len(copies):
        named = table["duplicate_of"].combine_chunks().take(pa.array(copies))
        original[copies] = np.asarray(pc.index_in(named, value_set=table["request_id"].combine_chunks()))
    numbers = {name: np.asarray(table[name].combine_chunks().fill_null(-1)) for name in _NUMBERS}
    similarity = np.asarray(table["similarity"].combine_chunks().fill_null(float("nan")))
    return GroupTable(sources, group_ids, source.astype(np.int32), group, original.astype(np.int64), similarity, **numbers)


def _coded(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], list[str]]:
    """Each row's place in the strings that there are, in their order; -1 for none."""
    encoded = column.unify_dictionaries().combine_chunks()
    return np.asarray(encoded.indices.fill_null(-1), np.int64), encoded.dictionary.to_pylist()


def read_plan_rows(path: Path) -> NDArray[np.int64]:
    """The rows in the prompts' file of the plan's sequences, in order."""
    return np.asarray(pq.read_table(path, columns=["prompt"], page_checksum_verification=True)["prompt"].combine_chunks())


class PlanWriter:
    """Planned sequences in, a slice at a time, by their columns."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def append(self, **columns: Any) -> None:
        """All columns of the plan but the positions, which count on. Sources and group ids are places in a list of names."""
        number = len(columns["key"])
        begin = self._writer.num_rows
        columns["predicted_tokens"] = _known(columns["predicted_tokens"])
        for name in ("source", "group_id"):
            places, names = columns[name]
            columns[name] = pa.array(names, pa.string()).take(pa.array(places))
        self._writer.extend({**columns, "position": np.arange(begin, begin + number)}, number)


@contextmanager
def plan_writer(path: Path) -> Iterator[PlanWriter]:
    """Writes a new plan."""
    with writing_table(path, PLAN) as writer:
        yield PlanWriter(writer)
