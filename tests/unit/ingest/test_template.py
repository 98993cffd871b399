"""Prompts made of a row's fields by a template, and what a row or a template can be wrong in."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.core.errors import ConfigError
from tasks.ingest.shapes.template import compiled

Rows = list[dict[str, Any]]
Put = Callable[..., Path]
Read = Callable[..., tuple[Rows, Rows]]

QUESTION = "Passage:\n{{ context }}\n\nQuestion: {{ question }}\n"


def rendered(text: str, content: dict[str, Any], up: dict[str, Any] | None = None) -> str:
    return compiled(text).render(content, up)


def test_a_prompt_of_several_fields(put: Put, read: Read) -> None:
    """The template's text is kept to the byte, its last line break too, and is asked as one user turn."""
    path = put("in.jsonl", {"context": " <b>it's</b>\r\n", "question": "{{ no template }} é?"})
    [request], _ = read(path, prompt_template=QUESTION, system="Be brief.")
    asked = "Passage:\n <b>it's</b>\r\n\n\nQuestion: {{ no template }} é?\n"
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": asked}]
    assert (json.loads(request["messages"]), request["text"]) == (turns, asked)


def test_columns_of_any_name(put: Put, read: Read) -> None:
    """A column whose name is no identifier, or one of Jinja's own, is reached through the row."""
    path = put("in.csv", "Best Answer,self,row,up,range", "a,b,c,d,e")
    template = '{{ row["Best Answer"] }}{{ row["self"] }}{{ row.row }}{{ up }}{{ range }}'
    [request], _ = read(path, prompt_template=template)
    assert request["text"] == "abcde"


NESTED = {"turns": ["hi", "yo"], "order": {"items": [{"name": "tea"}], "keys": 3, "to": {"city": "Rome"}}}


def test_nested_fields(put: Put, read: Read) -> None:
    """Fields within fields, places in lists and loops work, and a field goes before a method of its name."""
    template = "{{ turns[0] }} {{ order.to.city }} {{ order.keys }}{% for one in order.items %} {{ one.name }}{% endfor %}"
    [request], _ = read(put("in.jsonl", NESTED), prompt_template=template)
    assert request["text"] == "hi Rome 3 tea"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("[{{ void }}]", "[]"),
        ("[{{ void ~ '' }}{{ void | upper }}]", "[]"),
        ("[{{ inner.void ~ '' }}{{ inner['void'] | trim }}{{ row.void | upper }}{{ list[0] ~ '' }}]", "[]"),
        ("[{% for one in list %}{{ one }},{% endfor %}]", "[,1,]"),
        ("[{% for one in void %}x{% endfor %}]", "[]"),
        ("{% if void %}yes{% else %}no{% endif %}", "no"),
        ("{{ yes }} {{ number }} {{ whole }} {{ inner }} {{ list }}", 'true 0.5 3 {"é": "ü", "void": null} [null, 1]'),
        ("{{ gone | default('else') }}{{ gone is defined }}", "elsefalse"),
        ("{% set n = namespace(sum=0) %}{% for i in range(4) %}{% set n.sum = n.sum + i %}{% endfor %}{{ n.sum }}", "6"),
    ],
)
def test_what_values_read_as(template: str, expected: str) -> None:
    """A missing value is never the word None, and others read as they stand in JSON."""
    values = {"void": None, "inner": {"é": "ü", "void": None}, "list": [None, 1], "yes": True, "number": 0.5, "whole": 3}
    assert rendered(template, values) == expected


@pytest.mark.parametrize("template", ["Q: {{ question }}{{ n }}", "Q: {{ row.question }}{{ row['n'] }}"])
def test_fields_that_the_template_uses_are_data(put: Put, read: Read, template: str) -> None:
    """A column that is called like a parameter is none where the template uses it; one that it leaves alone is one."""
    row = {"question": "q", "n": "many", "system": "Be brief.", "max_tokens": 7, "temperature": 1.5}
    [request], _ = read(put("in.jsonl", row), prompt_template=template)
    assert (request["text"], request["n"], request["max_tokens"]) == ("Q: qmany", 1, 7)
    assert json.loads(request["sampling"])["temperature"] == 1.5
    assert json.loads(request["messages"])[0] == {"role": "system", "content": "Be brief."}


def test_an_unused_column_that_is_a_bad_parameter(put: Put, read: Read) -> None:
    """A value that the parameter of that name cannot have costs the row, as without a template."""
    [request], [reject] = read(put("in.csv", "city,temperature", "Rome,31", "Oslo,1"), prompt_template="{{ city }}")
    assert (request["text"], reject["line"]) == ("Oslo", 2)
    assert reject["message"].startswith("temperature: ")


def test_a_template_that_looks_at_the_whole_row(put: Put, read: Read) -> None:
    """Where it loops over all fields, all of them are data."""
    template = "{% for name, value in row | dictsort %}{{ name }}={{ value }};{% endfor %}"
    [request], _ = read(put("in.jsonl", {"seed": "oak", "n": 3}), prompt_template=template)
    assert (request["text"], request["n"]) == ("n=3;seed=oak;", 1)


def test_the_template_alone_makes_the_prompt(put: Put, read: Read) -> None:
    """A prompt, messages or a batch line's body are ordinary fields then."""
    rows = (
        {"id": "a", "prompt": "old", "messages": 5, "body": {"x": "1"}},
        {"custom_id": "b", "url": "/v1/chat/completions", "prompt": "old", "body": {"x": "2"}},
    )
    requests, _ = read(put("in.jsonl", *rows), prompt_template="{{ prompt }} {{ body.x }}")
    assert [(row["custom_id"], row["text"]) for row in requests] == [("a", "old 1"), ("b", "old 2")]


def test_an_id_that_the_template_uses(put: Put, read: Read) -> None:
    """The id stays the id, and may lie within a field."""
    rows = [{"id": 1, "meta": {"keys": ["k"]}, "a.b": "c"}]
    for column, expected in ((None, "1"), ("meta.keys.0", "k"), ("a.b", "c")):
        [request], _ = read(put("in.jsonl", *rows), prompt_template="{{ id }}{{ meta }}", id_column=column)
        assert request["custom_id"] == expected
    _, [reject] = read(put("in.jsonl", *rows), prompt_template="{{ id }}", id_column="meta.keys.1")
    assert (reject["reason"], "'meta.keys.1'" in reject["message"]) == ("no_id", True)


def test_every_format_has_fields(put: Put, read: Read) -> None:
    """A line of text is the field of the prompt column."""
    [request], _ = read(put("in.txt", "tea"), prompt_template="Sell {{ prompt }}!")
    assert request["text"] == "Sell tea!"


WRONG_ROWS: list[tuple[str, str, str]] = [
    ("{{ title }}", "no_field", "no field 'title'; the row has 'a', 'inner', 'list'"),
    ("{{ row.title }}", "no_field", "no field 'title' among 'a', 'inner', 'list'"),
    ("{{ inner.title }}", "no_field", "no field 'title' among 'x'"),
    ("{{ list[2] }}", "no_field", "no element 2 in a list of 1"),
    ("{{ a.b }}", "no_field", "no field 'b' in text"),
    ("{{ up.x }}", "no_field", "no field 'up'"),
    ("{% if title %}x{% endif %}", "no_field", "no field 'title'"),
    ("{{ 1 / 0 }}", "template_error", "ZeroDivisionError"),
    ("{{ a + 1 }}", "template_error", "TypeError"),
    ("{{ a.__class__ }}", "template_error", "'__class__' of 'str' object is unsafe"),
    ("{{ list.append(1) }}", "template_error", "'append' of 'list' object is unsafe"),
    ("{{ 'x' * 1000000000 }}", "template_error", "something repeated 1,000,000,000 times"),
    ("{{ 9 ** 99999 }}", "template_error", "an exponent beyond 1,000"),
    ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "template_error", "RecursionError"),
    (
        "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
        "template_error",
        "more than 1,000,000 turns",
    ),
    (
        "{% for i in range(99) %}{{ a * 999999 }}{% endfor %}",
        "template_error",
        "a prompt of more than 16,777,216 characters",
    ),
    ("{{ '' }}", "empty_prompt", "prompt: nothing is asked"),
]


@pytest.mark.parametrize(("template", "reason", "words"), WRONG_ROWS, ids=[template for template, _, _ in WRONG_ROWS])
def test_a_row_that_gives_no_prompt(put: Put, read: Read, template: str, reason: str, words: str) -> None:
    """Whatever goes wrong with a row's template costs that row and says what it was; nothing runs on without an end."""
    path = put("in.jsonl", {"a": "text", "inner": {"x": 1}, "list": [1]})
    _, [reject] = read(path, prompt_template=template)
    assert reject["reason"] == reason
    assert words in reject["message"]


def test_other_rows_go_on(put: Put, read: Read) -> None:
    """One row without the field is one reject."""
    [request], [reject] = read(put("in.jsonl", {"a": 1}, {"b": 2}), prompt_template="{{ b }}")
    assert (request["line"], reject["line"]) == (2, 1)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("a\n{{ b", "line 2: unexpected end of template"),
        ("{% for %}", "line 1: "),
        ("\n\n{{ a | nofilter }}", "line 3: No filter named 'nofilter'"),
        ("{{ a | random }}", "No filter named 'random'"),
        ("{% include 'other' %}", "no other template"),
        ("{{" + "(" * 3000 + "a" + ")" * 3000 + "}}", "recursion"),
    ],
)
def test_a_template_that_is_none(template: str, words: str) -> None:
    """A mistake in the template itself is one of the settings, with its line."""
    with pytest.raises(ConfigError, match=r"^prompt_template: ") as caught:
        compiled(template)
    assert words in str(caught.value)
