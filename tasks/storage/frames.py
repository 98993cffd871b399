"""Input rows and their answers side by side in one Parquet file, the input's columns with the types that they have.

An input row of several answers stands there once for each; a row that could not be read has NULL in the input's columns.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.core.errors import InputError
from tasks.storage.parquet import TableWriter
from tasks.storage.tables import read_batches, table_schema

_KINDS = {"text": pa.string(), "json": pa.string(), "int": pa.int64(), "long": pa.int64(), "float": pa.float64()}
_KINDS |= {"bool": pa.bool_()}

Row = Mapping[str, Any]


def schema_of(kinds: Mapping[str, str]) -> pa.Schema:
    """The columns of rows of plain values: each name's kind is text, json, int, long, float or bool."""
    return pa.schema([(name, _KINDS[kind]) for name, kind in kinds.items()])


def file_schema(path: Path) -> pa.Schema:
    """The columns of a table file; of one that cannot be read there are none."""
    try:
        schema = table_schema(path).remove_metadata()
        return pa.schema([field.with_type(_stored(field.type)) for field in schema])
    except (pa.ArrowException, OSError):
        return pa.schema([])


def _stored(kind: pa.DataType) -> pa.DataType:
    """The type that a Parquet file gives back: views, at whatever depth, become what they are views of."""
    types = pa.types
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_struct(kind):
        return pa.struct([kind.field(i).with_type(_stored(kind.field(i).type)) for i in range(kind.num_fields)])
    if types.is_list_view(kind) or types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_stored(kind.value_type)))
    if types.is_large_list_view(kind) or types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_stored(kind.value_type)))
    return kind


def united(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The columns of all files. Raises InputError when one column has two types."""
    try:
        return pa.unify_schemas(schemas)
    except pa.ArrowException as error:
        hint = "export one source at a time with --source, or with --format jsonl"
        raise InputError(f"the input files' columns do not fit into one table: {error}; {hint}") from error


def file_frames(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a table file; where it is cut off or damaged, a last row without columns stands for the rest."""
    try:
        yield from read_batches(path)
    except (pa.ArrowException, OSError):
        yield _nothing(1)


def row_frame(rows: Sequence[Row], kinds: Mapping[str, str]) -> pa.RecordBatch:
    """Rows of plain values."""
    return pa.RecordBatch.from_pylist(rows, schema=schema_of(kinds)) if kinds else _nothing(len(rows))


def _nothing(num_rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.array([{}] * num_rows, pa.struct([])))


class FrameWriter:
    """Frames of the input and the answers to each of their rows in, a Parquet file out."""

    def __init__(self, writer: pq.ParquetWriter, original: pa.Schema, answers: pa.Schema) -> None:
        self._writer = writer
        self._original = original
        self._answers = answers

    def append(self, frame: pa.RecordBatch, answers: Sequence[Sequence[Row]]) -> None:
        """Write each row as often as it has answers."""
        times = pa.array([place for place, of_row in enumerate(answers) for _ in of_row], pa.int64())
        columns = [self._column(frame, field, times) for field in self._original]
        beside = pa.RecordBatch.from_pylist([answer for of_row in answers for answer in of_row], schema=self._answers)
        self._writer.write_batch(pa.RecordBatch.from_arrays([*columns, *beside.columns], schema=self._writer.schema))

    def _column(self, frame: pa.RecordBatch, field: pa.Field, times: pa.Array) -> pa.Array:
        if field.name not in frame.schema.names:
            return pa.nulls(len(times), field.type)
        return frame.column(field.name).cast(field.type).take(times)


@contextmanager
def frame_writer(stream: BinaryIO, original: pa.Schema, answers: pa.Schema) -> Iterator[FrameWriter]:
    """Writes Parquet to the stream. Raises InputError where Parquet has no such type as a column's."""
    try:
        with pq.ParquetWriter(stream, pa.schema([*original, *answers]), compression="zstd") as writer:
            yield FrameWriter(writer, original, answers)
    except pa.ArrowNotImplementedError as error:
        raise InputError(f"Parquet cannot hold a column of the input: {error}; export with --format jsonl") from error


@contextmanager
def row_writer(stream: BinaryIO, kinds: Mapping[str, str]) -> Iterator[TableWriter]:
    """Writes rows of plain values to the stream as Parquet."""
    with pq.ParquetWriter(stream, schema_of(kinds), compression="zstd") as writer:
        table = TableWriter(writer, schema_of(kinds))
        yield table
        table.flush()
