"""Row and Fault: what a file's reader hands over, one at a time, each with the place where it stands.

Every row comes out exactly once: as fields, or as a Fault that says what is wrong with it. Nothing is guessed about
types: CSV cells stay text.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_ROW_BYTES = 128 << 20
"""A longer row is read over, not into memory: it is no prompt, but a file without line breaks."""

_MAX_RAW_BYTES = 65_536

NOT_UTF8 = "not valid UTF-8"
"""How the message of a row begins that is no text in its file's encoding."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a row is no row: a reason code and a sentence."""

    reason: str
    message: str


class RowError(Exception):
    """Says on the way out of a row's checks what becomes its Fault."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Row:
    """One row as it stands in the file. `line` counts from 1; `raw` is its text, cut at 64 KiB. Text cells: from CSV.

    A fault of the file as a whole stands on line 0. `up` is the object that encloses a record found within a larger one, and
    has under that name what encloses it in its turn.
    """

    line: int
    byte_offset: int | None
    raw: str
    content: Mapping[str, Any] | Fault
    has_text_cells: bool = False
    up: Mapping[str, Any] | None = None


def as_unicode(text: str) -> str:
    """Text that tables can hold, from a name whose bytes need not be UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def raw_text(data: bytes) -> str:
    """The beginning of a row's bytes, for people."""
    return data[:_MAX_RAW_BYTES].rstrip(b"\r\n").decode("utf-8", "replace")


_COMPRESSED_TABLES = tuple(
    f".{table}.{ending}"
    for table in ("parquet", "pq", "arrow", "arrows", "feather", "ipc")
    for ending in ("gz", "bz2", "xz", "zst")
)
_REMEDIES = {
    (".xlsx", ".xls", ".xlsm", ".ods"): "save the sheet as CSV (UTF-8)",
    (".orc", ".avro"): "convert it to Parquet or JSON lines",
    (".zip", ".tar", ".tgz", ".7z", ".rar"): "unpack it",
    (".lz4", ".br", ".z", ".lzma", ".snappy", ".sz"): "decompress it, or compress it as .gz or .zst",
}


def unsupported(name: str) -> Row:
    """The one row that stands for a file of a kind that is not read."""
    kinds = (
        "read are .jsonl, .ndjson, .json, .csv, .tsv, .txt, .parquet, .arrow, .arrows and .feather, the first six also as "
    )
    message = f"{name}: {kinds}.gz, .bz2, .xz or .zst (--format tells, where the name does not)"
    remedy = next((remedy for endings, remedy in _REMEDIES.items() if name.lower().endswith(endings)), None)
    if name.lower().endswith(_COMPRESSED_TABLES):
        remedy = "decompress it: tables of columns are compressed within"
    return _of_file("unsupported_format", f"{message}; {remedy}" if remedy else message)


def _of_file(reason: str, message: str) -> Row:
    return Row(0, 0, "", Fault(reason, message))
