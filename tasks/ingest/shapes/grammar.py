"""What is wrong with a JSON schema, a pattern, choices or a grammar that an answer is to match; None when nothing is.

First what JSON Schema itself says, then what xgrammar, which does it inside vLLM, cannot do or would silently leave out,
then xgrammar's own compiler. Without xgrammar (and the torch that it needs) the first two alone. Some small schemas keep
the compiler busy for hours: ask through tasks/ingest/shapes/checker.py.
"""

import json
import re
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

_FORMATS = frozenset(
    (
        *("email", "date", "time", "date-time", "duration", "ipv4", "ipv6", "hostname", "uuid", "uri", "uri-reference"),
        *("uri-template", "json-pointer", "relative-json-pointer"),
    )
)
_LEFT_OUT = ("not", "if", "dependentRequired", "dependentSchemas", "$dynamicRef")
_OF_ARRAYS = ("uniqueItems", "contains", "minContains", "maxContains")
_NAMED_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions")
_VALUES = ("enum", "const", "default", "examples", "example")
_END = 256

Schema = dict[str, Any]


def problem(kind: str, spec: str) -> str | None:
    """What is wrong with it, as a sentence without the parameter's name. `kind` and `spec` as in StructuredOutputs."""
    try:
        if kind == "json" and (wrong := _schema_problem(json.loads(spec))):
            return wrong
        return _compiler_problem(kind, spec)
    except RecursionError:
        return "is nested too deeply"
    except OverflowError as error:  # a count in a pattern
        return str(error)


def _schema_problem(schema: Schema) -> str | None:
    from jsonschema import Draft202012Validator, SchemaError

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of `re`, about patterns that it reads differently one day
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            return f"is no valid JSON schema: at {error.json_path}, {error.message}"
    return next((f"{wrong} is not supported" for one in _schemas(schema) if (wrong := _unsupported(one))), None)


def _schemas(schema: Any) -> Iterator[Schema]:
    """The schema and all within it, but neither values nor the names of properties."""
    if isinstance(schema, list):
        for one in schema:
            yield from _schemas(one)
    elif isinstance(schema, dict):
        yield schema
        for key, inner in schema.items():
            if key in _NAMED_SCHEMAS and isinstance(inner, dict):
                yield from _schemas(list(inner.values()))
            elif key not in _VALUES:
                yield from _schemas(inner)


def _unsupported(schema: Schema) -> str | None:
    """What vLLM sends to another backend than xgrammar, of which one engine has only one, and what xgrammar leaves out."""
    given = schema.get("type")
    types = {one for one in (given if isinstance(given, list) else [given]) if isinstance(one, str)}
    names = schema.get("propertyNames")
    patterns = schema.get("patternProperties") or {}
    reference = schema.get("$ref", "#")
    if keyword := next((name for name in _LEFT_OUT if name in schema), None):
        return f"the keyword {keyword!r}"
    if reference != "#" and not str(reference).startswith("#/"):
        return f"a '$ref' that leads out of the schema ({reference!r})"
    if len(schema.get("allOf", ())) > 1:
        return "an 'allOf' of several schemas"
    if types & {"integer", "number"} and "multipleOf" in schema:
        return "'multipleOf'"
    if "array" in types and (keyword := next((name for name in _OF_ARRAYS if name in schema), None)):
        return f"{keyword!r}"
    if "string" in types and schema.get("format", "uuid") not in _FORMATS:
        return f"the format {schema['format']!r}"
    if ("string" in types and _is_bounded_twice(schema)) or (isinstance(names, dict) and _is_bounded_twice(names)):
        return "a bound on the length of text that has a pattern or a format"
    if "object" in types and names is not None and (patterns or {"properties", "unevaluatedProperties"} & schema.keys()):
        return "'propertyNames' beside other rules for properties"
    if "object" in types and patterns and ("properties" in schema or len(patterns) > 1):
        return "'patternProperties' beside other properties"
    return None


def _is_bounded_twice(schema: Schema) -> bool:
    return bool({"pattern", "format"} & schema.keys() and {"minLength", "maxLength"} & schema.keys())


def _compiler_problem(kind: str, spec: str) -> str | None:
    xgrammar = _xgrammar()
    if xgrammar is None:
        return _pattern_problem(spec) if kind == "regex" else None
    compiler = _compiler()
    try:
        match kind:
            case "json":
                compiled = compiler.compile_json_schema(spec)
            case "regex":
                compiled = compiler.compile_regex(spec)
            case "choice":
                compiled = compiler.compile_grammar(_alternatives(json.loads(spec)))
            case "grammar" if is_lark(spec):
                compiled = compiler.compile_lark(spec)
            case "grammar" if "Token" in spec:  # by number: the stand-in for the model's vocabulary does not have them
                xgrammar.Grammar.from_ebnf(spec)
                return None
            case "grammar":
                compiled = compiler.compile_grammar(spec)
            case _:
                return None
        return None if _can_begin(xgrammar, compiled) else "nothing can match it"
    except (RuntimeError, ValueError, MemoryError) as error:
        return _readable(error)


@cache
def _xgrammar() -> Any:
    try:
        import xgrammar
    except (ImportError, OSError, RuntimeError):  # as its native library says that it does not fit this computer
        return None
    return xgrammar


@cache
def _compiler() -> Any:
    """A compiler for a vocabulary of all bytes and an end: what can be said whatever the model."""
    xgrammar = _xgrammar()
    vocabulary = [bytes([byte]) for byte in range(_END)] + [b"</s>"]
    tokens = xgrammar.TokenizerInfo(vocabulary, vocab_type=xgrammar.VocabType.RAW, stop_token_ids=[_END])
    return xgrammar.GrammarCompiler(tokens, max_threads=1, cache_enabled=False)


def _can_begin(xgrammar: Any, compiled: Any) -> bool:
    """Whether there is a first token; a rule that only leads back to itself has none, and an engine would not know one."""
    allowed = xgrammar.allocate_token_bitmask(1, _END + 1)
    xgrammar.GrammarMatcher(compiled).fill_next_token_bitmask(allowed, 0)
    return any(allowed[0].tolist())


def _readable(error: Exception) -> str:
    """The compiler's message without the time and the place in its source."""
    if isinstance(error, MemoryError) or "bad_alloc" in str(error):
        return "takes the grammar compiler too much memory"
    message = re.sub(r"\[\d\d:\d\d:\d\d\] \S+: (Check failed: \(.*?\) is false: )?", "", str(error))
    return " ".join(message.split()) or type(error).__name__


def _pattern_problem(pattern: str) -> str | None:
    try:
        re.compile(pattern)
    except re.error as error:
        return str(error)
    return None


def _alternatives(choices: list[str]) -> str:
    """The choices as a grammar, as vLLM writes it."""
    escaped = ["".join(_escaped(character) for character in choice) for choice in choices]
    return "root ::= " + " | ".join(f'"{choice}"' for choice in escaped)


def _escaped(character: str) -> str:
    if character in '\\"':
        return f"\\{character}"
    return f"\\u{ord(character):04x}" if character < " " or character == "\x7f" else character


def is_lark(grammar: str) -> bool:
    """Whether vLLM reads a grammar as Lark's: no line outside comments has `::=`."""
    return not any("::=" in re.sub(r"(#|//).*$", "", line) for line in grammar.split("\n"))
