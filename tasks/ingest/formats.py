"""Which reader a file gets, and what becomes of one that is cut off or damaged: its rows up to there, and one fault."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import orjson

from tasks.core.config import RowConfig
from tasks.core.errors import DamageError
from tasks.ingest.blocks import Block, read_jsonl_blocks
from tasks.ingest.delimited import read_csv
from tasks.ingest.json_document import names_to_array, read_json_document, record_path_of
from tasks.ingest.jsonl import parse_row, read_jsonl
from tasks.ingest.records import paths_of, records_in
from tasks.ingest.rows import MAX_ROW_BYTES, Fault, Row, raw_text, unsupported, utf16
from tasks.ingest.sharegpt import is_sharegpt
from tasks.ingest.sources import SourceFile
from tasks.ingest.text import read_text
from tasks.storage.streams import BROKEN, open_bytes, peek
from tasks.storage.tables import read_table_rows

_HEAD = 65_536


def read_file(file: SourceFile, config: RowConfig, on_bytes: Callable[[int], None] = lambda _: None) -> Iterator[Row]:
    """The rows of a file in order; `on_bytes` hears how many more of the file's bytes have been read."""
    return _whole(_records(file, config), file, on_bytes)


def read_file_in_blocks(file: SourceFile, config: RowConfig, on_bytes: Callable[[int], None]) -> Iterator[Row | Block]:
    """The same, but the lines of JSON lines a block at a time, where each is a row whose fields stand for themselves."""
    is_jsonl = (config.format or file.format) == "jsonl" and config.record_path is None and config.prompt_template is None
    return _whole(read_jsonl_blocks(file.path) if is_jsonl else _records(file, config), file, on_bytes)


_R = TypeVar("_R", Row, Row | Block)


def _whole(rows: Iterator[_R], file: SourceFile, on_bytes: Callable[[int], None]) -> Iterator[_R | Row]:
    """The rows, and one fault more when the file ends too early."""
    last = 0
    try:
        for row in rows:
            last = max(last, row.last_line if isinstance(row, Block) else row.line)
            yield row
        on_bytes(file.path.stat().st_size)
    except (*BROKEN, DamageError) as error:
        message = f"cut off or damaged behind row {last}: {error}" if last else f"cut off or damaged: {error}"
        yield Row(last + 1, None, "", Fault("damaged_file", message))


def _records(file: SourceFile, config: RowConfig) -> Iterator[Row]:
    """The file's rows, or the records in them where the rows are nested and a path leads into them."""
    rows = _rows(file, config)
    is_nested = (config.format or file.format) in ("jsonl", "parquet", "arrow")
    return records_in(rows, config.record_path) if config.record_path and is_nested else rows


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
        if begins_array and not config.record_path:
            yield from read_json_document(stream, None)
            return
    if not begins_array and _is_lines(head):
        lines = read_jsonl(file.path)
        yield from records_in(lines, config.record_path) if config.record_path else lines
        return
    if config.record_path:
        yield from _read_records(file, config.record_path)
        return
    with open_bytes(file.path) as stream:
        path = None if len(head) < _HEAD and _is_request(head, config) else record_path_of(stream)
    with open_bytes(file.path) as stream:
        if path is not None:
            yield from read_json_document(stream, path)
        else:
            data = stream.read(MAX_ROW_BYTES)
            yield Row(1, 0, raw_text(data), parse_row(data))


def _read_records(file: SourceFile, record_path: str) -> Iterator[Row]:
    """The records of a document, path by path and numbered on, in the memory of one element of the outermost array."""
    before = last = 0
    for names in paths_of(record_path):
        with open_bytes(file.path) as stream:
            count = names_to_array(stream, names)
        with open_bytes(file.path) as stream:
            for row in read_json_document(stream, ".".join(names[:count]) or None, names[count:]):
                last = before + row.line
                yield replace(row, line=last)
        before = max(last, 1)


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
