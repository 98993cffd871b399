"""Which reader a file gets, and what becomes of one that is cut off or damaged: its rows up to there, and one fault."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import orjson

from tasks.core.config import RowConfig
from tasks.core.errors import DamageError
from tasks.ingest.finding.sources import SourceFile
from tasks.ingest.reading.blocks import Block, read_jsonl_blocks
from tasks.ingest.reading.delimited import read_csv
from tasks.ingest.reading.encodings import Explained
from tasks.ingest.reading.json_document import has_records, names_to_array, read_records, read_values
from tasks.ingest.reading.jsonl import BOM, read_jsonl
from tasks.ingest.reading.records import paths_of, records_in
from tasks.ingest.reading.text import read_document, read_text
from tasks.ingest.rows import Fault, Row, raw_text, unsupported
from tasks.storage.streams import BROKEN, COMPRESSIONS, OnBytes, is_transcoded, open_bytes, peek
from tasks.storage.tables import TableError, read_table_rows

_HEAD = 65_536


class _Meter:
    """Passes on how many bytes were read, and in the end that it were all of them, however the reading went."""

    def __init__(self, size: int, on_bytes: Callable[[int], None]) -> None:
        self._left = size
        self._on_bytes = on_bytes

    def __call__(self, num_bytes: int) -> None:
        num_bytes = min(num_bytes, self._left)
        if num_bytes:
            self._left -= num_bytes
            self._on_bytes(num_bytes)

    def finish(self) -> None:
        self(self._left)


def read_file(file: SourceFile, config: RowConfig, on_bytes: OnBytes | None = None) -> Iterator[Row]:
    """The rows of a file in order; `on_bytes` hears how many more of the file's bytes have been read, in the end all."""
    return _whole(lambda meter: _records(file, config, meter), file, config, on_bytes)


def read_file_in_blocks(file: SourceFile, config: RowConfig, on_bytes: OnBytes | None = None) -> Iterator[Row | Block]:
    """The same, but the lines of JSON lines a block at a time, where each is a row whose fields stand for themselves."""
    is_jsonl = (config.format or file.format) == "jsonl" and config.record_path is None and config.prompt_template is None
    if not is_jsonl:
        return read_file(file, config, on_bytes)
    return _whole(lambda meter: read_jsonl_blocks(file.path, config.encoding, meter), file, config, on_bytes)


_R = TypeVar("_R", Row, Block)


def _whole(
    read: Callable[[OnBytes | None], Iterator[_R]], file: SourceFile, config: RowConfig, on_bytes: OnBytes | None
) -> Iterator[_R | Row]:
    """The rows, and one fault more when the file ends too early."""
    explained = Explained(file.path, config.encoding)
    meter: _Meter | None = None
    last = 0
    try:
        if on_bytes:
            meter = _Meter(file.path.stat().st_size, on_bytes)
        for row in read(meter):
            last = max(last, row.last_line if isinstance(row, Block) else row.line)
            if isinstance(row, Block):
                row.explained = explained
                yield row
            else:
                yield explained(row)
    except (*BROKEN, DamageError) as error:
        message = f"cut off or damaged behind row {last}: {error}" if last else f"cut off or damaged: {error}"
        yield Row(last + 1, None, "", Fault("damaged_file", message))
    except TableError as error:
        yield Row(last + 1 if last else 0, None, "", Fault("malformed_table", str(error)))
    if meter:
        meter.finish()


def _records(file: SourceFile, config: RowConfig, on_bytes: OnBytes | None) -> Iterator[Row]:
    """The file's rows, or the records in them where the rows are nested and a path leads into them."""
    rows = _rows(file, config, on_bytes)
    kind = config.format or file.format
    if config.record_path and kind in ("csv", "tsv", "txt", "document"):
        return iter([Row(0, None, "", Fault("no_records", f"--record-path leads into nested rows, and {kind} has none"))])
    is_nested = kind in ("jsonl", "parquet", "arrow")
    return records_in(rows, config.record_path) if config.record_path and is_nested else rows


def _rows(file: SourceFile, config: RowConfig, on_bytes: OnBytes | None) -> Iterator[Row]:
    match config.format or file.format:
        case "jsonl":
            return read_jsonl(file.path, encoding=config.encoding, on_bytes=on_bytes)
        case "json":
            return _read_json(file, config, on_bytes)
        case "csv":
            return read_csv(file.path, delimiter=None, encoding=config.encoding, on_bytes=on_bytes)
        case "tsv":
            return read_csv(file.path, delimiter="\t", encoding=config.encoding, on_bytes=on_bytes)
        case "txt":
            return read_text(file.path, config, on_bytes)
        case "document":
            return read_document(file.path, file.name, config, on_bytes)
        case "parquet" | "arrow" if file.path.suffix.lower() not in COMPRESSIONS:
            return _read_table(file, on_bytes)
        case _:
            return iter([unsupported(file.name)])


def _read_table(file: SourceFile, on_bytes: OnBytes | None) -> Iterator[Row]:
    for number, content in enumerate(read_table_rows(file.path, on_bytes), 1):
        text = json.dumps(content, ensure_ascii=False, default=str).encode("utf-8", "replace")
        yield Row(number, None, raw_text(text), content, True)


def _read_json(file: SourceFile, config: RowConfig, on_bytes: OnBytes | None) -> Iterator[Row]:
    """An array, an object with an array in it, objects one after another, or JSON lines under another name."""
    with open_bytes(file.path, config.encoding) as stream:
        bom, head = (BOM, peek(stream, _HEAD)) if peek(stream, 3) == BOM else (b"", peek(stream, _HEAD))
        head = head.removeprefix(bom)
        is_array, is_lines = head.lstrip().startswith(b"["), _is_lines(head)
        stream.read(len(bom))
        own_fields = (config.prompt_column, config.messages_column, "body", "params", "conversations")
        is_table = not is_array and not is_lines and not _is_sequence(head) and has_records(stream, own_fields)
    if is_lines and not is_array:
        lines = read_jsonl(file.path, encoding=config.encoding, on_bytes=on_bytes)
        yield from records_in(lines, config.record_path) if config.record_path else lines
    elif config.record_path:
        yield from _read_records(file, config, config.record_path, len(bom), on_bytes)
    else:
        with open_bytes(file.path, config.encoding, on_bytes) as stream:
            offset = None if is_transcoded(stream) else len(bom)
            stream.read(len(bom))
            yield from read_records(stream, offset, None) if is_table else read_values(stream, offset)


def _read_records(
    file: SourceFile, config: RowConfig, record_path: str, start: int, on_bytes: OnBytes | None
) -> Iterator[Row]:
    """The records of a document, path by path and numbered on, in the memory of one element of the outermost array."""
    before = last = 0
    for names in paths_of(record_path):
        with open_bytes(file.path, config.encoding) as stream:
            stream.read(start)
            count = names_to_array(stream, names)
        with open_bytes(file.path, config.encoding, on_bytes) as stream:
            offset = None if is_transcoded(stream) else start
            stream.read(start)
            rows = read_records(stream, offset, ".".join(names[:count])) if count else read_values(stream, offset)
            within = names[count or 0 :]  # without an array on the way the document is one row
            for row in records_in(rows, ".".join(within)) if within else rows:
                last = before + (row.line or min(before, 1))  # only the first path's fault may stand on line 0
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


def _is_sequence(head: bytes) -> bool:
    """Whether another value stands behind the first."""
    text = head.lstrip().decode("utf-8", "replace")
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return False
    return bool(text[end:].strip())
