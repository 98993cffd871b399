"""Conversations for training, ShareGPT's and others: asked is everything before the answer that they were made to teach."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Rows = list[dict[str, Any]]
Put = Callable[..., Path]
Read = Callable[..., tuple[Rows, Rows]]

SYSTEM, HUMAN, GPT = (
    {"from": "system", "value": "Be brief."},
    {"from": "human", "value": "hi"},
    {"from": "gpt", "value": "SECRET"},
)
HELLO = {"from": "chatgpt", "value": "Hello."}
BRIEF, USER, LABEL = (
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "SECRET"},
)


def turns_of(rows: Rows) -> list[Any]:
    return [json.loads(row["messages"]) for row in rows]


def test_a_conversation(put: Put, read: Read) -> None:
    """Speakers become roles, and the last answer, which is the label, is in no column of the request."""
    more = {"from": "human", "value": "And now?", "weight": 1}
    rows = ({"id": "a", "conversations": [SYSTEM, HUMAN, GPT]}, {"id": "b", "conversations": [HUMAN, HELLO, more, GPT]})
    requests, rejects = read(put("in.jsonl", *rows))
    earlier = {"role": "assistant", "content": "Hello."}
    assert turns_of(requests) == [[BRIEF, USER], [USER, earlier, {"role": "user", "content": "And now?"}]]
    assert [(row["custom_id"], row["text"]) for row in requests] == [("a", "hi"), ("b", "And now?")]
    assert "SECRET" not in json.dumps(requests, default=str)
    assert rejects == []


@pytest.mark.parametrize("column", ["messages", "conversations", "chat"])
def test_the_label_of_messages(put: Put, read: Read, column: str) -> None:
    """A plain row's messages that end with the assistant are such a conversation too, in either spelling and any column."""
    names = {} if column != "chat" else {"messages_column": "chat"}
    rows = ([BRIEF, USER, LABEL], [BRIEF, USER], [BRIEF, USER, LABEL, LABEL], [SYSTEM, HUMAN, GPT])
    requests, rejects = read(put("in.jsonl", *({column: turns} for turns in rows)), **names)
    assert turns_of(requests) == [[BRIEF, USER]] * 4
    assert rejects == []


def test_a_batch_line_stands_as_it_is(put: Put, read: Read) -> None:
    """OpenAI's API answers after a last turn of the assistant, and so is it here."""
    body = {"messages": [USER, LABEL]}
    [request], _ = read(put("in.jsonl", {"url": "/v1/chat/completions", "body": body}))
    assert turns_of([request]) == [[USER, LABEL]]


def test_parameters_and_system_beside_a_conversation(put: Put, read: Read) -> None:
    """The row's other fields mean what they mean in every plain row."""
    [request], _ = read(put("in.jsonl", {"conversations": [HUMAN, GPT], "system": "Be brief.", "max_tokens": 5}))
    assert turns_of([request]) == [[BRIEF, USER]]
    assert request["max_tokens"] == 5


def test_calls_in_a_conversation(put: Put, read: Read) -> None:
    """Function calls and observations become the calls and results that a chat template reads."""
    call = {"from": "function_call", "value": '{"name": "weather", "arguments": {"city": "Köln"}}'}
    turns = [HUMAN, call, {"from": "observation", "value": "Rain."}, GPT]
    tools = json.dumps([{"type": "function", "function": {"name": "weather"}}])
    [request], _ = read(put("in.jsonl", {"conversations": turns, "tools": tools}))
    function = {"name": "weather", "arguments": {"city": "Köln"}}
    assert turns_of([request]) == [
        [
            USER,
            {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]},
            {"role": "tool", "content": "Rain."},
        ]
    ]
    assert json.loads(request["tools"])[0]["function"]["name"] == "weather"


WRONG: list[tuple[Any, str, str]] = [
    ([], "invalid_request", "conversations: "),
    ("hi", "invalid_request", "conversations: "),
    ("[not json", "malformed_json", "conversations: not valid JSON"),
    ([HUMAN, {"from": "robot", "value": "x"}], "invalid_request", "conversations.1.from: the speaker 'robot' is not known"),
    ([{"from": "human"}], "invalid_request", "conversations.0.value: Field required"),
    ([{"from": "human", "value": None}], "invalid_request", "conversations.0.value: "),
    ([{"from": 5, "value": "x"}], "invalid_request", "conversations.0.from: "),
    ([{"role": "user"}], "invalid_request", "conversations.0.content: Field required"),
    ([HUMAN, USER], "invalid_request", "conversations.1.from: Field required"),
    (
        [{"from": "function_call", "value": "x"}],
        "invalid_request",
        "conversations.0: a 'function_call' must be a JSON object",
    ),
    ([SYSTEM, GPT], "empty_prompt", "conversations: nothing is asked"),
    ([GPT], "empty_prompt", "conversations: nothing is asked"),
    ([{"from": "human", "value": " "}, GPT], "empty_prompt", "conversations: nothing is asked"),
    (None, "no_prompt", "no text in 'prompt' or 'messages'"),
]


def test_what_is_no_conversation(put: Put, read: Read) -> None:
    """Each is one reject that names its place in the row's own words."""
    rows = [{"id": f"{i}", "conversations": turns} for i, (turns, _, _) in enumerate(WRONG)]
    [request], rejects = read(put("in.jsonl", *rows, {"id": "ok", "conversations": [HUMAN]}))
    assert request["custom_id"] == "ok"
    assert [row["reason"] for row in rejects] == [reason for _, reason, _ in WRONG]
    assert [row["message"][: len(w[2])] for row, w in zip(rejects, WRONG, strict=True)] == [start for _, _, start in WRONG]
    assert [row["custom_id"] for row in rejects] == [f"{i}" for i in range(len(WRONG))]


def test_a_conversation_about_a_picture(put: Put, read: Read) -> None:
    """A mark for a picture that the row brings is no text; without the picture it is."""
    seen = {"from": "human", "value": "<image>\nWhat is this?"}
    rows = ({"conversations": [seen, GPT], "image": "a.jpg"}, {"conversations": [seen, GPT], "image": None})
    [request], [reject] = read(put("in.jsonl", *rows))
    assert (request["line"], reject["message"]) == (2, "conversations: it is about 'image', which a text model does not see")


def test_conversations_in_tables_and_documents(put: Put, read: Read) -> None:
    """JSON text in a cell, and an array or one object in a JSON file, are the same conversations."""
    cell = json.dumps([HUMAN, GPT]).replace('"', '""')
    put("s/a.csv", "id,conversations", f'1,"{cell}"')
    put("s/b.json", json.dumps([{"id": 2, "conversations": [HUMAN, GPT]}]))
    path = put("s/c.json", json.dumps({"id": 3, "conversations": [HUMAN, GPT]}, indent=1))
    requests, rejects = read(path.parent)
    assert [row["custom_id"] for row in requests] == ["1", "2", "3"]
    assert turns_of(requests) == [[USER]] * 3
    assert rejects == []
