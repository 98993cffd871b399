"""Outcomes as rows of a table, one a choice: by themselves, or beside the input's own columns.

Beside the input's, the answers' columns have a prefix that no column of the input has. In CSV and JSON lines the input's
values are as they were read; in Parquet the columns of a table file keep their types, and those of a text file get one:
text, whole number, number or truth value where all values are such, else JSON text.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any, BinaryIO

from tasks.export.columns import COLUMNS, Kinds, Row, answer_prefix, as_kind
from tasks.export.join import Beside, Original
from tasks.export.settings import CSV, PARQUET
from tasks.export.writers import Csv, JsonLines
from tasks.storage.frames import file_frames, file_schema, frame_writer, row_frame, row_writer, schema_of, united

_CHUNK = 1024


def write_rows(stream: BinaryIO, form: str, outcomes: Iterator[Row]) -> None:
    """The outcomes by themselves."""
    if form == PARQUET:
        with row_writer(stream, COLUMNS) as table:
            for row in outcomes:
                table.append(row)
        return
    text = Csv(stream, COLUMNS) if form == CSV else JsonLines(stream)
    for row in outcomes:
        text.append(row)


def write_joined(stream: BinaryIO, form: str, files: Sequence[Original], outcomes: Iterator[Row]) -> None:
    """The outcomes beside the rows of these files, both in the same order."""
    kinds = Kinds()
    for original in files:
        if form != PARQUET or not original.is_table:
            for _, row in original.rows():
                kinds.add(row)
    beside = Beside(outcomes)
    if form == PARQUET:
        _write_frames(stream, files, kinds.columns, beside)
    else:
        _write_text(stream, form, files, list(kinds.columns), beside)


def _write_text(stream: BinaryIO, form: str, files: Sequence[Original], names: list[str], beside: Beside) -> None:
    prefix = answer_prefix(names)
    text = Csv(stream, [*names, *_prefixed(prefix)]) if form == CSV else JsonLines(stream)
    for original in files:
        for line, content in original.rows():
            for choice in beside.choices(original, line):
                text.append({**content, **_answer(choice, prefix)})
        beside.end(original)


def _write_frames(stream: BinaryIO, files: Sequence[Original], kinds: Mapping[str, str], beside: Beside) -> None:
    schema = united([schema_of(kinds), *(file_schema(original.path) for original in files if original.is_table)])
    prefix = answer_prefix(schema.names)
    with frame_writer(stream, schema, schema_of(_prefixed(prefix))) as table:
        for original in files:
            for frame, lines in _table_frames(original) if original.is_table else _text_frames(original, kinds):
                choices = [beside.choices(original, line) for line in lines]
                table.append(frame, [[_answer(choice, prefix) for choice in of_row] for of_row in choices])
            beside.end(original)


def _table_frames(original: Original) -> Iterator[tuple[Any, list[int]]]:
    first = next((line for line, _ in original.rows()), None)
    if first == 0:  # what stands for a file of a kind that is not read
        yield row_frame([{}], {}), [0]
        return
    lines = count(1)
    for frame in file_frames(original.path):
        yield frame, list(islice(lines, frame.num_rows))


def _text_frames(original: Original, kinds: Mapping[str, str]) -> Iterator[tuple[Any, list[int]]]:
    rows = original.rows()
    while chunk := list(islice(rows, _CHUNK)):
        typed = [{name: as_kind(value, kinds[name]) for name, value in row.items()} for _, row in chunk]
        yield row_frame(typed, kinds), [line for line, _ in chunk]


def _prefixed(prefix: str) -> dict[str, str]:
    return {f"{prefix}{name}": kind for name, kind in COLUMNS.items()}


def _answer(choice: Row, prefix: str) -> dict[str, Any]:
    return {f"{prefix}{name}": choice[name] for name in COLUMNS}
