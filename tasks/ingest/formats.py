"""Which reader a file gets, and what becomes of one that is cut off or damaged: its rows up to there, and one fault."""

import json
from collections.abc import Callable, Iterator

import orjson

from tasks.core.config import RowConfig
from tasks.core.errors import DamageError
from tasks.ingest.delimited import read_csv
from tasks.ingest.json_document import read_json_document, record_path_of
from tasks.ingest.jsonl import parse_row, read_jsonl
from tasks.ingest.rows import MAX_ROW_BYTES, Fault, Row, raw_text, unsupported, utf16
from tasks.ingest.sharegpt import is_sharegpt
from tasks.ingest.sources import SourceFile
from tasks.ingest.text import read_text
from tasks.storage.streams import BROKEN, open_bytes, peek
from tasks.storage.tables import read_table_rows

_HEAD = 65_536


def read_file(file: SourceFile, config: RowConfig, on_bytes: Callable[[int], None] = lambda _: None) -> Iterator[Row]:
    """The rows of a file in order; `on_bytes` hears how many more of the file's bytes have been read."""
    last = 0
    try:
        for row in _rows(file, config):
            last = max(last, row.line)
            yield row
        on_bytes(file.path.stat().st_size)
    except (*BROKEN, DamageError) as error:
        message = f"cut off or damaged behind row {last}: {error}" if last else f"cut off or damaged: {error}"
        yield Row(last + 1, None, "", Fault("damaged_file", message))


def _rows(file: SourceFile, config: RowConfig) -> Iterator[Row]:
    match config.format or file.format:
        case "jsonl":
            return read_jsonl(file.path)
        case "json":
            return _read_json(file, config)
        case "csv":
            return read_csv(file.path, delimiter=None)
        case "tsv":
            return read_csv(file.path, delimiter="\t")
        case "txt":
            return read_text(file.path, config.prompt_column)
        case "parquet" | "arrow":
            return _read_table(file)
        case _:
            return iter([unsupported(file.name)])


def _read_table(file: SourceFile) -> Iterator[Row]:
    for number, content in enumerate(read_table_rows(file.path), 1):
        text = json.dumps(content, ensure_ascii=False, default=str).encode("utf-8", "replace")
        yield Row(number, None, raw_text(text), content, True)


def _read_json(file: SourceFile, config: RowConfig) -> Iterator[Row]:
    """An array, an object with an array in it, one object, or JSON lines under another name."""
    with open_bytes(file.path) as stream:
        head = peek(stream, _HEAD)
        if fault := utf16(head[:2], file.name):
            yield fault
            return
        begins_array = head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")
        if begins_array or config.record_path:
            yield from read_json_document(stream, config.record_path)
            return
    if _is_lines(head):
        yield from read_jsonl(file.path)
        return
    with open_bytes(file.path) as stream:
        path = None if len(head) < _HEAD and _is_request(head, config) else record_path_of(stream)
    with open_bytes(file.path) as stream:
        if path is not None:
            yield from read_json_document(stream, path)
        else:
            data = stream.read(MAX_ROW_BYTES)
            yield Row(1, 0, raw_text(data), parse_row(data))


def _is_lines(head: bytes) -> bool:
    """Whether the first line is a whole JSON value with more behind it."""
    first, _, rest = head.lstrip().partition(b"\n")
    try:
        orjson.loads(first)
    except orjson.JSONDecodeError:
        return False
    return bool(rest.strip())


def _is_request(head: bytes, config: RowConfig) -> bool:
    """Whether a small document is one request by itself."""
    try:
        value = orjson.loads(head)
    except orjson.JSONDecodeError:
        return False
    if not isinstance(value, dict):
        return False
    names = {config.prompt_column, config.messages_column, "body", "params"}
    return not value.keys().isdisjoint(names) or is_sharegpt(value.get("conversations"))
