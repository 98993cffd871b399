"""What to do about rows whose bytes are no text in the encoding that their file is read in."""

import codecs
from dataclasses import replace
from pathlib import Path

from tasks.ingest.rows import NOT_UTF8, Fault, Row
from tasks.storage.streams import BROKEN, is_transcoded, open_bytes

_BLOCK_BYTES = 1 << 16
_MAX_BLOCKS = 1024
_AROUND_BYTES = 12
_MAX_SHOWN = 4
_LIKELY = ["cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp932", "gb18030", "big5", "euc_jp"]
_LIKELY += ["euc_kr", "koi8_r", "utf_16_le", "utf_16_be"]


class Explained:
    """Adds to the faults of one file's rows what its encoding may be and how it is named. Nothing is decoded by a guess."""

    def __init__(self, path: Path, encoding: str | None) -> None:
        self._path = path
        self._encoding = encoding
        self._remedy: str | None = None

    def __call__(self, row: Row) -> Row:
        fault = row.content
        if not isinstance(fault, Fault) or not fault.message.startswith(NOT_UTF8):
            return row
        if self._remedy is None:
            self._remedy = self._found()
        return replace(row, content=Fault(fault.reason, self._remedy or f"{fault.message}; convert the file to UTF-8"))

    def _found(self) -> str:
        """The whole message, where there is more to say than the reader of the row could."""
        try:
            with open_bytes(self._path, self._encoding) as stream:
                if is_transcoded(stream):
                    return f"not valid {self._encoding or 'UTF-16 or UTF-32'}, in which the file is read"
            likely = likely_encodings(self._path)
        except BROKEN:
            return ""
        if not likely:
            return ""
        shown = ", ".join(f"as {name} it reads {text!r}" for name, text in likely)
        return f"{NOT_UTF8}; {shown}: name the right one, as in --encoding {likely[0][0]}, or convert the file to UTF-8"


def likely_encodings(path: Path) -> list[tuple[str, str]]:
    """What a file that is not UTF-8 may be encoded in, the likeliest first, and how the first text that tells reads then."""
    from charset_normalizer import from_bytes

    decoder = codecs.getincrementaldecoder("utf-8")()
    with open_bytes(path, "utf-8") as stream:
        for _ in range(_MAX_BLOCKS):
            block = stream.read(_BLOCK_BYTES)
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                found = from_bytes(block, cp_isolation=_LIKELY)
                around = error.object[max(0, error.start - _AROUND_BYTES) : error.start + _AROUND_BYTES]
                names = ["cp1252"] if _is_decodable(block, "cp1252") else []  # by far the most usual
                names += [name for match in found for name in (match.encoding, *match.could_be_from_charset)]
                readings = {name: around.decode(name, "replace").strip() for name in dict.fromkeys(names)}
                distinct = {text: name for name, text in reversed(readings.items())}
                return [(name.replace("_", "-"), text) for text, name in reversed(distinct.items())][:_MAX_SHOWN]
            if not block:
                break
    return []


def _is_decodable(data: bytes, encoding: str) -> bool:
    try:
        data.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True
