"""One JSON document to its rows: an array of objects, alone or under a record path; in the memory of one of its elements.

The rows of an array have no lines of their own, so they are counted from 1. An object without a record path is looked
through for the first array of objects in it.
"""

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

import ijson

from tasks.ingest.records import Names, row_of, walk
from tasks.ingest.rows import Fault, Row, raw_text


def read_json_document(stream: BinaryIO, record_path: str | None, within: Names = ()) -> Iterator[Row]:
    """Each element of the array at `record_path` (names with dots between them; the document itself where it is None), or
    the records that the names `within` lead to from each element."""
    number = 0
    try:
        for value in ijson.items(stream, _prefix(record_path), use_float=True):
            for row in _rows(number, value, within):
                number = row.line
                yield row
    except ijson.JSONError as error:
        yield Row(number + 1, None, "", Fault("malformed_json", f"not valid JSON behind element {number}: {error}"))
        return
    if number == 0:
        where = repr(record_path) if record_path else "the document"
        yield Row(0, None, "", Fault("no_records", f"{where} is no array with elements (--record-path names another)"))


def _prefix(record_path: str | None) -> str:
    return f"{record_path}.item" if record_path else "item"


def _rows(before: int, value: Any, within: Names) -> Iterator[Row]:
    """The rows of an element, numbered on."""
    row = _row(before + 1, value)
    if not within or (isinstance(row.content, Fault) and row.content.reason == "encoding"):
        yield row
        return
    for number, found in enumerate(walk(value, within), before + 1):
        yield row_of(number, found)


def names_to_array(stream: BinaryIO, names: Names) -> int:
    """How many of the names lead to the first array on their way; all of them where there is none. Reads no further."""
    prefixes = {".".join(names[:count]): count for count in range(len(names) + 1)}
    try:
        for prefix, event, _ in ijson.parse(stream, use_float=True):
            if event == "start_array" and prefix in prefixes:
                return prefixes[prefix]
    except ijson.JSONError:
        pass  # whoever reads the rows comes to the same place and says so
    return len(names)


def _row(number: int, value: Any) -> Row:
    text = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict):
        fault = Fault("not_an_object", f"a JSON object was expected, not {type(value).__name__}")
        return Row(number, None, raw_text(text.encode("utf-8", "surrogatepass")), fault)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        fault = Fault("encoding", "not valid Unicode: half of a surrogate pair, as when an emoji is cut in two")
        return Row(number, None, "", fault)
    return Row(number, None, raw_text(text.encode()), value)


def record_path_of(stream: BinaryIO) -> str | None:
    """Where the first array of objects in an object lies; None when there is none. Reads no further than to it."""
    for prefix, event, _ in ijson.parse(stream, use_float=True):
        if event == "start_map" and prefix.endswith(".item"):
            return str(prefix.removesuffix(".item"))
    return None
