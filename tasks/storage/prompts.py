"""Prompts by the million: token ids as flat arrays, and the file that holds a run's prompts in the order of their trie.

That file is Arrow IPC (Feather 2) in small compressed batches, which any Arrow reader reads and which is read here by row,
a batch at a time. Strings pass through as Arrow columns: nothing becomes a Python object a row.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tasks.core.errors import DamageError

_TOKENS = pa.list_(pa.int32())
LABELS = pa.schema([("request_id", pa.string()), ("sampling", pa.string()), ("n", pa.int32()), ("max_tokens", pa.int32())])
PROMPTS = pa.schema([*LABELS, ("prompt_token_ids", _TOKENS)])
_ROWS_PER_BATCH = 4096
_TOKENS_PER_BATCH = 1 << 20
_KEPT_BATCHES = 32
"""At most 128 MB of token ids, or a single batch."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """Requests by their columns: `token_ids` int32 and `offsets` int64 (rows + 1) in CSR form, and the rest as in LABELS."""

    token_ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    labels: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def num_tokens(self) -> NDArray[np.int32]:
        return np.diff(self.offsets).astype(np.int32)

    def column(self, name: str) -> NDArray[np.int32]:
        """`n` or `max_tokens`."""
        return np.asarray(self.labels[name])

    def strings(self, name: str) -> list[str]:
        """`request_id` or `sampling`."""
        return list(self.labels[name].to_pylist())

    def codes(self, name: str) -> tuple[NDArray[np.int32], list[str]]:
        """The same as each row's place in a list of those that differ."""
        encoded = self.labels[name].dictionary_encode()
        return np.asarray(encoded.indices), encoded.dictionary.to_pylist()

    def slice(self, begin: int, end: int) -> "Prompts":
        first, last = self.offsets[begin], self.offsets[end]
        return Prompts(
            self.token_ids[first:last], self.offsets[begin : end + 1] - first, self.labels.slice(begin, end - begin)
        )

    def with_rows(self, order: NDArray[np.int64], token_ids: NDArray[np.int32], offsets: NDArray[np.int64]) -> "Prompts":
        """The rows in another order, whose tokens have been put into it."""
        return Prompts(token_ids, offsets, self.labels.take(pa.array(order)))

    def ties_by_id(self, is_tied: NDArray[np.bool_]) -> NDArray[np.int64]:
        """An order in which rows that equal the one before them (`is_tied`) and that one stand by request id."""
        order = np.arange(len(self))
        among = is_tied | np.append(is_tied[1:], False)
        rows = np.flatnonzero(among)
        if len(rows):
            runs = np.cumsum(~is_tied)[rows]
            table = pa.table({"run": runs, "id": self.labels["request_id"].take(pa.array(rows))})
            order[rows] = rows[np.asarray(pc.sort_indices(table, [("run", "ascending"), ("id", "ascending")]))]
        return order


def joined(pieces: Sequence[Prompts]) -> Prompts:
    """All rows of several."""
    if len(pieces) == 1:
        return pieces[0]
    starts = np.cumsum([0, *(len(piece.token_ids) for piece in pieces)])
    offsets = [piece.offsets[:-1] + start for piece, start in zip(pieces, starts[:-1], strict=True)]
    labels = pa.Table.from_batches([piece.labels for piece in pieces], schema=LABELS).combine_chunks().to_batches()
    return Prompts(
        np.concatenate([np.empty(0, np.int32), *(piece.token_ids for piece in pieces)]),
        np.concatenate([*offsets, starts[-1:]]),
        labels[0] if labels else pa.RecordBatch.from_pylist([], schema=LABELS),
    )


def _prompts(batch: pa.RecordBatch) -> Prompts:
    lists = batch["prompt_token_ids"]
    offsets = np.asarray(lists.offsets, np.int64)
    labels = pa.RecordBatch.from_arrays([batch[name] for name in LABELS.names], schema=LABELS)
    return Prompts(np.asarray(lists.values)[offsets[0] : offsets[-1]], offsets - offsets[0], labels)


def read_prompts(path: Path, groups: Sequence[int] | None = None) -> Iterator[Prompts]:
    """The requests of a part of the requests table, or of some of its row groups. Raises DamageError."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            batches = file.iter_batches(_ROWS_PER_BATCH, row_groups=groups, columns=PROMPTS.names, use_threads=False)
            yield from map(_prompts, batches)
    except (FileNotFoundError, PermissionError):
        raise
    except (pa.ArrowException, OSError) as error:
        raise DamageError(f"{path} is damaged: {error}") from error


@dataclass(frozen=True, slots=True)
class PartFacts:
    """What a part of the requests table says without its rows being read. Every part is of one source."""

    path: Path
    source: str
    num_row_groups: int
    num_tokens: int


def part_facts(path: Path) -> PartFacts:
    """Raises DamageError when the part is not what was written."""
    try:
        with pq.ParquetFile(path) as file:
            about = file.metadata
            source = file.read_row_group(0, ["source"])["source"][0].as_py()
            tokens = sum(pc.sum(batch["prompt_tokens"]).as_py() for batch in file.iter_batches(columns=["prompt_tokens"]))
            return PartFacts(path, source, about.num_row_groups, tokens)
    except (pa.ArrowException, OSError, IndexError) as error:
        raise DamageError(f"{path} is damaged: {error}") from error


class PromptWriter:
    """Rows in, batches out, in the order in which they come."""

    def __init__(self, writer: pa.ipc.RecordBatchFileWriter) -> None:
        self._writer = writer
        self.num_rows = 0

    def append(self, prompts: Prompts) -> None:
        begins = [0]
        for row in range(0, len(prompts), _ROWS_PER_BATCH):
            end = min(row + _ROWS_PER_BATCH, len(prompts))
            while begins[-1] < end:
                fits = int(np.searchsorted(prompts.offsets, prompts.offsets[begins[-1]] + _TOKENS_PER_BATCH, "right")) - 1
                begins.append(min(end, max(fits, begins[-1] + 1)))
        for begin, end in pairwise(begins):
            self._write(prompts.slice(begin, end))
        self.num_rows += len(prompts)

    def _write(self, prompts: Prompts) -> None:
        lists = pa.ListArray.from_arrays(pa.array(prompts.offsets.astype(np.int32)), pa.array(prompts.token_ids))
        self._writer.write_batch(pa.RecordBatch.from_arrays([*prompts.labels.columns, lists.cast(_TOKENS)], schema=PROMPTS))


@contextmanager
def prompt_writer(path: Path, compression: str = "zstd") -> Iterator[PromptWriter]:
    """Writes a new file of prompts."""
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=True)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, PROMPTS, options=options) as writer:
        yield PromptWriter(writer)


class PromptFile:
    """A file of prompts, read by row; some of its batches are kept in memory. Raises DamageError when it is not readable."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._source = pa.OSFile(str(path))
            self._reader = pa.ipc.open_file(self._source)
            labels = pa.ipc.IpcReadOptions(included_fields=[PROMPTS.names.index("n")])
            narrow = pa.ipc.open_file(self._source, options=labels)
            sizes = [narrow.get_batch(i).num_rows for i in range(narrow.num_record_batches)]
        except (pa.ArrowException, OSError) as error:
            raise DamageError(f"{path} is damaged: {error}") from error
        self._starts = np.cumsum([0, *sizes])
        self._kept: OrderedDict[int, Prompts] = OrderedDict()

    def __enter__(self) -> "PromptFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()

    def __len__(self) -> int:
        return int(self._starts[-1])

    def batches(self) -> Iterator[Prompts]:
        """All rows in order."""
        return (self._batch(i) for i in range(len(self._starts) - 1))

    def labels(self) -> Iterator[pa.RecordBatch]:
        """All rows in order, without their tokens."""
        wanted = [PROMPTS.names.index(name) for name in LABELS.names]
        reader = pa.ipc.open_file(self._source, options=pa.ipc.IpcReadOptions(included_fields=wanted))
        return (reader.get_batch(i) for i in range(reader.num_record_batches))

    def token_ids(self, row: int) -> NDArray[np.int32]:
        """One prompt's tokens."""
        place = int(np.searchsorted(self._starts, row, "right")) - 1
        prompts = self._kept.get(place)
        if prompts is None:
            prompts = self._kept[place] = self._batch(place)
            while len(self._kept) > _KEPT_BATCHES:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(place)
        at = row - int(self._starts[place])
        return prompts.token_ids[prompts.offsets[at] : prompts.offsets[at + 1]]

    def _batch(self, place: int) -> Prompts:
        try:
            return _prompts(self._reader.get_batch(place))
        except (pa.ArrowException, OSError) as error:
            raise DamageError(f"{self._path} is damaged: {error}") from error
