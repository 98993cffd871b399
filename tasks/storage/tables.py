"""Tables that others wrote: Parquet, Arrow IPC files and streams, Feather; row by row as plain Python values.

What a file is, its first bytes say. Text stays text, whatever its Arrow type. Times become ISO 8601 with the unit and zone
that they have, decimals their digits, bytes text where they are UTF-8, maps with names objects. A field that a struct does
not have in a row is left out of it.
"""

from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tasks.core.errors import DamageError

_MAX_ROWS = 512
_BATCH_BYTES = 8 << 20
_BUFFER_BYTES = 1 << 20
_ARROW, _PARQUET, _ENCRYPTED, _FEATHER_1 = b"ARROW1", b"PAR1", b"PARE", b"FEA1"


class TableError(Exception):
    """A whole table that cannot be read as rows, though it is not damaged; the message says why and what to do."""


def read_table_rows(path: Path, on_bytes: Callable[[int], None] | None = None) -> Iterator[dict[str, Any]]:
    """The rows of a file, a batch in memory at a time; `on_bytes` hears of each batch's share of the file's bytes.

    Raises DamageError when it is no such file or is damaged, and TableError when it is of a kind that is not read.
    """
    size, told = path.stat().st_size, 0
    try:
        for _, part, done in _parts(path):
            rows = part.to_pylist() if part.num_columns else [{} for _ in range(part.num_rows)]
            yield from ({name: _plain(value) for name, value in row.items()} for row in rows)
            if on_bytes:
                on_bytes(int(size * done) - told)
                told = int(size * done)
    except (pa.ArrowException, ValueError, OverflowError, UnicodeDecodeError) as error:
        raise DamageError(f"{path.name}: not readable as a table: {error}") from error


def _check_names(path: Path, schema: pa.Schema) -> None:
    names = schema.names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise TableError(f"{path.name}: two columns are named {twice!r}; rename one of them")


def _parts(path: Path) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch, float]]:
    """Some hundred rows at a time, as they are stored and as they are read, and how much of the file is done with them.

    They are validated, as what is read from a damaged file may lead Python anywhere in memory; that both are made here is
    why whoever reads either comes to an end at the same row.
    """
    for batch, done in _batches(path):
        _check_names(path, batch.schema)
        for start in range(0, batch.num_rows, _MAX_ROWS):
            part = batch.slice(start, _MAX_ROWS)
            part.validate(full=True)
            yield part, _readable(part), done


def _batches(path: Path) -> Iterator[tuple[pa.RecordBatch, float]]:
    """Each batch, and how much of the file is done with it, of 1."""
    with path.open("rb") as file:
        magic = file.read(len(_ARROW))
    if magic.startswith(_FEATHER_1):
        raise TableError(f"{path.name}: Feather of version 1 is not read; write it again with pyarrow, or as Parquet")
    if magic.startswith(_ENCRYPTED):
        raise TableError(f"{path.name}: the Parquet file is encrypted; write it without encryption")
    if magic.startswith(_PARQUET):
        yield from _parquet(path)
        return
    with pa.OSFile(str(path)) as source:  # no memory map: a file that is cut while it is read would end the process
        if magic == _ARROW:
            reader = pa.ipc.open_file(source)
            total = reader.num_record_batches
            yield from ((reader.get_batch(i), (i + 1) / total) for i in range(total))
        else:
            size = max(1, source.size())
            yield from ((batch, source.tell() / size) for batch in pa.ipc.open_stream(source))


def _parquet(path: Path) -> Iterator[tuple[pa.RecordBatch, float]]:
    with pq.ParquetFile(path, buffer_size=_BUFFER_BYTES) as file:
        about = file.metadata
        _check_names(path, file.schema_arrow)
        groups = [about.row_group(i) for i in range(about.num_row_groups)]
        widest = max((group.total_byte_size / group.num_rows for group in groups if group.num_rows), default=1)
        done = 0
        for batch in file.iter_batches(batch_size=int(max(1, min(_MAX_ROWS, _BATCH_BYTES / max(1, widest))))):
            done += batch.num_rows
            yield batch, done / max(1, about.num_rows)


def read_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a file as they are stored. Raises ArrowException when it is no such file or is damaged, or TableError."""
    return (part for part, _, _ in _parts(path))


def table_schema(path: Path) -> pa.Schema:
    """The names and types of a file's columns. Raises ArrowException when it is no such file or is damaged."""
    with path.open("rb") as file:
        magic = file.read(len(_ARROW))
    if magic.startswith(_PARQUET):
        return pq.read_schema(path)
    open_table = pa.ipc.open_file if magic == _ARROW else pa.ipc.open_stream
    with pa.OSFile(str(path)) as source, open_table(source) as reader:
        return reader.schema


def _readable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Times as text, also within lists and structs: Python's have no nanoseconds and end with the year 9999."""
    columns = [_cast(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names) if columns else batch


def _cast(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    wanted = _text_type(column.type)
    return column if wanted == column.type else pc.cast(column, wanted)


def _text_type(kind: pa.DataType) -> pa.DataType:
    """The type with text in the place of times."""
    types = pa.types
    if types.is_timestamp(kind) or types.is_time(kind) or types.is_date(kind):
        return pa.string()
    if types.is_duration(kind):
        return pa.int64()
    if types.is_struct(kind):
        return pa.struct([kind.field(i).with_type(_text_type(kind.field(i).type)) for i in range(kind.num_fields)])
    if types.is_map(kind):
        return pa.map_(_text_type(kind.key_type), _text_type(kind.item_type))
    if types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_text_type(kind.value_type)), kind.list_size)
    for is_kind, make in _LISTS:
        if is_kind(kind):
            return make(kind.value_field.with_type(_text_type(kind.value_type)))
    return kind


_LISTS = (
    (pa.types.is_list, pa.list_),
    (pa.types.is_large_list, pa.large_list),
    (pa.types.is_list_view, pa.list_view),
    (pa.types.is_large_list_view, pa.large_list_view),
)


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {name: _plain(inner) for name, inner in value.items() if inner is not None}
        case list() if value and isinstance(value[0], tuple):  # a map
            pairs = [(_plain(name), _plain(inner)) for name, inner in value]
            named = dict(pairs) if all(isinstance(name, str) for name, _ in pairs) else {}
            return named if len(named) == len(pairs) else [list(pair) for pair in pairs]
        case list():
            return [_plain(inner) for inner in value]
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta() | Decimal() | UUID():
            return str(value)
        case bytes():
            return value.decode("utf-8", "replace")
        case float() if value != value:  # how a data frame says that there is none
            return None
    return value
