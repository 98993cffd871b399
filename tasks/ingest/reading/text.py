"""Plain text to its rows: a prompt a line, where blank lines are not rows, or a prompt a file."""

from collections.abc import Iterator
from pathlib import Path

from tasks.core.config import RowConfig
from tasks.ingest.reading.jsonl import BOM, skip_line, too_large
from tasks.ingest.rows import MAX_ROW_BYTES, NOT_UTF8, Fault, Row, raw_text
from tasks.storage.streams import OnBytes, is_transcoded, open_bytes


def read_text(
    path: Path, config: RowConfig, on_bytes: OnBytes | None = None, max_row_bytes: int = MAX_ROW_BYTES
) -> Iterator[Row]:
    """Each line that is not blank, as a row with its text as the prompt."""
    with open_bytes(path, config.encoding, on_bytes) as stream:
        number, offset, has_offset = 1, 0, not is_transcoded(stream)
        while line := stream.readline(max_row_bytes):
            is_cut = len(line) == max_row_bytes and not line.endswith(b"\n")
            rest = skip_line(stream) if is_cut else 0
            data = line.removeprefix(BOM).rstrip(b"\r\n")
            if is_cut or data.strip():
                content = too_large(max_row_bytes) if is_cut else _content(data, config.prompt_column)
                yield Row(number, offset if has_offset else None, raw_text(data), content)
            number, offset = number + 1, offset + len(line) + rest


def read_document(path: Path, name: str, config: RowConfig, on_bytes: OnBytes | None = None) -> Iterator[Row]:
    """The whole file as one row, whose prompt is its text and whose id is its name."""
    with open_bytes(path, config.encoding, on_bytes) as stream:
        data = stream.read(MAX_ROW_BYTES + 1).removeprefix(BOM)
    if len(data) > MAX_ROW_BYTES:
        yield Row(1, 0, raw_text(data), Fault("row_too_large", f"the file is longer than {MAX_ROW_BYTES:,} bytes"))
        return
    content = _content(data, config.prompt_column)
    yield Row(1, 0, raw_text(data), content if isinstance(content, Fault) else {config.id_column or "id": name} | content)


def _content(data: bytes, prompt_column: str) -> dict[str, str] | Fault:
    try:
        return {prompt_column: data.decode("utf-8")}
    except UnicodeDecodeError as error:
        return Fault("encoding", f"{NOT_UTF8} at byte {error.start} of the line")
