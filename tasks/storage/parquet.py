"""The tables: their declared schemas, and reading and writing them whole.

Every part of a table has exactly the schema written here, so a plain glob over parts is right. The only importer of
pyarrow besides the query room.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tasks.core.errors import DamageError
from tasks.storage.atomic import replacing_dir, replacing_file
from tasks.storage.checksums import write_checksums
from tasks.storage.layout import PART

_TOKENS = pa.list_(pa.int32())

REQUESTS = pa.schema(
    [
        ("ds", pa.string()),
        ("request_id", pa.string()),
        ("custom_id", pa.string()),
        ("source", pa.string()),
        ("file", pa.string()),
        ("line", pa.int64()),
        ("requested_model", pa.string()),
        ("messages", pa.string()),
        ("tools", pa.string()),
        ("text", pa.string()),
        ("sampling", pa.string()),
        ("n", pa.int32()),
        ("max_tokens", pa.int32()),
        ("priority", pa.int32()),
        ("deadline", pa.timestamp("us", "UTC")),
        ("truncated_tokens", pa.int32()),
        ("prompt_tokens", pa.int32()),
        ("prompt_token_ids", _TOKENS),
    ]
)

REJECTS = pa.schema(
    [
        ("ds", pa.string()),
        ("source", pa.string()),
        ("file", pa.string()),
        ("line", pa.int64()),
        ("byte_offset", pa.int64()),
        ("custom_id", pa.string()),
        ("reason", pa.string()),
        ("message", pa.string()),
        ("raw", pa.string()),
    ]
)

GROUPS = pa.schema(
    [
        ("request_id", pa.string()),
        ("source", pa.string()),
        ("group_id", pa.string()),
        ("position", pa.int64()),
        ("prompt_tokens", pa.int32()),
        ("shared_tokens", pa.int32()),
        ("n", pa.int32()),
        ("max_tokens", pa.int32()),
        ("predicted_tokens", pa.int32()),
        ("upper_tokens", pa.int32()),
        ("duplicate_of", pa.string()),
        ("similarity", pa.float32()),
    ]
)

PLAN = pa.schema(
    [
        ("position", pa.int64()),
        ("key", pa.uint64()),
        ("request_id", pa.string()),
        ("choice_index", pa.int32()),
        ("batch_id", pa.int64()),
        ("source", pa.string()),
        ("group_id", pa.string()),
        ("bucket", pa.int32()),
        ("max_tokens", pa.int32()),
        ("predicted_tokens", pa.int32()),
        ("prompt_tokens", pa.int32()),
        ("sampling", pa.string()),
        ("prompt", pa.int64()),
    ]
)

RESULTS = pa.schema(
    [
        ("run_id", pa.string()),
        ("request_id", pa.string()),
        ("custom_id", pa.string()),
        ("source", pa.string()),
        ("model", pa.string()),
        ("choice_index", pa.int32()),
        ("status", pa.string()),
        ("finish_reason", pa.string()),
        ("stop_reason", pa.string()),
        ("prompt_tokens", pa.int32()),
        ("output_tokens", pa.int32()),
        ("cached_tokens", pa.int32()),
        ("output_text", pa.string()),
        ("is_valid_json", pa.bool_()),
        ("output_token_ids", _TOKENS),
        ("logprobs", pa.list_(pa.float32())),
        ("top_logprobs", pa.list_(pa.list_(pa.struct([("token_id", pa.int32()), ("logprob", pa.float32())])))),
        ("error", pa.string()),
        ("duplicate_of", pa.string()),
        ("similarity", pa.float32()),
        ("batch_id", pa.int64()),
        ("bucket", pa.int32()),
        ("file", pa.string()),
        ("line", pa.int64()),
    ]
)

FAILURES = pa.schema(
    [
        ("run_id", pa.string()),
        ("request_id", pa.string()),
        ("custom_id", pa.string()),
        ("source", pa.string()),
        ("model", pa.string()),
        ("choice_index", pa.int32()),
        ("status", pa.string()),
        ("error", pa.string()),
        ("file", pa.string()),
        ("line", pa.int64()),
    ]
)

TELEMETRY = pa.schema(
    [
        ("run_id", pa.string()),
        ("session", pa.string()),
        ("engine", pa.int32()),
        ("time", pa.timestamp("us", "UTC")),
        ("time_s", pa.float64()),
        ("card_uuid", pa.string()),
        ("card_index", pa.int32()),
        ("card_name", pa.string()),
        ("temperature_c", pa.float32()),
        ("memory_temperature_c", pa.float32()),
        ("margin_c", pa.float32()),
        ("memory_margin_c", pa.float32()),
        ("power_w", pa.float32()),
        ("energy_j", pa.float64()),
        ("sm_clock_mhz", pa.int32()),
        ("memory_clock_mhz", pa.int32()),
        ("requested_w", pa.float32()),
        ("enforced_w", pa.float32()),
        ("utilization", pa.float32()),
        ("memory_used_bytes", pa.int64()),
        ("throttle", pa.list_(pa.string())),
        ("thermal_ns", pa.int64()),
        ("power_cap_ns", pa.int64()),
        ("sm_activity", pa.float32()),
        ("dram_activity", pa.float32()),
        ("tensor_activity", pa.float32()),
        ("pcie_generation", pa.int32()),
        ("pcie_width", pa.int32()),
        ("pcie_replays", pa.int64()),
        ("nvlinks_active", pa.int32()),
        ("ecc_errors", pa.int64()),
        ("xid", pa.int32()),
        ("set_clock_mhz", pa.int32()),
        ("set_power_w", pa.float32()),
        ("set_max_num_seqs", pa.int32()),
        ("state", pa.string()),
        ("reason", pa.string()),
        ("life", pa.int32()),
        ("counted_s", pa.float64()),
        ("steps", pa.int64()),
        ("running", pa.int32()),
        ("waiting", pa.int32()),
        ("kv_use", pa.float32()),
        ("prefix_queries", pa.int64()),
        ("prefix_hits", pa.int64()),
        ("preemptions", pa.int64()),
        ("prefilled_tokens", pa.int64()),
        ("generated_tokens", pa.int64()),
    ]
)
"""A card at one moment, what the governor had set, and the engine's counters since the start of its life; a row without a
card where a machine has none. Names and units are those of Sample, Setting (with set_) and EngineCounters."""

_ROWS_PER_GROUP = 4096
_VALUES_PER_GROUP = 8_000_000
"""Token ids and characters, so that a group of long prompts fits into memory."""
_BYTES_PER_GROUP = 16 << 20

Row = Mapping[str, Any]
Schema: TypeAlias = pa.Schema
Batch: TypeAlias = pa.RecordBatch


def batch_of(rows: Sequence[Row], schema: pa.Schema) -> Batch:
    """Rows in the form that tables keep them in. Raises ValueError when a value does not fit the schema."""
    try:
        batch: Batch = pa.RecordBatch.from_pylist(list(rows), schema=schema)
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise ValueError(str(error)) from error
    return batch


@dataclass(frozen=True, slots=True)
class Constant:
    """A column that has one value in all rows."""

    value: Any


class TableWriter:
    """Rows in, row groups out; one at a time, or many by their columns."""

    def __init__(self, writer: pq.ParquetWriter, schema: pa.Schema) -> None:
        self._writer = writer
        self._schema = schema
        self._rows: list[Row] = []
        self._num_values = 0
        self._batches: list[pa.RecordBatch] = []
        self._num_bytes = 0
        self.num_rows = 0

    def append(self, row: Row) -> None:
        """Keep a row for the next row group. Raises pyarrow.ArrowInvalid when a value does not fit the schema."""
        self._rows.append(row)
        self._num_values += sum(len(value) for value in row.values() if isinstance(value, Sized))
        self.num_rows += 1
        if len(self._rows) >= _ROWS_PER_GROUP or self._num_values >= _VALUES_PER_GROUP:
            self.flush()

    def add(self, batch: Batch) -> None:
        """Keep many rows for the next row group, as `batch_of` makes them."""
        self._batches.append(batch)
        self._num_bytes += batch.nbytes  # not summed anew: tiny files make thousands of batches
        self.num_rows += batch.num_rows
        if self._num_bytes >= _BYTES_PER_GROUP:
            self.flush()

    def extend(self, columns: Mapping[str, Sequence[Any] | Constant], num_rows: int) -> None:
        """Keep many rows for the next row group, given by their columns."""
        arrays = [_column(columns[field.name], field.type, num_rows) for field in self._schema]
        self.add(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def flush(self) -> None:
        """Hand the kept rows over as one row group."""
        if self._rows:
            self._batches += pa.Table.from_pylist(self._rows, schema=self._schema).to_batches()
        self._writer.write_table(pa.Table.from_batches(self._batches, schema=self._schema))
        self._rows, self._num_values, self._batches, self._num_bytes = [], 0, [], 0


def _column(values: Sequence[Any] | Constant, kind: pa.DataType, num_rows: int) -> pa.Array:
    if isinstance(values, Constant):
        return pa.repeat(pa.scalar(values.value, kind), num_rows)
    return pa.array(values, kind)


@contextmanager
def writing_table(path: Path, schema: pa.Schema) -> Iterator[TableWriter]:
    """A Parquet file that appears when the block ends well, and not otherwise."""
    with (
        replacing_file(path) as temporary,
        pq.ParquetWriter(temporary, schema, compression="zstd", write_page_checksum=True) as writer,
    ):
        table = TableWriter(writer, schema)
        yield table
        table.flush()


@contextmanager
def replacing_table(folder: Path, schema: pa.Schema) -> Iterator[TableWriter]:
    """A folder with a table and its checksums, that takes the place of `folder` when the block ends well."""
    with replacing_dir(folder) as temporary:
        with writing_table(temporary / PART, schema) as table:
            yield table
        write_checksums(temporary)


def write_table(folder: Path, schema: pa.Schema, rows: Iterable[Row]) -> int:
    """Write a whole table into its folder; its number of rows."""
    with replacing_table(folder, schema) as table:
        for row in rows:
            table.append(row)
    return table.num_rows


def read_rows(
    paths: Path | Sequence[Path], columns: Sequence[str] | None = None, *, without: Mapping[str, Sequence[int]] = {}
) -> Iterator[dict[str, Any]]:
    """The rows of one or several files in order, a row group's worth in memory at a time; not those that have one of the
    values that `without` gives for a column. Raises DamageError when a file is not what was written."""
    for path in [paths] if isinstance(paths, Path) else paths:
        for batch in _read_batches(path, columns):
            yield from _filtered(batch, without).to_pylist()


def _read_batches(path: Path, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            yield from file.iter_batches(batch_size=_ROWS_PER_GROUP, columns=columns and list(columns))
    except (FileNotFoundError, PermissionError):
        raise
    except (pa.ArrowException, OSError) as error:
        raise DamageError(f"{path} is damaged: {error}") from error


def read_column(path: Path | str, name: str) -> Iterator[list[Any]]:
    """One column of a file, a row group at a time. Raises DamageError when it is not what was written."""
    for batch in _read_batches(Path(path), [name]):
        yield batch[name].to_pylist()


def _filtered(batch: pa.RecordBatch, without: Mapping[str, Sequence[int]]) -> pa.RecordBatch:
    for name, values in without.items():
        is_in = pc.is_in(batch[name], value_set=pa.array(values, batch[name].type))
        batch = batch.filter(pc.invert(is_in))
    return batch


def count_rows(path: Path) -> int:
    """The number of rows, read from the footer alone."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except pa.ArrowException as error:
        raise DamageError(f"{path} is damaged: {error}") from error
