"""Plain text to its rows: a prompt a line. Blank lines are not rows."""

from collections.abc import Iterator
from pathlib import Path

from tasks.ingest.rows import MAX_ROW_BYTES, Fault, Row, raw_text, utf16
from tasks.storage.streams import open_bytes, peek


def read_text(path: Path, prompt_column: str) -> Iterator[Row]:
    """Each line that is not blank, as a row with its text as the prompt."""
    with open_bytes(path) as stream:
        if fault := utf16(peek(stream, 2), path.name):
            yield fault
            return
        offset = 0
        for number, line in enumerate(iter(lambda: stream.readline(MAX_ROW_BYTES), b""), 1):
            data = line.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n")
            if data.strip():
                yield Row(number, offset, raw_text(data), _content(data, prompt_column))
            offset += len(line)


def _content(data: bytes, prompt_column: str) -> dict[str, str] | Fault:
    try:
        return {prompt_column: data.decode("utf-8")}
    except UnicodeDecodeError as error:
        return Fault("encoding", f"not valid UTF-8 at byte {error.start} of the line; convert the file to UTF-8")
