"""Nested rows to the records in them: a record path is the names that lead to them, with every list on the way walked.

`data.paragraphs.qas` leads to each of the `qas` of each of the `paragraphs`; several paths have commas between them. A
record knows what encloses it as `up`, and what encloses that as `up.up`. Every record comes out once, as a row of its own
with a number of its own in the file; one that is not there, or no object, comes out as a fault.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tasks.ingest.rows import Fault, Row, raw_text

_UP = "up"
Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """What lies at the end of a path, and what encloses it."""

    content: Any
    up: Mapping[str, Any] | None


def paths_of(record_path: str) -> list[Names]:
    """Each path as its names."""
    return [tuple(path.strip().split(".")) for path in record_path.split(",") if path.strip()]


def walk(value: Any, names: Names, up: Mapping[str, Any] | None = None) -> Iterator[Found]:
    """All that these names lead to from a value. A list that is null or empty leads nowhere, and that is no fault."""
    if isinstance(value, list):
        for element in value:
            yield from walk(element, names, up)
    elif not names:
        yield Found(value, up)
    elif not isinstance(value, Mapping):
        wrong = f"no field {names[0]!r} (--record-path) in {type(value).__name__}, where an object was expected"
        yield Found(Fault("no_records", wrong), up)
    elif names[0] not in value:
        fields = ", ".join(map(repr, value)) or "no fields"
        yield Found(Fault("no_records", f"no field {names[0]!r} (--record-path) among {fields}"), up)
    elif (inner := value[names[0]]) is not None:
        yield from walk(inner, names[1:], value if up is None else {**value, _UP: up})


def records_in(rows: Iterable[Row], record_path: str) -> Iterator[Row]:
    """The records within each row, numbered on through the file. A row that is faulty itself is one of them, and says its
    own line."""
    number = 0
    is_empty = True
    paths = paths_of(record_path)
    for row in rows:
        if isinstance(row.content, Fault):
            is_empty = False
            number += row.line > 0
            fault = Fault(row.content.reason, f"line {row.line}: {row.content.message}")
            yield replace(row, line=number, content=fault) if row.line else row
            continue
        for found in (one for names in paths for one in walk(row.content, names)):
            is_empty = False
            number += 1
            yield replace(row_of(number, found), byte_offset=row.byte_offset, has_text_cells=row.has_text_cells)
    if is_empty:
        yield Row(0, None, "", Fault("no_records", f"{record_path!r} leads to no records (--record-path)"))


def row_of(number: int, found: Found) -> Row:
    """A record as a row. What it was found in is known to be Unicode."""
    value = found.content
    if isinstance(value, Fault):
        return Row(number, None, "", value, up=found.up)
    raw = raw_text(json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "surrogatepass"))
    if isinstance(value, dict):
        return Row(number, None, raw, value, up=found.up)
    return Row(number, None, raw, Fault("not_an_object", f"a JSON object was expected, not {type(value).__name__}"))


def field_at(content: Mapping[str, Any], path: str) -> Any:
    """A field by its name or, where there is none of that name, by a path of names and list positions with dots between.

    Raises LookupError when it is not there.
    """
    if path in content:
        return content[path]
    value: Any = content
    for name in path.split("."):
        if isinstance(value, Mapping):
            value = value[name]
        elif isinstance(value, list) and name.isdecimal():
            value = value[int(name)]
        else:
            raise KeyError(name)
    return value
