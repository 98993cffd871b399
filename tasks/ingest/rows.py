"""A file to its rows, one at a time and in bounded memory, each with the place where it stands.

Every row comes out exactly once: as fields, or as a Fault that says what is wrong with it. Nothing is guessed about
types: CSV cells stay text.
"""

import csv
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

_MAX_RAW = 65_536
_DELIMITERS = (",", "\t", ";", "|")
csv.field_size_limit(sys.maxsize)


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a row is no row: a reason code and a sentence."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Row:
    """One row as it stands in the file. `line` counts from 1; `raw` is its text, cut at 64 KiB. Text cells: from CSV."""

    line: int
    byte_offset: int | None
    raw: str
    content: Mapping[str, Any] | Fault
    has_text_cells: bool = False


def read_jsonl(path: Path) -> Iterator[Row]:
    """Rows of a JSON-lines file; blank lines are not rows."""
    with path.open("rb") as stream:
        offset = 0
        for number, line in enumerate(stream, start=1):
            if number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff")):
                yield _file_fault("encoding", f"looks like UTF-16; convert it: iconv -f UTF-16 -t UTF-8 {path.name}")
                return
            data = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if data.strip():
                yield Row(number, offset, _shown(data), _parse(data))
            offset += len(line)


def _parse(data: bytes) -> Mapping[str, Any] | Fault:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        return Fault("malformed_json", f"not valid JSON: {error}")
    if not isinstance(value, dict):
        return Fault("not_an_object", f"a JSON object was expected, not {type(value).__name__}")
    return value


def read_csv(path: Path, *, delimiter: str | None) -> Iterator[Row]:
    """Rows of a delimited file with a header; the delimiter is read off the header when it is not given."""
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
        header_line = stream.readline()
        if header_line.startswith(("\udcff\udcfe", "\udcfe\udcff")):
            yield _file_fault("encoding", f"looks like UTF-16; convert it: iconv -f UTF-16 -t UTF-8 {path.name}")
            return
        stream.seek(0)
        chosen = delimiter or max(_DELIMITERS, key=header_line.count)
        reader = csv.reader(stream, delimiter=chosen)
        header = next(reader, [])
        yield from _csv_rows(reader, header)


def _csv_rows(reader: Any, header: list[str]) -> Iterator[Row]:
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Row(line, None, "", Fault("malformed_csv", f"not valid CSV: {error}"), True)
            continue
        if cells:
            raw = ",".join(cells)
            yield Row(line, None, _shown(raw.encode("utf-8", "surrogateescape")), _record(header, cells), True)


def _record(header: list[str], cells: list[str]) -> Mapping[str, Any] | Fault:
    if len(cells) != len(header):
        return Fault("malformed_csv", f"{len(cells)} cells in a row of a table with {len(header)} columns")
    try:
        "".join(cells).encode("utf-8")
    except UnicodeEncodeError:
        return Fault("encoding", "not valid UTF-8; convert the file to UTF-8")
    return {name: cell for name, cell in zip(header, cells, strict=True) if cell != ""}


def _file_fault(reason: str, message: str) -> Row:
    return Row(0, 0, "", Fault(reason, message))


def unsupported(path: Path) -> Row:
    """The one row that stands for a file of a kind that is not read."""
    return _file_fault("unsupported_format", f"{path.name}: not a .jsonl, .ndjson, .csv or .tsv file; use --format")


def _shown(data: bytes) -> str:
    return data[:_MAX_RAW].rstrip(b"\r\n").decode("utf-8", "replace")
