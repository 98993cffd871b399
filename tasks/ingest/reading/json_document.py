"""JSON documents to their rows, in the memory of one row: an array of objects, alone or within an object, or objects alone.

The rows of a document have no lines of their own, so they are counted from 1. Each is parsed by itself: a bad one costs
itself. Commas that are missing or too many are forgiven, as what is a row does not depend on them.
"""

import json
from collections.abc import Callable, Collection, Iterator
from typing import BinaryIO

from tasks.ingest.reading.json_scan import Scanner, TornError
from tasks.ingest.reading.jsonl import parse_row
from tasks.ingest.reading.records import Names
from tasks.ingest.rows import Fault, Row, raw_text


def read_values(stream: BinaryIO, offset: int | None) -> Iterator[Row]:
    """Each value of the stream, and each element of those that are arrays. `offset` is that of the stream in its file."""
    return _guarded(lambda scanner, counted: _values(scanner, counted), stream, offset)


def read_records(stream: BinaryIO, offset: int | None, record_path: str | None) -> Iterator[Row]:
    """Each element of the array at `record_path` (names with dots between them), or of the first array of objects."""
    return _guarded(lambda scanner, counted: _records(scanner, counted, record_path), stream, offset)


def has_records(stream: BinaryIO, fields: Collection[str]) -> bool:
    """Whether an object has an array of objects in it and is no row by itself: a row has one of these fields."""
    scanner = Scanner(stream)
    try:
        return _descend(scanner, None, fields) is not None
    except TornError:
        return False


def names_to_array(stream: BinaryIO, names: Names) -> int | None:
    """How many of the names lead to the first array on their way; None where there is none. Reads no further."""
    try:
        return _names_to_array(Scanner(stream), names)
    except TornError:
        return None  # whoever reads the rows comes to the same place and says so


def _names_to_array(scanner: Scanner, names: Names) -> int | None:
    for count, wanted in enumerate(names):
        if (byte := scanner.peek()) == b"[":
            return count
        if byte != b"{":
            return None
        scanner.enter()
        while (byte := scanner.peek()) == b'"':
            if _text(scanner.key()) == wanted:
                break
            scanner.peek()
            scanner.skip()
        if byte != b'"':
            return None
    return len(names) if scanner.peek() == b"[" else None


class _Counted:
    """Makes rows of values, counted."""

    def __init__(self, offset: int | None) -> None:
        self._offset = offset
        self.number = 0

    def row(self, scanner: Scanner) -> Row:
        offset = None if self._offset is None else self._offset + scanner.offset
        data = scanner.value()
        self.number += 1
        return Row(self.number, offset, raw_text(data), parse_row(data))


def _guarded(rows: Callable[[Scanner, _Counted], Iterator[Row]], stream: BinaryIO, offset: int | None) -> Iterator[Row]:
    counted = _Counted(offset)
    try:
        yield from rows(Scanner(stream), counted)
    except TornError as error:
        message = f"not valid JSON behind element {counted.number}: {error}"
        yield Row(counted.number + 1, None, "", Fault("malformed_json", message))


def _values(scanner: Scanner, counted: _Counted) -> Iterator[Row]:
    while byte := scanner.peek():
        if byte == b"[":
            scanner.enter()
            yield from _elements(scanner, counted)
        else:
            yield counted.row(scanner)
    if counted.number == 0:
        yield _no_records("the document")


def _elements(scanner: Scanner, counted: _Counted) -> Iterator[Row]:
    while scanner.peek() != b"]":
        yield counted.row(scanner)
    scanner.enter()


def _records(scanner: Scanner, counted: _Counted, record_path: str | None) -> Iterator[Row]:
    depth = _descend(scanner, record_path, ())
    if depth is not None:
        yield from _elements(scanner, counted)
        scanner.leave(depth)
        if scanner.peek():
            message = "behind the document with the rows stands another one, which is not read; put it into its own file"
            yield Row(counted.number + 1, None, "", Fault("malformed_json", message))
    if counted.number == 0:
        yield _no_records(repr(record_path) if record_path else "the document")


def _no_records(where: str) -> Row:
    return Row(0, None, "", Fault("no_records", f"{where} is no array with elements (--record-path names another)"))


def _descend(scanner: Scanner, path: str | None, own_fields: Collection[str]) -> int | None:
    """Into the array at `path`, or the first one that holds objects; how many objects are open around it.

    None when there is none, or when the outermost object has one of `own_fields`.
    """
    if scanner.peek() != b"{":
        return None
    scanner.enter()
    prefixes = [""]
    while prefixes:
        if (byte := scanner.peek()) == b"}":
            scanner.enter()
            prefixes.pop()
            continue
        if byte != b'"':
            raise TornError("a name in quotes was expected")
        name = _text(scanner.key())
        if len(prefixes) == 1 and name in own_fields:
            return None
        here = f"{prefixes[-1]}.{name}" if prefixes[-1] else name
        byte = scanner.peek()
        if byte == b"{" and (path is None or path.startswith(f"{here}.")):
            scanner.enter()
            prefixes.append(here)
        elif byte == b"[" and path in (None, here):
            scanner.enter()
            if path is not None or scanner.peek() == b"{":
                return len(prefixes)
            scanner.leave(1)
        else:
            scanner.skip()
    return None


def _text(name: bytes) -> str:
    try:
        return str(json.loads(name.decode("utf-8", "replace")))
    except ValueError:
        return ""
