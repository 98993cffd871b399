"""The columns of an exported row and, for joined rows, what is told of the input's own columns."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]

COLUMNS = {
    "custom_id": "text",
    "source": "text",
    "file": "text",
    "line": "int",
    "choice_index": "int",
    "status": "text",
    "finish_reason": "text",
    "stop_reason": "text",
    "output_text": "text",
    "is_valid_json": "bool",
    "error": "text",
    "reason": "text",
    "prompt_tokens": "int",
    "output_tokens": "int",
    "cached_tokens": "int",
    "duplicate_of": "text",
    "model": "text",
}
"""Names, and kinds as in `kind_of`."""

_PREFIX = "nightbatch"
_EXACT = 1 << 53
_LONG = 1 << 63


def answer_prefix(taken: Iterable[str]) -> str:
    """What the answers' columns begin with beside the input's: nightbatch_, or where one is so named, the next number."""
    names, number = set(taken), 1
    while names & {f"{_numbered(number)}{column}" for column in COLUMNS}:
        number += 1
    return _numbered(number)


def _numbered(number: int) -> str:
    return f"{_PREFIX}{number if number > 1 else ''}_"


def kind_of(value: Any) -> str | None:
    """text, bool, float, int, long (an int that no float holds exactly) or json, which is everything else."""
    match value:
        case None:
            return None
        case str():
            return "text"
        case bool():
            return "bool"
        case int() if -_EXACT <= value <= _EXACT:
            return "int"
        case int() if -_LONG <= value < _LONG:
            return "long"
        case float():
            return "float"
    return "json"


def common_kind(one: str | None, other: str | None) -> str | None:
    """The kind of a column that has values of both kinds."""
    if one == other or one is None or other is None:
        return one or other
    match {one, other}:
        case kinds if kinds == {"int", "float"}:
            return "float"
        case kinds if kinds == {"int", "long"}:
            return "long"
    return "json"


class Kinds:
    """The columns of rows in the order in which they were first seen, each with its kind."""

    def __init__(self) -> None:
        self._kinds: dict[str, str | None] = {}

    def add(self, row: Row) -> None:
        for name, value in row.items():
            self._kinds[name] = common_kind(self._kinds.get(name), kind_of(value))

    @property
    def columns(self) -> dict[str, str]:
        """A column without any value is text."""
        return {name: kind or "text" for name, kind in self._kinds.items()}


def as_kind(value: Any, kind: str) -> Any:
    """A value for a column of that kind."""
    if value is None:
        return None
    if kind == "float":
        return float(value)
    return as_json(value) if kind == "json" else value


def as_json(value: Any) -> str:
    """As JSON text, on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
