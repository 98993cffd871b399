"""What stands in a template's place `{{ fields }}`: fields of a row, each on a line with its name, in an order."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tasks.ingest.fields.order import Cell
from tasks.ingest.reading.records import field_at
from tasks.ingest.rows import RowError


class Fields(tuple[Cell, ...]):
    """Names and values in order; as text, a line `name: value` each."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(f"{name}: {text}" for name, text in self)


def as_text(value: Any) -> str:
    """A field's value as a prompt has it: null is empty, and what is no text reads as it stands in a file of JSON."""
    if value is None:
        return ""
    if isinstance(value, bool | dict | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def named_cells(names: Iterable[str], content: Mapping[str, Any], up: Mapping[str, Any] | None) -> list[Cell]:
    """These fields of a row, each a name or a path such as `meta.brand` or `up.title`. Raises RowError."""
    whole = content if up is None else {**content, "up": up}
    cells = []
    for name in names:
        try:
            value = field_at(whole, name)
        except LookupError:
            there = ", ".join(map(repr, content)) or "no fields"
            raise RowError("no_field", f"fields: no field {name!r}; the row has {there}") from None
        cells.append(_cell(name, value))
    return cells


def other_cells(hidden: Iterable[str], content: Mapping[str, Any]) -> list[Cell]:
    """All fields of a row but these. Raises RowError."""
    return [_cell(name, value) for name, value in content.items() if name not in hidden]


def _cell(name: str, value: Any) -> Cell:
    try:
        return name, as_text(value)
    except Exception as error:  # a number with too many digits, lists nested too deeply
        raise RowError("template_error", f"fields: {name!r}: {type(error).__name__}: {error}") from error
