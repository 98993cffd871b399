"""The form that an answer must have: three spellings, one meaning, and what cannot be compiled is a reject."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.core.errors import NightbatchError
from tasks.core.request import SamplingParams, StructuredOutputs
from tasks.ingest.shapes import checker, grammar

Rows = list[dict[str, Any]]
Chat = Callable[..., str]
Put = Callable[..., Path]
Read = Callable[..., tuple[Rows, Rows]]

SCHEMA = {"type": "object", "properties": {"z": {"type": "string"}, "é": {"type": "integer"}}, "required": ["z"]}
SCHEMA_TEXT = '{"type":"object","properties":{"z":{"type":"string"},"é":{"type":"integer"}},"required":["z"]}'  # z before é
MANY = {f"p{i}": {"type": "string"} for i in range(300)}


@pytest.fixture(autouse=True)
def _no_process_left() -> Iterator[None]:
    yield
    checker.close()


def named(schema: Any, **more: Any) -> dict[str, Any]:
    """OpenAI's response_format with a schema."""
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema} | more}}


def nested(levels: int) -> dict[str, Any]:
    """A schema of lists of lists; so many objects stand in one another."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels - 1):
        schema = {"type": "array", "items": schema}
    return schema


ACCEPTED: list[tuple[dict[str, Any], StructuredOutputs]] = [
    ({"response_format": {"type": "json_object"}}, StructuredOutputs("json_object")),
    (named(SCHEMA, strict=True, description="d"), StructuredOutputs("json", SCHEMA_TEXT)),
    (named({}), StructuredOutputs("json", "{}")),
    ({"structured_outputs": {"json": SCHEMA, "regex": None}}, StructuredOutputs("json", SCHEMA_TEXT)),
    ({"structured_outputs": {"json": json.dumps(SCHEMA, indent=1)}}, StructuredOutputs("json", SCHEMA_TEXT)),
    ({"structured_outputs": {"json_object": True}}, StructuredOutputs("json_object")),
    ({"structured_outputs": {"regex": "[ab]+", "disable_any_whitespace": False}}, StructuredOutputs("regex", "[ab]+")),
    ({"structured_outputs": {"choice": ["yes", 'n"o\n', "日本"]}}, StructuredOutputs("choice", '["yes","n\\"o\\n","日本"]')),
    ({"structured_outputs": {"grammar": 'root ::= "a" | "b"'}}, StructuredOutputs("grammar", 'root ::= "a" | "b"')),
    ({"guided_json": SCHEMA}, StructuredOutputs("json", SCHEMA_TEXT)),
    ({"guided_json": "{}"}, StructuredOutputs("json", "{}")),
    ({"guided_regex": ""}, StructuredOutputs("regex", "")),
    ({"guided_choice": ["a"]}, StructuredOutputs("choice", '["a"]')),
    ({"guided_grammar": 'start: "a" | "b"'}, StructuredOutputs("grammar", 'start: "a" | "b"')),
    ({"guided_json": nested(32)}, StructuredOutputs("json", json.dumps(nested(32), separators=(",", ":")))),
    ({"guided_grammar": "root ::= Token(5000)"}, StructuredOutputs("grammar", "root ::= Token(5000)")),
]


def test_every_spelling_arrives(put: Put, chat: Chat, read: Read) -> None:
    """OpenAI's and both of vLLM's spellings give the same kind and text, properties in their order, in all kinds of rows."""
    chats = [chat(i, "hi", **body) for i, (body, _) in enumerate(ACCEPTED)]
    plain = [{"prompt": "hi"} | body for body, _ in ACCEPTED]
    completions = [{"url": "/v1/completions", "body": {"prompt": "hi"} | body} for body, _ in ACCEPTED]
    requests, rejects = read(put("in.jsonl", *chats, *plain, *completions))
    assert rejects == []
    kept = [SamplingParams.from_json(row["sampling"]).structured_outputs for row in requests]
    assert kept == [expected for _, expected in ACCEPTED] * 3


REFUSED: list[tuple[dict[str, Any], str]] = [
    (named({"type": "objekt"}), "response_format.json_schema.schema: is no valid JSON schema: at $.type, 'objekt'"),
    (named("{}"), "response_format.json_schema.schema: must be an object, not text"),
    (named(None), "response_format.json_schema.schema: is missing"),
    (named({}, schemas=1), "response_format.json_schema.schemas: is not supported"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema: is missing"),
    (
        {"response_format": {"type": "xml"}},
        "response_format.type: must be 'text', 'json_object' or 'json_schema', not 'xml'",
    ),
    ({"response_format": "json"}, "response_format: must be an object, not text"),
    ({"response_format": {}}, "response_format.type: must be"),
    ({"structured_outputs": {}}, "structured_outputs: needs one of json, regex"),
    ({"structured_outputs": [1]}, "structured_outputs: must be an object, not a list"),
    ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag: is not supported"),
    ({"structured_outputs": {"json": {}, "whitespace_pattern": " "}}, "structured_outputs.whitespace_pattern: is not supp"),
    ({"structured_outputs": {"json_object": False}}, "structured_outputs.json_object: must be true"),
    (
        {"structured_outputs": {"json": {}, "regex": "a"}},
        "structured_outputs.regex: is one form too many beside 'structured_",
    ),
    (named({}) | {"guided_regex": "a"}, "guided_regex: is one form too many beside 'response_format.json_schema.schema'"),
    ({"guided_json": ""}, "guided_json: must not be empty"),
    ({"guided_json": "{"}, "guided_json: is not valid JSON: "),
    ({"guided_json": "[]"}, "guided_json: must be an object, not a list"),
    ({"guided_json": True}, "guided_json: must be an object, not true or false"),
    ({"guided_json": {"properties": {"a": {"type": 5}}}}, "guided_json: is no valid JSON schema: at $.properties.a.type, 5"),
    ({"guided_json": {"type": "string", "pattern": "("}}, "guided_json: is no valid JSON schema: at $.pattern, "),
    ({"guided_json": {"pattern": "a{99999999999999999999}"}}, "guided_json: the repetition number is too large"),
    ({"guided_json": {"$ref": "#/$defs/none"}}, "guided_json: Cannot find field $defs in #/$defs/none"),
    ({"guided_json": {"$ref": "#"}}, "guided_json: nothing can match it"),
    ({"guided_json": {"type": "integer", "minimum": 5, "maximum": 3}}, "guided_json: Invalid range"),
    ({"guided_json": nested(65)}, "guided_json: is nested more than 64 levels deep"),
    ({"guided_json": {"enum": ["x" * 300_000]}}, "guided_json: has 300013 characters; at most 262144 are read"),
    ({"guided_regex": 5}, "guided_regex: must be text, not a number"),
    ({"guided_regex": "a\0"}, "guided_regex: must not hold a NUL character"),
    ({"guided_regex": "(a"}, "guided_regex: Regex parsing error at position 3: The parenthesis is not closed."),
    ({"guided_regex": "a(?=b)"}, "guided_regex: Regex parsing error at position 4: Lookahead is not supported yet."),
    ({"guided_choice": []}, "guided_choice: must be a list of texts, one at least"),
    ({"guided_choice": ["a", 5]}, "guided_choice: must be a list of texts, one at least"),
    ({"guided_choice": "a"}, "guided_choice: must be a list of texts, one at least"),
    ({"guided_grammar": " "}, "guided_grammar: must not be empty"),
    ({"guided_grammar": 'root ::= "a'}, "guided_grammar: EBNF lexer error at line 1"),
    ({"guided_grammar": "root ::= other"}, 'guided_grammar: EBNF parser error at line 1, column 10: Rule "other" is not'),
    ({"guided_grammar": "root ::= root"}, "guided_grammar: nothing can match it"),
    ({"guided_grammar": "start: other"}, "guided_grammar: Lark error at line 1"),
]


def test_what_cannot_be_compiled_is_refused(put: Put, chat: Chat, read: Read) -> None:
    """A form that is none costs its own row, with the parameter's name and what is wrong; the rows around are requests."""
    lines = [chat(i, "hi", **body) for i, (body, _) in enumerate(REFUSED)]
    requests, rejects = read(put("in.jsonl", chat("first", "hi"), *lines, chat("last", "hi", guided_regex="a")))
    assert [row["custom_id"] for row in requests] == ["first", "last"]
    assert [row["message"][: len(start)] for row, (_, start) in zip(rejects, REFUSED, strict=True)] == [
        start for _, start in REFUSED
    ]
    assert {row["reason"] for row in rejects} == {"invalid_structured_output"}


def test_too_much_for_the_compiler(put: Put, chat: Chat, read: Read) -> None:
    """Small schemas and patterns that would keep the compiler busy for hours are rejects after some seconds."""
    hours = {"type": "object", "properties": MANY, "minProperties": 100}
    lines = (chat("a", "hi", guided_json=hours), chat("b", "hi", guided_json=SCHEMA), chat("c", "hi", guided_json=hours))
    requests, rejects = read(put("in.jsonl", *lines))
    assert [row["custom_id"] for row in requests] == ["b"]
    assert {row["message"] for row in rejects} == {"guided_json: takes the grammar compiler more than 5 s"}


# Answers the first question, as the start wants it, and what comes next only when it is a schema.
MORTAL = """
import os, sys
for i, line in enumerate(sys.stdin):
    print("null", flush=True) if i == 0 or "json" in line else os._exit(1)
"""


def test_a_compiler_that_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends the compiler's process is a problem of that form alone; the next one has a process again."""
    monkeypatch.setattr(checker, "_COMMAND", [sys.executable, "-c", MORTAL])
    checker.problem.cache_clear()
    found = [checker.problem(kind, "{}") for kind in ("json", "regex", "json", "regex", "choice")]
    checker.problem.cache_clear()
    assert found == [None, "is more than the grammar compiler can bear"] * 2 + ["is more than the grammar compiler can bear"]


def test_a_compiler_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """When there is no process to ask, the run stops and says so, and no row is blamed."""
    monkeypatch.setattr(checker, "_COMMAND", [sys.executable, "-c", "raise SystemExit(4)"])
    with pytest.raises(NightbatchError, match="does not start"):
        checker.problem("regex", "never asked before")


LEFT_OUT: list[tuple[dict[str, Any], str]] = [
    ({"not": {"type": "string"}}, "the keyword 'not'"),
    ({"items": {"if": {}}}, "the keyword 'if'"),
    ({"$ref": "https://example.com/a"}, "a '$ref' that leads out of the schema ('https://example.com/a')"),
    ({"anyOf": [{"allOf": [{}, {}]}]}, "an 'allOf' of several schemas"),
    ({"properties": {"a": {"type": ["null", "integer"], "multipleOf": 2}}}, "'multipleOf'"),
    ({"$defs": {"a": {"type": "array", "uniqueItems": True}}}, "'uniqueItems'"),
    ({"type": "string", "format": "colour"}, "the format 'colour'"),
    ({"type": "string", "pattern": "a", "maxLength": 3}, "a bound on the length of text that has a pattern or a format"),
    ({"type": "object", "propertyNames": {}, "properties": {}}, "'propertyNames' beside other rules for properties"),
    ({"type": "object", "patternProperties": {"a": {}, "b": {}}}, "'patternProperties' beside other properties"),
]


@pytest.mark.parametrize(("schema", "what"), LEFT_OUT)
def test_what_the_compiler_would_leave_out(schema: dict[str, Any], what: str) -> None:
    """A rule of JSON Schema that the answer would not be held to is refused by name."""
    assert grammar.problem("json", json.dumps(schema)) == f"{what} is not supported"


def test_names_and_values_are_no_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """A property that is named like a keyword, and a value that looks like a schema, are not taken for rules."""
    monkeypatch.setattr(grammar, "_xgrammar", lambda: None)
    names = ("not", "if", "$ref", "allOf", "format", "uniqueItems")
    schema = {
        "properties": {name: {"type": "string"} for name in names},
        "default": {"not": {}},
        "enum": [{"allOf": [1, 2]}],
    }
    assert grammar.problem("json", json.dumps(schema)) is None


def test_without_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where xgrammar cannot be loaded, schemas and patterns are checked by their own rules alone."""
    monkeypatch.setattr(grammar, "_xgrammar", lambda: None)
    assert grammar.problem("regex", "(a") == "missing ), unterminated subpattern at position 0"
    assert grammar.problem("json", '{"type":"objekt"}') is not None
    sound = [("regex", "a"), ("json", "{}"), ("choice", '["a"]'), ("grammar", "root ::=")]
    assert [grammar.problem(kind, spec) for kind, spec in sound] == [None] * 4
