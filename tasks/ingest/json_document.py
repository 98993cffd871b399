"""One JSON document to its rows: an array of objects, alone or under a record path; in the memory of one row.

The rows of an array have no lines of their own, so they are counted from 1. An object without a record path is looked
through for the first array of objects in it.
"""

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

import ijson

from tasks.ingest.rows import Fault, Row, raw_text


def read_json_document(stream: BinaryIO, record_path: str | None) -> Iterator[Row]:
    """Each element of the array at `record_path` (names with dots between them; the document itself where it is None)."""
    number = 0
    try:
        for value in ijson.items(stream, _prefix(record_path), use_float=True):
            number += 1
            yield _row(number, value)
    except ijson.JSONError as error:
        yield Row(number + 1, None, "", Fault("malformed_json", f"not valid JSON behind element {number}: {error}"))
        return
    if number == 0:
        where = repr(record_path) if record_path else "the document"
        yield Row(0, None, "", Fault("no_records", f"{where} is no array with elements (--record-path names another)"))


def _prefix(record_path: str | None) -> str:
    return f"{record_path}.item" if record_path else "item"


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
