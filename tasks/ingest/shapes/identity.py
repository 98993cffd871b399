"""A row's own id to the text that names it, to the character as it stands in the file."""

from typing import Any

from tasks.ingest.rows import RowError
from tasks.ingest.shapes.values import whole

MAX_CHARS = 512


def is_blank(custom_id: Any) -> bool:
    return custom_id is None or (isinstance(custom_id, str) and not custom_id.strip())


def identity(custom_id: Any) -> str | None:
    """The id as text, or None where the row has none. A whole number stands for its digits, 7.0 for 7 as well: a column of
    ids becomes floating point when one of them is missing."""
    if is_blank(custom_id):
        return None
    number = whole(custom_id)
    if isinstance(number, bool) or not isinstance(number, str | int):
        raise RowError("invalid_id", f"the id must be text or a whole number, not {type(custom_id).__name__}")
    name = str(number)
    if "\0" in name or len(name) > MAX_CHARS:
        raise RowError("invalid_id", f"the id must be at most {MAX_CHARS} characters, without a NUL among them")
    return name


def shown(custom_id: Any) -> str | None:
    """The id for a row's reject, as far as it can be made out."""
    number = whole(custom_id)
    return str(number)[:MAX_CHARS] if isinstance(number, str | int) and not isinstance(number, bool) else None
