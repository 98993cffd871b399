"""Rows to the bytes of a text format. UTF-8 without a byte order mark; text is never changed.

CSV is RFC 4180's, lines ending in CR LF, so that a cell may hold any line break. A value that is no text stands in its
cell as JSON, nothing as an empty cell; what begins with = stays as it is.
"""

import csv
import json
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

import orjson

from tasks.export.columns import as_json


class JsonLines:
    """One JSON object a line."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def append(self, row: Mapping[str, Any]) -> None:
        try:
            self._stream.write(orjson.dumps(row, default=str, option=orjson.OPT_APPEND_NEWLINE))
        except TypeError:  # orjson writes no whole number of more than 64 bits
            self._stream.write(json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=str).encode() + b"\n")


class Csv:
    """A header with these names, and one record a row."""

    def __init__(self, stream: BinaryIO, names: Iterable[str]) -> None:
        self._names = list(names)
        self._writer = csv.writer(_Utf8(stream), lineterminator="\r\n")
        self._writer.writerow(self._names)

    def append(self, row: Mapping[str, Any]) -> None:
        self._writer.writerow([_cell(row.get(name)) for name in self._names])


class _Utf8:
    """Text in, bytes out, without a buffer that would have to be emptied at the end."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(text.encode())


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else as_json(value)
