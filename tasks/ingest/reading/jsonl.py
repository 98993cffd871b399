"""A JSON-lines file to its rows, in the memory of one row. Blank lines are not rows."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from tasks.ingest.rows import MAX_ROW_BYTES, NOT_UTF8, Fault, Row, raw_text
from tasks.storage.streams import OnBytes, is_transcoded, open_bytes

_LONG_NUMBER = re.compile(rb"[0-9]{19}")
BOM = b"\xef\xbb\xbf"


def read_jsonl(
    path: Path, max_row_bytes: int = MAX_ROW_BYTES, *, encoding: str | None = None, on_bytes: OnBytes | None = None
) -> Iterator[Row]:
    """Each line that is not blank, as a row. Offsets are those in the uncompressed file; None where it is not UTF-8."""
    with open_bytes(path, encoding, on_bytes) as stream:
        number, offset, has_offset = 1, 0, not is_transcoded(stream)
        while line := stream.readline(max_row_bytes):
            is_cut = len(line) == max_row_bytes and not line.endswith(b"\n")
            rest = skip_line(stream) if is_cut else 0
            if row := row_of(line, number, offset if has_offset else None, max_row_bytes if is_cut else None):
                yield row
            number, offset = number + 1, offset + len(line) + rest


def row_of(line: bytes, number: int, offset: int | None, cut_at: int | None = None) -> Row | None:
    """A line as a row; None when it is blank. One that was cut, at so many bytes, is a fault."""
    data = line.removeprefix(BOM).rstrip(b"\r\n")  # also where two files with a BOM were put together
    if cut_at is None and not data.strip():
        return None
    return Row(number, offset, raw_text(data), parse_row(data) if cut_at is None else too_large(cut_at))


def skip_line(stream: BinaryIO) -> int:
    """Read to the end of the line; how many bytes that was."""
    size = 0
    while part := stream.readline(1 << 20):
        size += len(part)
        if part.endswith(b"\n"):
            break
    return size


def too_large(max_row_bytes: int) -> Fault:
    """What a line over the limit is."""
    return Fault("row_too_large", f"the line is longer than {max_row_bytes:,} bytes; is there one JSON object a line?")


def parse_row(data: bytes) -> Mapping[str, Any] | Fault:
    """The bytes of one JSON object as a row's fields, or what is wrong with them."""
    try:
        value = orjson.loads(data)
        if _LONG_NUMBER.search(data):
            value = _exact(data, value)
    except orjson.JSONDecodeError as error:
        value = _parse_leniently(data, error)
    if isinstance(value, dict | Fault):
        return value
    return Fault("not_an_object", f"a JSON object was expected, not {type(value).__name__}")


def _exact(data: bytes, value: Any) -> Any:
    """The value with whole numbers beyond 64 bits as they are, of which orjson makes floating point; unless they are beyond
    what Python reads, too."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return value


def _parse_leniently(data: bytes, error: orjson.JSONDecodeError) -> Any:
    """What Python's own json writes though it is no JSON: NaN and Infinity, left to the field that they stand in.

    Else a Fault; text that is no Unicode is told apart from bad syntax.
    """
    try:
        value = json.loads(data.decode("utf-8"))
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as bad:
        return Fault("encoding", f"{NOT_UTF8} at byte {bad.start} of the line")
    except UnicodeEncodeError:
        return Fault("encoding", "not valid Unicode: half of a surrogate pair, as when an emoji is cut in two")
    except (ValueError, RecursionError):
        return Fault("malformed_json", f"not valid JSON: {error}")
    return value
