"""What to do about rows whose bytes are no text in the encoding that their file is read in."""

import codecs
from dataclasses import replace
from pathlib import Path

from tasks.ingest.rows import NOT_UTF8, Fault, Row
from tasks.storage.streams import BROKEN, is_transcoded, open_bytes

_BLOCK_BYTES = 1 << 16
_MAX_BLOCKS = 1024
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
            likely = likely_encoding(self._path)
        except BROKEN:
            return ""
        if likely is None:
            return ""
        return f"{NOT_UTF8}; the file looks like {likely}: say so with --encoding {likely}, or convert it to UTF-8"


def likely_encoding(path: Path) -> str | None:
    """What a file that is not UTF-8 is probably encoded in, by the text around the first byte that tells."""
    from charset_normalizer import from_bytes

    decoder = codecs.getincrementaldecoder("utf-8")()
    with open_bytes(path, "utf-8") as stream:
        for _ in range(_MAX_BLOCKS):
            block = stream.read(_BLOCK_BYTES)
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError:
                best = from_bytes(block, cp_isolation=_LIKELY).best()
                return best.encoding.replace("_", "-") if best else None
            if not block:
                return None
    return None
