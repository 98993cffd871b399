"""What a row says about the form of its answer, in OpenAI's spelling or in either of vLLM's, to StructuredOutputs.

What cannot be compiled is the row's own error here, and never one of the engine, which all rows share.
"""

import json
from typing import Any, NamedTuple

import orjson

from tasks.core.request import StructuredOutputs
from tasks.ingest.rows import RowError
from tasks.ingest.shapes.checker import problem
from tasks.ingest.shapes.protocol import Parameters

MAX_SPEC_CHARS = 262_144
_MAX_NESTING = 64
"""vLLM's own limit."""

_GUIDED = ("json", "regex", "choice", "grammar")
_KINDS = (*_GUIDED, "json_object")


class _Asked(NamedTuple):
    """One form that is asked for, and the parameter that does."""

    where: str
    kind: str
    value: Any


def structured_of(body: Parameters) -> StructuredOutputs | None:
    """The form that the answer must have, if any. Raises RowError when it is none that can be given."""
    asked = _asked(body)
    if not asked:
        return None
    if len(asked) > 1:
        raise _refused(asked[1].where, f"is one form too many beside {asked[0].where!r}")
    where, kind, value = asked[0]
    spec = _spec(where, kind, value)
    if len(spec) > MAX_SPEC_CHARS:
        raise _refused(where, f"has {len(spec)} characters; at most {MAX_SPEC_CHARS} are read")
    if kind != "json_object" and (wrong := problem(kind, spec)):
        raise _refused(where, wrong)
    return StructuredOutputs(kind, spec)


def _asked(body: Parameters) -> list[_Asked]:
    guided = [_Asked(f"guided_{kind}", kind, getattr(body, f"guided_{kind}")) for kind in _GUIDED]
    every = [*_response_format(body.response_format), *_structured_outputs(body.structured_outputs), *guided]
    return [one for one in every if one.value is not None]


def _response_format(value: Any) -> list[_Asked]:
    """OpenAI's: text, any JSON object, or a schema with a name, which is for people."""
    where = "response_format"
    if value is None:
        return []
    match _object(where, value).get("type"):
        case "text":
            return []
        case "json_object":
            return [_Asked(where, "json_object", True)]
        case "json_schema":
            where = f"{where}.json_schema"
            named = _object(where, value.get("json_schema"))
            if unknown := named.keys() - {"name", "description", "schema", "strict"}:
                raise _refused(f"{where}.{min(unknown)}", "is not supported")
            return [_Asked(f"{where}.schema", "json", _object(f"{where}.schema", named.get("schema")))]
        case other:
            raise _refused(f"{where}.type", f"must be 'text', 'json_object' or 'json_schema', not {other!r}")


def _structured_outputs(value: Any) -> list[_Asked]:
    """vLLM's: one of its kinds."""
    where = "structured_outputs"
    if value is None:
        return []
    given = {name: one for name, one in _object(where, value).items() if one is not None}
    if unknown := [name for name, one in given.items() if name not in _KINDS and one is not False]:
        raise _refused(f"{where}.{unknown[0]}", "is not supported")
    kinds = [name for name in _KINDS if name in given]
    if not kinds:
        raise _refused(where, f"needs one of {', '.join(_KINDS)}")
    return [_Asked(f"{where}.{kind}", kind, given[kind]) for kind in kinds]


def _spec(where: str, kind: str, value: Any) -> str:
    """The form as StructuredOutputs has it. Properties stay in their order: the answer has them in it."""
    match kind:
        case "json_object":
            if value is not True:
                raise _refused(where, "must be true, where it is given")
            return ""
        case "json":
            schema = _object(where, _parsed(where, value))
            if _is_deep(schema):
                raise _refused(where, f"is nested more than {_MAX_NESTING} levels deep")
            return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
        case "choice":
            if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
                raise _refused(where, "must be a list of texts, one at least")
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        case _:
            return _text(where, kind, value)


def _text(where: str, kind: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _refused(where, f"must be text, not {_type(value)}")
    if "\0" in value:
        raise _refused(where, "must not hold a NUL character")
    if kind == "grammar" and not value.strip():
        raise _refused(where, "must not be empty")
    return value


def _parsed(where: str, schema: Any) -> Any:
    """A schema as it is, or parsed where it stands as JSON text."""
    if not isinstance(schema, str):
        return schema
    try:
        return orjson.loads(schema)
    except orjson.JSONDecodeError as error:
        raise _refused(where, f"is not valid JSON: {error}" if schema.strip() else "must not be empty") from error


def _is_deep(value: Any) -> bool:
    """Whether objects and lists stand in one another more than 64 deep, told without recursion."""
    level = [value]
    for _ in range(_MAX_NESTING):
        inner = [child for one in level for child in (one.values() if isinstance(one, dict) else one)]
        level = [child for child in inner if isinstance(child, dict | list)]
    return bool(level)


def _object(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _refused(where, "is missing" if value is None else f"must be an object, not {_type(value)}")
    return value


def _type(value: Any) -> str:
    names = {bool: "true or false", str: "text", list: "a list", dict: "an object", type(None): "null"}
    return names.get(type(value), "a number")


def _refused(where: str, wrong: str) -> RowError:
    return RowError("invalid_structured_output", f"{where}: {wrong}")
