"""Rows of Anthropic message batches: their blocks become turns, and what a text model cannot do is refused by name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.core.config import SamplingDefaults
from tasks.core.request import SamplingParams, StructuredOutputs
from tasks.engine.tokenizer import ByteTokenizer

Rows = list[dict[str, Any]]
Put = Callable[..., Path]
Read = Callable[..., tuple[Rows, Rows]]


USER = {"role": "user", "content": "hi"}
USE = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Köln"}}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def line(custom_id: Any, *messages: Any, **params: Any) -> dict[str, Any]:
    return {
        "custom_id": custom_id,
        "params": {"model": "m", "max_tokens": 64, "messages": list(messages or (USER,)), **params},
    }


def turns_of(row: dict[str, Any]) -> Any:
    return json.loads(row["messages"])


def test_a_message_batch(put: Put, read: Read) -> None:
    """Id, model, text and parameters arrive under the names that they have in every shape."""
    given = {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "stop_sequences": ["END", "\n"], "metadata": {"user_id": "u"}}
    lines = (line("a", **given), line("b", max_tokens=None))
    requests, rejects = read(put("in.jsonl", *lines), served=["m"], defaults=SamplingDefaults(max_tokens=99))
    assert [(row["custom_id"], row["requested_model"], row["text"]) for row in requests] == [
        ("a", "m", "hi"),
        ("b", "m", "hi"),
    ]
    expected = SamplingParams(max_tokens=64, temperature=0.5, top_p=0.9, top_k=40, stop=("END", "\n"))
    assert SamplingParams.from_json(requests[0]["sampling"]) == expected
    assert requests[1]["max_tokens"] == 99
    assert rejects == []


def test_the_same_body_under_its_endpoint(put: Put, read: Read) -> None:
    """A line for /v1/messages is read as the params are."""
    body = line("a", system="Be brief.")["params"]
    requests, _ = read(
        put("in.jsonl", {"custom_id": "x", "url": "/v1/messages", "body": body}, line("y", system="Be brief."))
    )
    assert turns_of(requests[0]) == turns_of(requests[1]) == [{"role": "system", "content": "Be brief."}, USER]


@pytest.mark.parametrize(
    "system", ["Be brief.", [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]]
)
def test_the_system_prompt(put: Put, read: Read, system: Any) -> None:
    """It leads the chat as text or as blocks, before the run's own; without one the run's leads."""
    requests, _ = read(put("in.jsonl", line("a", system=system), line("b"), line("c", system="")), system="Be kind.")
    first, second, third = map(turns_of, requests)
    assert (first[0]["role"], first[1:]) == ("system", [USER])
    assert first[0]["content"] in ("Be brief.", [{"type": "text", "text": "Be brief."}])
    assert second == third == [{"role": "system", "content": "Be kind."}, USER]


def test_tools_and_what_they_gave(put: Put, read: Read) -> None:
    """Calls and results become the turns that a chat template reads, in their order."""
    tool = {"name": "weather", "description": "Tells it.", "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "Rain."}], "is_error": False}
    turns = (
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, USE]},
        {"role": "user", "content": [result, {"type": "text", "text": "And now?"}]},
    )
    choices = ({"type": "auto", "disable_parallel_tool_use": True}, {"type": "none"}, None)
    requests, rejects = read(
        put("in.jsonl", *(line(i, *turns, tools=[tool], tool_choice=one) for i, one in enumerate(choices)))
    )
    assert rejects == []
    function = {"name": "weather", "description": "Tells it.", "parameters": SCHEMA}
    call = {"id": "t1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Köln"}}}
    for row in requests:
        assert json.loads(row["tools"]) == [{"type": "function", "function": function}]
        assert turns_of(row) == [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": [{"type": "text", "text": "I look."}], "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "t1", "content": [{"type": "text", "text": "Rain."}]},
            {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
        ]
        assert row["text"] == "And now?"
        prompt = ByteTokenizer().text(row["prompt_token_ids"])
        assert "tool: Rain." in prompt
        assert '"description": "Tells it."' in prompt


@pytest.mark.parametrize("name", ["output_config", "output_format"])
def test_the_form_of_the_answer(put: Put, read: Read, name: str) -> None:
    """A schema is kept to, and what is wrong with one is said in the row's own words."""

    def form(schema: Any) -> dict[str, Any]:
        value = {"type": "json_schema", "schema": schema}
        return {name: {"format": value} if name == "output_config" else value}

    [request], [reject] = read(put("in.jsonl", line("a", **form(SCHEMA)), line("b", **form({"type": "objekt"}))))
    sampling = SamplingParams.from_json(request["sampling"])
    assert sampling.structured_outputs == StructuredOutputs("json", json.dumps(SCHEMA, separators=(",", ":")))
    where = "output_config.format.schema: " if name == "output_config" else "output_format.schema: "
    assert (reject["reason"], reject["message"][: len(where)]) == ("invalid_structured_output", where)


def block(kind: str, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": kind, **fields}]}


PREFILL = {"role": "assistant", "content": "{"}
WRONG: list[tuple[dict[str, Any], str]] = [
    (line("", block("image", source={})), "messages.0.content: a content block of type 'image' is not supported"),
    (line("", block("document", source={})), "messages.0.content: a content block of type 'document' is not supported"),
    (line("", block("thinking", thinking="")), "messages.0.content: a content block of type 'thinking' is not"),
    (line("", block("text")), "messages.0.content.0.text: Field required"),
    (line("", block("tool_use", id="a", name="b")), "messages.0: 'tool_use' belongs to the assistant"),
    (line("", block("tool_result")), "messages.0.content.0.tool_use_id: Field required"),
    (line("", {"role": "user", "content": [{"text": "hi"}]}), "messages.0.content.0: must be an object with a known 'type'"),
    (line("", {"role": "user", "content": ["hi"]}), "messages.0.content.0: must be an object with a known 'type'"),
    (line("", {"role": "user", "content": 5}), "messages.0.content: "),
    (
        line("", block("tool_result", tool_use_id="a", content=[{"type": "image"}])),
        "messages.0.content.0.content: a content",
    ),
    (line("", USER, PREFILL), "messages: the last turn is the assistant's"),
    (line("", {"role": "system", "content": "x"}), "messages.0.role: "),
    (line("", messages=[]), "messages: "),
    (line("", messages=None), "messages: "),
    (line("", temperature=1.5), "temperature: "),
    (line("", max_tokens=0), "max_tokens: "),
    (line("", max_tokens="64"), "max_tokens: "),
    (line("", stop_sequences=[""]), "stop_sequences.0: "),
    (line("", system=[{"type": "image"}]), "system: a content block of type 'image'"),
    (line("", thinking={"type": "enabled", "budget_tokens": 1024}), "the parameter 'thinking' is not supported: what"),
    (line("", tool_choice={"type": "any"}), "tool_choice: a call cannot be forced"),
    (line("", tools=[{"type": "web_search_20250305", "name": "w"}]), "tools.0.type: a tool of type 'web_search_20250305'"),
    (line("", tools=[{"name": "w"}]), "tools.0.input_schema: Field required"),
    (line("", tools=[{"name": "w", "input_schema": {"type": "objekt"}}]), "tools.0.input_schema: is no valid JSON schema"),
    (line("", tools=[{"name": "w", "input_schema": {}, "strict": True}]), "tools.0.strict: calls are not kept"),
    (line("", output_config={"effort": "low"}), "output_config: 'effort' is not supported"),
    (line("", mcp_servers=[{"url": "x"}]), "the parameter 'mcp_servers' is not supported: there are"),
    (line("", seed=7), "the parameter 'seed' is not supported"),
    ({"params": {}}, "messages: Field required"),
]


def test_what_is_refused(put: Put, read: Read) -> None:
    """Each is one reject that names its place, with the row's id, and the rows around it run."""
    rows = [row | {"custom_id": f"{i}"} for i, (row, _) in enumerate(WRONG)]
    [request], rejects = read(put("in.jsonl", *rows, line("ok", thinking={"type": "disabled"})))
    assert request["custom_id"] == "ok"
    assert [row["message"][: len(start)] for row, (_, start) in zip(rejects, WRONG, strict=True)] == [s for _, s in WRONG]
    assert [row["custom_id"] for row in rejects] == [f"{i}" for i in range(len(WRONG))]
    assert {row["reason"] for row in rejects} == {"invalid_request"}


def test_another_model_and_nothing_asked(put: Put, read: Read) -> None:
    """The model and the text are checked as in every shape."""
    empty = {"role": "user", "content": [{"type": "text", "text": " "}]}
    _, rejects = read(put("in.jsonl", line("a", model="claude"), line("b", empty)), served=["m"])
    assert [row["reason"] for row in rejects] == ["unknown_model", "empty_prompt"]
