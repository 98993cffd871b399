"""Tool definitions: checked, handed to the chat template, and never more promised than is kept."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks.engine.tokenizer import ByteTokenizer

Rows = list[dict[str, Any]]
Chat = Callable[..., str]
Put = Callable[..., Path]
Read = Callable[..., tuple[Rows, Rows]]

SCHEMA = {"type": "object", "properties": {"ort": {"type": "string", "description": "Köln, …"}}, "required": ["ort"]}
FUNCTION = {"name": "weather", "description": "Tells it.", "parameters": SCHEMA}
TOOL = {"type": "function", "function": FUNCTION}


class NoToolsTokenizer(ByteTokenizer):
    """A template without a place for tools."""

    def render(self, messages: list[dict[str, object]], tools: list[dict[str, object]] | None = None) -> str:
        if tools:
            raise ValueError("it has no place for 'tools'")
        return super().render(messages)


def test_tools_are_in_the_prompt(put: Put, chat: Chat, read: Read) -> None:
    """Definitions of a batch line and of a plain row are kept, and the template gets them before the turns."""
    rows = (chat("a", "hi", tools=[TOOL]), {"id": "b", "prompt": "hi", "tools": [TOOL]}, chat("c", "hi"))
    requests, rejects = read(put("in.jsonl", *rows))
    assert rejects == []
    assert [json.loads(row["tools"] or "null") for row in requests] == [[TOOL], [TOOL], None]
    prompts = [ByteTokenizer().text(row["prompt_token_ids"]) for row in requests]
    assert prompts[0] == prompts[1] == f"tools: {json.dumps([TOOL], ensure_ascii=False)}\n{prompts[2]}"


def test_what_leaves_the_choice_to_the_model(put: Put, chat: Chat, read: Read) -> None:
    """No tools, a free choice of them, and neutral flags are all right, and `strict` is not in the prompt."""
    loose = {"type": "function", "function": FUNCTION | {"strict": False}}
    bodies: list[dict[str, Any]] = [
        {"tools": []},
        {"tools": [], "tool_choice": "auto"},
        {"tool_choice": "none"},
        {"tools": [loose], "tool_choice": "auto", "parallel_tool_calls": False},
        {"tools": [loose], "tool_choice": "none", "parallel_tool_calls": True},
        {"tools": [loose], "tool_choice": None},
    ]
    requests, rejects = read(put("in.jsonl", *(chat(i, "hi", **body) for i, body in enumerate(bodies))))
    assert rejects == []
    assert [json.loads(row["tools"] or "[]") for row in requests] == [[]] * 3 + [[TOOL]] * 3


def function(**fields: Any) -> dict[str, Any]:
    return {"tools": [TOOL, {"type": "function", "function": {"name": "f"} | fields}]}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"tools": [TOOL], "tool_choice": "required"}, "tool_choice: a call cannot be forced"),
    (
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "weather"}}},
        "tool_choice: a call cannot be",
    ),
    ({"tools": {}}, "tools: "),
    ({"tools": [5]}, "tools.0: "),
    ({"tools": [{"type": "web_search"}]}, "tools.0.type: a tool of type 'web_search' is not supported"),
    ({"tools": [{"type": "function"}]}, "tools.0.function: Field required"),
    ({"tools": [{"function": FUNCTION}]}, "tools.0.type: Field required"),
    (function(name=""), "tools.1.function.name: "),
    (function(name=5), "tools.1.function.name: "),
    (function(name="a\0"), "tools.1.function.name: must not hold a NUL"),
    (function(description=5), "tools.1.function.description: "),
    (function(parameters="{}"), "tools.1.function.parameters: "),
    (function(parameters={"type": "objekt"}), "tools.1.function.parameters: is no valid JSON schema: at $.type"),
    (function(parameters={"properties": []}), "tools.1.function.parameters: is no valid JSON schema: at $.properties"),
    (function(strict=True), "tools.1.function.strict: calls are not kept to their schema"),
    ({"functions": [FUNCTION]}, "the parameter 'functions' is not supported: use 'tools'"),
    ({"function_call": {"name": "f"}}, "the parameter 'function_call' is not supported: use 'tools'"),
]


def test_what_is_refused(put: Put, chat: Chat, read: Read) -> None:
    """A definition that is none, and what would need calls to be kept to something, is a reject in either kind of row."""
    lines = [chat(i, "hi", **body) for i, (body, _) in enumerate(WRONG)]
    plain = [{"prompt": "hi"} | body for body, _ in WRONG]
    [request], rejects = read(put("in.jsonl", *lines, *plain, chat("ok", "hi", tools=[TOOL])))
    assert request["custom_id"] == "ok"
    starts = [start for _, start in WRONG] * 2
    assert [row["message"][: len(start)] for row, start in zip(rejects, starts, strict=True)] == starts
    assert {row["reason"] for row in rejects} == {"invalid_request"}


def test_tools_of_a_completion(put: Put, read: Read) -> None:
    """A raw prompt has no template to show tools."""
    lines = [{"url": "/v1/completions", "body": {"prompt": "hi", "tools": tools}} for tools in ([], [TOOL])]
    [request], [reject] = read(put("in.jsonl", *lines))
    assert request["tools"] is None
    assert reject["message"] == "the parameter 'tools' is not supported"


def test_a_template_without_a_place_for_tools(put: Put, chat: Chat, read: Read) -> None:
    """It is a reject, and not a prompt that silently lacks them."""
    rows = (chat("a", "hi", tools=[TOOL]), chat("b", "hi"))
    [request], [reject] = read(put("in.jsonl", *rows), tokenizer=NoToolsTokenizer())
    assert (request["custom_id"], reject["custom_id"], reject["reason"]) == ("b", "a", "chat_template")
    assert "no place for 'tools'" in reject["message"]


def test_tools_in_cells(put: Put, read: Read) -> None:
    """Definitions may stand as JSON text, in a table and in JSON lines; any other text there is the user's own."""
    cell = json.dumps([TOOL])
    put("s/a.csv", "prompt;tools", 'hi;"' + cell.replace('"', '""') + '"', "hi;hammer, saw", "hi;[hammer]", "hi;")
    path = put("s/b.jsonl", {"prompt": "hi", "tools": cell}, {"prompt": "hi", "tools": "[hammer]", "tool_choice": "mine"})
    requests, rejects = read(path.parent)
    assert [row["tools"] is not None for row in requests] == [True, False, False, False, True, False]
    assert rejects == []
