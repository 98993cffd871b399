"""What is asked: text and parts, nulls, earlier tool calls, and text that must stay exactly as it is."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Rows = list[dict[str, Any]]
Chat = Callable[..., str]
Put = Callable[..., Path]
Read = Callable[..., tuple[Rows, Rows]]

PARTS = [{"type": "text", "text": "yo"}, {"type": "text", "text": "!"}]
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Köln"}'}}


@pytest.mark.parametrize("is_first", [True, False])
def test_text_and_parts_in_one_file(put: Put, chat: Chat, read: Read, is_first: bool) -> None:
    """Text in one row and parts in the next are both requests, the parts kept as given, in either order."""
    lines = [chat("text", "hi"), chat("parts", PARTS)]
    requests, rejects = read(put("in.jsonl", *lines[:: 1 if is_first else -1]))
    by_id = {row["custom_id"]: row for row in requests}
    assert json.loads(by_id["text"]["messages"]) == [{"role": "user", "content": "hi"}]
    assert json.loads(by_id["parts"]["messages"]) == [{"role": "user", "content": PARTS}]
    assert (by_id["text"]["text"], by_id["parts"]["text"]) == ("hi", "yo\n!")
    assert rejects == []


@pytest.mark.parametrize("kind", ["image_url", "input_image", "input_audio", "file", "video_url"])
def test_a_part_that_is_no_text(put: Put, chat: Chat, read: Read, kind: str) -> None:
    """A text model refuses a part of another kind by its name, and the rows around it go on."""
    content = [PARTS[0], IMAGE | {"type": kind}]
    [request], [reject] = read(put("in.jsonl", chat("bad", content), chat("ok", PARTS)))
    assert (request["custom_id"], reject["custom_id"], reject["reason"]) == ("ok", "bad", "invalid_request")
    assert repr(kind) in reject["message"]
    assert "messages.0.content" in reject["message"]


WRONG_CONTENT: list[tuple[Any, str]] = [
    (5, "messages.0.content: "),
    (True, "messages.0.content: "),
    ({"type": "text", "text": "hi"}, "messages.0.content: "),
    (["hi"], "messages.0.content.0: "),
    ([{"type": "text"}], "messages.0.content.0.text: Field required"),
    ([{"type": "text", "text": 5}], "messages.0.content.0.text: "),
    ([{"type": [[]], "text": "hi"}], "messages.0.content.0.type: "),
    ([{"text": "hi"}], "messages.0.content.0.type: Field required"),
    ([{"type": "text", "text": "\0"}], "messages.0.content.0.text: must not hold a NUL"),
    ("a\0b", "messages.0.content: must not hold a NUL"),
    (None, "messages.0.content: must not be null"),
]


def test_content_of_the_wrong_shape(put: Put, chat: Chat, read: Read) -> None:
    """The reject names the place in the body, however deep, and what is wrong there."""
    _, rejects = read(put("in.jsonl", *(chat(i, content) for i, (content, _) in enumerate(WRONG_CONTENT))))
    named = [name for _, name in WRONG_CONTENT]
    assert [row["message"][: len(name)] for row, name in zip(rejects, named, strict=True)] == named


@pytest.mark.parametrize("content", ["", "  ", "\n\t\u00a0\u3000", [], [{"type": "text", "text": " "}]])
def test_nothing_is_asked(put: Put, chat: Chat, read: Read, content: Any) -> None:
    """A user's turn of blanks alone is a reject that names the messages."""
    _, [reject] = read(put("in.jsonl", chat("a", content)))
    assert reject["reason"] == "empty_prompt"
    assert reject["message"].startswith("messages: ")


WRONG_MESSAGES: list[tuple[Any, str]] = [
    ([], "messages: "),
    (None, "messages: "),
    ("hi", "messages: "),
    ({}, "messages: "),
    ([{"role": "user"}], "messages.0.content: "),
    ([{"content": "hi"}], "messages.0.role: "),
    ([{"role": "robot", "content": "hi"}], "messages.0.role: "),
    ([{"role": "user", "content": "hi"}, 5], "messages.1: "),
    ([{"role": "system", "content": "hi"}], "messages: "),
    ([{"role": "user", "content": "hi", "name": 5}], "messages.0.name: "),
    ([{"role": "user", "content": "hi", "audio": {"id": "x"}}], "messages.0: 'audio'"),
    ([{"role": "user", "content": "hi", "tool_calls": [CALL]}], "messages.0: 'tool_calls'"),
    ([{"role": "assistant", "content": "", "function_call": {"name": "f"}}], "messages.0: 'function_call'"),
]


def test_messages_of_the_wrong_shape(put: Put, read: Read) -> None:
    """Messages that are no chat are a reject that names them."""
    bodies = [{"messages": messages} for messages, _ in WRONG_MESSAGES]
    _, rejects = read(put("in.jsonl", *({"url": "/v1/chat/completions", "body": body} for body in bodies)))
    named = [name for _, name in WRONG_MESSAGES]
    assert [row["message"][: len(name)] for row, name in zip(rejects, named, strict=True)] == named


def test_a_million_wrong_messages_are_one_error(put: Put, read: Read) -> None:
    """Checking stops at the first wrong message of a list."""
    line = {"url": "/v1/chat/completions", "body": {"messages": [0] * 1_000_000}}
    _, [reject] = read(put("in.jsonl", line))
    assert reject["message"].startswith("messages.0: ")


def test_null_is_absent(put: Put, chat: Chat, read: Read) -> None:
    """Null parameters in thousands of rows do not keep the last one from having a seed."""
    nulls = dict.fromkeys(("seed", "stop", "max_tokens", "temperature", "n", "tools", "logprobs", "user", "model"))
    lines = [chat(i, "hi", **nulls) for i in range(3_000)]
    requests, rejects = read(put("in.jsonl", *lines, chat("last", "hi", seed=7, temperature=1)))
    assert (len(requests), rejects) == (3_001, [])
    assert json.loads(requests[0]["sampling"]) == {"max_tokens": 512}
    assert json.loads(requests[-1]["sampling"]) == {"max_tokens": 512, "seed": 7, "temperature": 1.0}


def test_null_fields_of_a_line_and_a_message(put: Put, read: Read) -> None:
    """A null id, method, name or list of calls is as good as none."""
    message = {"role": "user", "content": "hi", "name": None, "tool_calls": None, "function_call": None}
    body = {"messages": [message], "model": None}
    [request], _ = read(put("in.jsonl", {"custom_id": None, "method": None, "url": "/v1/chat/completions", "body": body}))
    assert json.loads(request["messages"]) == [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize("content", [{"content": None}, {}, {"content": "I look it up."}])
def test_an_earlier_tool_call_is_history(put: Put, read: Read, content: dict[str, Any]) -> None:
    """An assistant's null content is legal beside its tool calls; they and their answer are kept for the template."""
    turns = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "tool_calls": [CALL], **content},
        {"role": "tool", "tool_call_id": "c1", "content": "Rain."},
    ]
    [request], _ = read(put("in.jsonl", {"url": "/v1/chat/completions", "body": {"messages": turns}}))
    kept = json.loads(request["messages"])
    assert kept[1]["content"] == (content.get("content") or "")
    assert kept[1]["tool_calls"] == [CALL | {"function": {"name": "weather", "arguments": {"city": "Köln"}}}]
    assert kept[2] == turns[2]
    assert request["text"] == "Weather?"


@pytest.mark.parametrize(
    "arguments", ["{oo", "[1]", "5", '{"a": "\\ud83d"}', '{"a": NaN}', [1], '{"a": ' + "[" * 2000 + "]" * 2000 + "}"]
)
def test_an_earlier_tool_call_of_the_wrong_shape(put: Put, read: Read, arguments: Any) -> None:
    """Arguments that are no JSON object are a reject that names them."""
    call = {"function": {"name": "f", "arguments": arguments}}
    turns = [{"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "user", "content": "hi"}]
    _, [reject] = read(put("in.jsonl", {"url": "/v1/chat/completions", "body": {"messages": turns}}))
    assert reject["message"].startswith("messages.0.tool_calls.0.function.arguments: ")


def test_tool_arguments_deeper_than_python_goes(put: Put, read: Read) -> None:
    """Nesting that can be read but not written again is a reject."""
    call = {"function": {"name": "f", "arguments": '{"a": ' + "[" * 1010 + "]" * 1010 + "}"}}
    turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    body = {"url": "/v1/chat/completions", "body": {"messages": turns}}
    [request], [reject] = read(put("in.jsonl", body, '{"prompt": "hi"}'))
    assert (request["line"], reject["reason"]) == (2, "malformed_json")


def test_what_distinguishes_a_chat_is_its_last_question(put: Put, read: Read) -> None:
    """`text` is the last user turn, and `messages` the whole chat with its roles and names."""
    turns = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "one", "name": "ann"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "two"},
    ]
    [request], _ = read(put("in.jsonl", {"url": "/v1/chat/completions", "body": {"messages": turns}}))
    assert request["text"] == "two"
    assert json.loads(request["messages"]) == turns


EXACT = [
    "2026-01-02 03:04:05",
    "2026-01-02T03:04:05+01:00",
    "18446744073709551616",
    "007",
    "1.50",
    "1e5",
    "true",
    "NULL",
    "NaN",
    "None",
    "\n\n    def f():\n        pass\n\n",
    " leading and trailing \t",
    "a\r\nb\rc",
    "e\u0301 and é are not the same",
    "ไม่ว่าอะไร हिन्दी العربية",
    "👩\u200d👩\u200d👧 🌶\ufe0f",
    "\u200bzero\u200d width \ufeff",
    "<|im_start|>user\n{{ 7 * 7 }}",
    '"quoted", with; commas | and\ttabs',
    "\\n is no line break, nor is \\u0041 an A",
    "=SUM(A1:A9)",
    "-",
]


def test_text_stays_exactly_as_written(put: Put, chat: Chat, read: Read) -> None:
    """Nothing is trimmed, normalised or taken for a date or a number, in any format, down to the Parquet file."""
    chats = [chat(f"chat {i}", prompt) for i, prompt in enumerate(EXACT)]
    plain = [json.dumps({"id": f"plain {i}", "prompt": prompt}, ensure_ascii=False) for i, prompt in enumerate(EXACT)]
    raw = [{"custom_id": i, "url": "/v1/completions", "body": {"prompt": prompt}} for i, prompt in enumerate(EXACT)]
    cells = ['"' + prompt.replace('"', '""') + '"' for prompt in EXACT]
    put("s/a.jsonl", *chats, *plain, *raw)
    put("s/b.csv", "prompt", *cells)
    path = put("s/c.tsv", "id\tprompt", *(f"tsv {i}\t{cell}" for i, cell in enumerate(cells)))
    requests, rejects = read(path.parent)
    assert [row["text"] for row in requests] == EXACT * 5
    assert [json.loads(row["messages"])[-1]["content"] for row in requests if row["messages"]] == EXACT * 4
    assert rejects == []
