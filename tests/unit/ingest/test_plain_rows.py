"""Plain rows: prompt or messages in columns of any name, system prompts, and columns that are none of our business."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.core.config import RowConfig
from tasks.core.errors import ConfigError

Rows = list[dict[str, Any]]
Put = Callable[..., Path]
Read = Callable[..., tuple[Rows, Rows]]

USER = {"role": "user", "content": "hi"}
BRIEF = {"role": "system", "content": "Be brief."}


def turns_of(rows: Rows) -> list[Any]:
    return [json.loads(row["messages"]) for row in rows]


def test_a_prompt_is_one_user_turn(put: Put, read: Read) -> None:
    """The text in `prompt` is asked as a chat of one turn."""
    requests, _ = read(put("in.jsonl", {"prompt": "hi"}))
    assert turns_of(requests) == [[USER]]
    assert (requests[0]["text"], requests[0]["requested_model"]) == ("hi", None)


def test_messages_are_asked_as_they_are(put: Put, read: Read) -> None:
    """A list in `messages` is the chat, and goes before a prompt beside it."""
    requests, _ = read(put("in.jsonl", {"messages": [BRIEF, USER]}, {"messages": [USER], "prompt": "not this"}))
    assert turns_of(requests) == [[BRIEF, USER], [USER]]


def test_the_rows_system_prompt(put: Put, read: Read) -> None:
    """A `system` field leads the chat; a blank one is none, and messages that bring their own keep it."""
    rows = (
        {"prompt": "hi", "system": "Be brief."},
        {"messages": [USER], "system": "Be brief."},
        {"messages": [BRIEF, USER], "system": "Be long."},
        {"prompt": "hi", "system": None},
        {"prompt": "hi", "system": " "},
    )
    requests, _ = read(put("in.jsonl", *rows))
    assert turns_of(requests) == [[BRIEF, USER]] * 3 + [[USER]] * 2


def test_the_runs_system_prompt(put: Put, read: Read) -> None:
    """`system` of the run leads every chat that has none of its own."""
    developer = {"role": "developer", "content": "Be kind."}
    rows = (
        {"prompt": "hi"},
        {"prompt": "hi", "system": "Be kind."},
        {"messages": [USER]},
        {"messages": [developer, USER]},
        {"url": "/v1/chat/completions", "body": {"messages": [USER]}},
    )
    requests, _ = read(put("in.jsonl", *rows), system="Be brief.")
    kind = {"role": "system", "content": "Be kind."}
    assert turns_of(requests) == [[BRIEF, USER], [kind, USER], [BRIEF, USER], [developer, USER], [BRIEF, USER]]


@pytest.mark.parametrize("text", ["a\0b", "half an emoji \ud83d", "a byte \udcff"])
@pytest.mark.parametrize("key", ["system", "prompt_template", "prompt_column", "messages_column", "id_column"])
def test_settings_that_are_no_text(key: str, text: str) -> None:
    """What no table can hold stops before anything is read, with the setting's name; else it would fail in every row."""
    given: dict[str, Any] = {key: text}
    with pytest.raises(ConfigError, match=f"{key} must be text in UTF-8 without a NUL"):
        RowConfig(**given)


def test_a_system_prompt_that_is_no_text(put: Put, read: Read) -> None:
    """A system prompt is not silently dropped for being of the wrong type."""
    _, [reject] = read(put("in.jsonl", {"prompt": "hi", "system": 5}))
    assert reject["message"].startswith("system: ")


def test_columns_of_the_users_choice(put: Put, read: Read) -> None:
    """Prompt and messages are read from the columns named, and the usual names mean nothing then."""
    rows = (
        {"key": "k1", "question": "hi", "prompt": "not this", "messages": "nor this"},
        {"key": "k2", "chat": [USER], "question": 5, "messages": 7},
    )
    options = {"prompt_column": "question", "messages_column": "chat", "id_column": "key"}
    requests, _ = read(put("in.jsonl", *rows), **options)
    assert [row["custom_id"] for row in requests] == ["k1", "k2"]
    assert turns_of(requests) == [[USER], [USER]]


WRONG_COLUMNS: list[tuple[dict[str, Any], str]] = [
    ({"question": 5}, "question: "),
    ({"question": ""}, "question: "),
    ({"question": "a\0"}, "question: must not hold a NUL"),
    ({"question": None}, "question: is empty"),
    ({"chat": "hi"}, "chat: "),
    ({"chat": "[not json"}, "chat: not valid JSON"),
    ({"chat": [{"role": "user"}]}, "chat.0.content: Field required"),
    ({"chat": [{"role": "user", "content": " "}]}, "chat: "),
    ({"chat": None}, "chat: is empty"),
]


def test_rejects_speak_of_the_users_columns(put: Put, read: Read) -> None:
    """What is wrong is named by the column where it stands, not by our name for it."""
    path = put("in.jsonl", *(row for row, _ in WRONG_COLUMNS))
    _, rejects = read(path, prompt_column="question", messages_column="chat")
    named = [name for _, name in WRONG_COLUMNS]
    assert [row["message"][: len(name)] for row, name in zip(rejects, named, strict=True)] == named


@pytest.mark.parametrize(("name", "lines"), [("in.jsonl", ['{"text": "hi", "url": "x"}']), ("in.csv", ["text,url", "hi,"])])
def test_no_column_that_can_be_used(put: Put, read: Read, name: str, lines: list[str]) -> None:
    """Without a prompt the reject says which columns there are, empty ones too, and which option names one."""
    _, [reject] = read(put(name, *lines))
    assert reject["reason"] == "no_prompt"
    assert "'prompt' or 'messages'" in reject["message"]
    assert "'text', 'url'" in reject["message"]
    assert "--prompt-column" in reject["message"]


def test_a_row_of_very_many_columns(put: Put, read: Read) -> None:
    """A message that would list thousands of columns is clipped."""
    _, [reject] = read(put("in.jsonl", {f"column {i}": i for i in range(10_000)}))
    assert len(reject["message"]) == 500


def test_an_empty_object(put: Put, read: Read) -> None:
    """A row without any field is a reject."""
    _, [reject] = read(put("in.jsonl", "{}"))
    assert reject["reason"] == "no_prompt"


OTHER_COLUMNS: list[dict[str, Any]] = [
    {"url": "https://shop.example/p/1"},
    {"url": "/products/1"},
    {"url": None},
    {"body": "an e-mail's text"},
    {"body": {"html": "<p>"}},
    {"method": "GET"},
    {"answer": 42, "tags": ["a"], "nested": {"x": None}},
    {"model": "Galaxy S9"},
    {"user": "ann", "metadata": {}, "stream": 5},
    {"": "nameless"},
    {"model_config": {}, "__class__": 1, "copy": 2},
]


def test_other_columns_are_not_looked_at(put: Put, read: Read) -> None:
    """A row with a prompt is plain whatever its other columns are called."""
    requests, rejects = read(put("in.jsonl", *({"prompt": "hi"} | extra for extra in OTHER_COLUMNS)), served=["smol"])
    assert turns_of(requests) == [[USER]] * len(OTHER_COLUMNS)
    assert rejects == []


def test_the_text_of_mails_in_a_column_named_body(put: Put, read: Read) -> None:
    """A table whose prompt is in `body` is no batch file."""
    path = put("s/mails.csv", "id,url,body", "m1,https://x.example,Where is my card?")
    put("s/mails.jsonl", {"id": "m2", "body": "hi"})
    requests, _ = read(path.parent, prompt_column="body")
    assert [(row["custom_id"], row["text"]) for row in requests] == [("m1", "Where is my card?"), ("m2", "hi")]


@pytest.mark.parametrize("cell", [json.dumps([BRIEF, USER]), "  \n" + json.dumps([BRIEF, USER], indent=1)])
def test_messages_as_json_text(put: Put, read: Read, cell: str) -> None:
    """A cell may hold the chat as JSON, in CSV and in JSON lines."""
    path = put("s/a.csv", "id,messages", '1,"' + cell.replace('"', '""') + '"')
    put("s/b.jsonl", {"id": 2, "messages": cell})
    requests, rejects = read(path.parent)
    assert turns_of(requests) == [[BRIEF, USER]] * 2
    assert rejects == []


@pytest.mark.parametrize(
    "cell", ["hi", "[INST] hi", "[{'role': 'user', 'content': 'hi'}]", "{}", "[]", "[5]", "null", '[{"role":"user"}]']
)
def test_messages_in_a_cell_that_are_none(put: Put, read: Read, cell: str) -> None:
    """A cell that is no JSON list of messages is a reject that names the column, and the other rows go on."""
    path = put("in.csv", "messages", '"' + cell.replace('"', '""') + '"', '"[{""role"": ""user"", ""content"": ""hi""}]"')
    [request], [reject] = read(path)
    assert (request["line"], reject["line"]) == (3, 2)
    assert reject["message"].startswith("messages")
