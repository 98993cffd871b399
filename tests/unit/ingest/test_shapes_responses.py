"""Lines for /v1/responses: run as chats; what needs a server that remembers or acts is refused by name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.core.request import SamplingParams, StructuredOutputs

Rows = list[dict[str, Any]]
Put = Callable[..., Path]
Read = Callable[..., tuple[Rows, Rows]]


USER = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def line(custom_id: Any = None, asked: Any = "hi", **body: Any) -> dict[str, Any]:
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/responses", "body": {"model": "m", "input": asked, **body}}


def turns_of(row: dict[str, Any]) -> Any:
    return json.loads(row["messages"])


def test_text_and_instructions(put: Put, read: Read) -> None:
    """Text is one user turn, and instructions lead it in place of the run's system prompt."""
    requests, rejects = read(
        put("in.jsonl", line("a", instructions="Be brief."), line("b")), system="Be kind.", served=["m"]
    )
    assert turns_of(requests[0]) == [{"role": "system", "content": "Be brief."}, USER]
    assert turns_of(requests[1]) == [{"role": "system", "content": "Be kind."}, USER]
    assert [(row["custom_id"], row["text"], row["requested_model"]) for row in requests] == [
        ("a", "hi", "m"),
        ("b", "hi", "m"),
    ]
    assert rejects == []


def test_messages(put: Put, read: Read) -> None:
    """Items are turns, their parts as chats have them."""
    items = [
        {"role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "one"}]},
        {
            "type": "message",
            "id": "m1",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "1", "annotations": []}],
        },
        {"role": "user", "content": "two"},
    ]
    [request], _ = read(put("in.jsonl", line("a", items)))
    assert turns_of(request) == [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "one"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "1"}]},
        {"role": "user", "content": "two"},
    ]
    assert request["text"] == "two"


def test_calls_and_what_they_gave(put: Put, read: Read) -> None:
    """Calls one after another are one turn of the assistant, and each result is a turn of its own."""
    items = [
        USER,
        *({"type": "function_call", "call_id": i, "name": "f", "arguments": '{"x": 1}'} for i in ("c1", "c2")),
        {"type": "function_call_output", "call_id": "c1", "output": "Rain."},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "Sun."}]},
    ]
    tool = {"type": "function", "name": "f", "parameters": SCHEMA, "strict": False}
    [request], _ = read(put("in.jsonl", line("a", items, tools=[tool], tool_choice="auto", parallel_tool_calls=False)))
    calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": {"x": 1}}} for i in ("c1", "c2")]
    assert turns_of(request) == [
        USER,
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "content": "Rain.", "tool_call_id": "c1"},
        {"role": "tool", "content": [{"type": "text", "text": "Sun."}], "tool_call_id": "c2"},
    ]
    function = {"name": "f", "description": None, "parameters": SCHEMA}
    assert json.loads(request["tools"]) == [{"type": "function", "function": function}]


def test_parameters(put: Put, read: Read) -> None:
    """OpenAI's and vLLM's parameters arrive, and what changes no answer is passed over."""
    given = {"temperature": 0.5, "top_p": 0.9, "seed": 7, "top_k": 5, "stop": "END", "logit_bias": {"5": 1}}
    form = {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}, "verbosity": "medium"}
    logprobs = {"include": ["message.output_text.logprobs"], "top_logprobs": 3}
    neutral = {
        "store": False,
        "truncation": "disabled",
        "background": False,
        "reasoning": None,
        "previous_response_id": None,
    }
    [request], rejects = read(put("in.jsonl", line("a", max_output_tokens=9, text=form, **given, **logprobs, **neutral)))
    expected = SamplingParams(
        max_tokens=9,
        temperature=0.5,
        top_p=0.9,
        seed=7,
        top_k=5,
        stop=("END",),
        logit_bias=((5, 1.0),),
        logprobs=3,
        structured_outputs=StructuredOutputs("json", json.dumps(SCHEMA, separators=(",", ":"))),
    )
    assert SamplingParams.from_json(request["sampling"]) == expected
    assert rejects == []


PART = {"type": "input_image", "image_url": "x"}
WRONG: list[tuple[dict[str, Any], str]] = [
    (line(asked=None), "input: "),
    (line(asked=[]), "input: "),
    (line(asked=5), "input: "),
    (line(asked=[5]), "input.0: must be an object"),
    (line(asked=[{"role": "user", "content": [PART]}]), "input.0.content: a content part of type 'input_image' is not"),
    (line(asked=[{"role": "user"}]), "input.0.content: Field required"),
    (line(asked=[{"role": "robot", "content": "x"}]), "input.0.role: "),
    (line(asked=[USER, {"type": "reasoning", "summary": []}]), "input: an item of type 'reasoning' is not supported"),
    (line(asked=[{"type": "item_reference", "id": "x"}]), "input: an item of type 'item_reference' is not supported"),
    (line(asked=[USER, {"type": "function_call", "name": "f"}]), "input.1.call_id: Field required"),
    (line(max_output_tokens=0), "max_output_tokens: "),
    (line(temperature=3), "temperature: "),
    (line(text={"verbosity": "low"}), "text: 'verbosity' is not supported"),
    (line(include=["reasoning.encrypted_content"]), "include: 'reasoning.encrypted_content' is not supported"),
    (line(top_logprobs=2), "'top_logprobs' needs 'message.output_text.logprobs' in 'include'"),
    (line(previous_response_id="r"), "the parameter 'previous_response_id' is not supported: send"),
    (line(conversation="c"), "the parameter 'conversation' is not supported: send"),
    (line(background=True), "the parameter 'background' is not supported"),
    (line(reasoning={"effort": "low"}), "the parameter 'reasoning' is not supported"),
    (line(truncation="auto"), "the parameter 'truncation' is not supported: ask for --truncate-prompt"),
    (line(prompt={"id": "p"}), "the parameter 'prompt' is not supported"),
    (line(tools=[{"type": "web_search"}]), "tools.0.type: a tool of type 'web_search' is not supported"),
    (line(tools=[{"type": "function", "name": ""}]), "tools.0.name: "),
    (line(tool_choice="required"), "tool_choice: a call cannot be forced"),
    (line(tool_choice={"type": "function", "name": "f"}), "tool_choice: a call cannot be forced"),
    (line(surprise=1), "the parameter 'surprise' is not supported"),
]


def test_what_is_refused(put: Put, read: Read) -> None:
    """Each is one reject that names its place, and the rows around it run."""
    rows = [row | {"custom_id": f"{i}"} for i, (row, _) in enumerate(WRONG)]
    [request], rejects = read(put("in.jsonl", *rows, line("ok")))
    assert request["custom_id"] == "ok"
    assert [row["message"][: len(start)] for row, (_, start) in zip(rejects, WRONG, strict=True)] == [s for _, s in WRONG]
    assert [row["custom_id"] for row in rejects] == [f"{i}" for i in range(len(WRONG))]


@pytest.mark.parametrize(
    ("form", "start"),
    [
        ({"type": "json_schema", "schema": {"type": "objekt"}}, "text.format.schema: is no valid JSON schema"),
        ({"type": "json_schema"}, "text.format.schema: is missing"),
        ({"type": "grammar"}, "text.format.type: must be"),
        ("json", "text.format: must be an object"),
    ],
)
def test_a_form_that_cannot_be_given(put: Put, read: Read, form: Any, start: str) -> None:
    """What is wrong with the form of the answer is said in this endpoint's words."""
    _, [reject] = read(put("in.jsonl", line("a", text={"format": form})))
    assert (reject["reason"], reject["message"][: len(start)]) == ("invalid_structured_output", start)


def test_nobody_asks(put: Put, read: Read) -> None:
    """Items without a user's turn, or with an empty one, ask nothing."""
    items = [{"role": "assistant", "content": "x"}]
    _, rejects = read(put("in.jsonl", line("a", items), line("b", " ")))
    assert [(row["reason"], row["message"][:7]) for row in rejects] == [("empty_prompt", "input: ")] * 2
