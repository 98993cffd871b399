"""Tables that others wrote: Parquet, Arrow IPC files and streams, Feather; row by row as plain Python values.

Text stays text, whatever its Arrow type. Times become ISO 8601 with the unit and zone that they have, decimals their digits,
bytes text where they are UTF-8. A field that a struct does not have in a row is left out of it.
"""

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tasks.core.errors import DamageError

_ROWS = 1024
_MAGIC = b"ARROW1"


def read_table_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file, a batch in memory at a time. Raises DamageError when it is no such file or is damaged."""
    try:
        for batch in read_batches(path):
            yield from ({name: _plain(value) for name, value in row.items()} for row in _readable(batch).to_pylist())
    except pa.ArrowException as error:
        raise DamageError(f"{path.name}: not readable as a table: {error}") from error


def read_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a file as they are stored. Raises ArrowException when it is no such file or is damaged."""
    if path.suffix.lower() in (".parquet", ".pq"):
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=_ROWS)
        return
    with pa.memory_map(str(path)) as source:
        if source.read(len(_MAGIC)) == _MAGIC:
            reader = pa.ipc.open_file(source)
            yield from (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            source.seek(0)
            yield from pa.ipc.open_stream(source)


def table_schema(path: Path) -> pa.Schema:
    """The names and types of a file's columns. Raises ArrowException as `read_batches` does."""
    if path.suffix.lower() in (".parquet", ".pq"):
        return pq.read_schema(path)
    with pa.memory_map(str(path)) as source:
        is_file = source.read(len(_MAGIC)) == _MAGIC
        source.seek(0)
        with pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source) as reader:
            return reader.schema


def _readable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Timestamps as text: Python's have no nanoseconds."""
    columns = [pc.cast(column, pa.string()) if pa.types.is_timestamp(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {name: _plain(inner) for name, inner in value.items() if inner is not None}
        case list():
            return [_plain(inner) for inner in value]
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta() | Decimal():
            return str(value)
        case bytes():
            return value.decode("utf-8", "replace")
        case float() if value != value:  # how a data frame says that there is none
            return None
    return value
