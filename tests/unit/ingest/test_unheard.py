"""The fields of vLLM's own requests against ours: each is honoured, ignored or refused by name, and none is forgotten."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.ingest.shapes.anthropic import Params
from tasks.ingest.shapes.protocol import Body, ChatBody, CompletionBody
from tasks.ingest.shapes.responses import ResponseBody
from tasks.ingest.shapes.unheard import AT_REST, IGNORED, REFUSED

Rows = list[dict[str, Any]]
Chat = Callable[..., str]
Put = Callable[..., Path]
Read = Callable[..., tuple[Rows, Rows]]

MODELS: dict[str, type[Body]] = {
    "vllm.entrypoints.openai.chat_completion.protocol:ChatCompletionRequest": ChatBody,
    "vllm.entrypoints.openai.completion.protocol:CompletionRequest": CompletionBody,
    "vllm.entrypoints.openai.responses.protocol:ResponsesRequest": ResponseBody,
    "vllm.entrypoints.anthropic.protocol:AnthropicMessagesRequest": Params,
}
LIST_FIELDS = """
import importlib, json, sys
found = {}
for path in sys.argv[1:]:
    module, name = path.split(":")
    fields = getattr(importlib.import_module(module), name).model_fields
    found[path] = {key: repr(field.get_default(call_default_factory=False)) for key, field in fields.items()}
print("FIELDS", json.dumps(found))
"""


@pytest.fixture(scope="module")
def fields() -> dict[str, dict[str, str]]:
    """The fields of vLLM's requests with their defaults, asked in a process of its own: its import is heavy and talks."""
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    command = [sys.executable, "-c", LIST_FIELDS, *MODELS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    [line] = [line for line in done.stdout.splitlines() if line.startswith("FIELDS ")]
    found: dict[str, dict[str, str]] = json.loads(line.removeprefix("FIELDS "))
    return found


@pytest.mark.engine
def test_no_field_of_vllm_is_forgotten(fields: dict[str, dict[str, str]]) -> None:
    """Each field of each request is ours, or in exactly one of two lists, so that a new vLLM's new field is noticed."""
    for path, ours in MODELS.items():
        assert len(fields[path]) > 10
        others = fields[path].keys() - ours.model_fields.keys()
        assert [name for name in others if (name in IGNORED) == (name in REFUSED)] == [], path


@pytest.mark.engine
def test_a_field_at_its_default_asks_for_nothing(fields: dict[str, dict[str, str]]) -> None:
    """What vLLM fills in by itself where nothing is said is no refusal when it is said."""
    literal: dict[str, Any] = {
        "None": None,
        "True": True,
        "False": False,
        "1.0": 1.0,
        "0": 0,
        "[]": [],
        "'disabled'": "disabled",
    }
    for path, ours in MODELS.items():
        for name, default in fields[path].items():
            if name in REFUSED and name not in ours.model_fields and "Undefined" not in default:
                value = literal[default]
                at_rest = ours.at_rest
                assert value is None or (value == at_rest[name] if name in at_rest else not value), (path, name)


def test_refused_unless_at_rest(put: Put, chat: Chat, read: Read) -> None:
    """Each refused parameter costs its row by its name, with the remedy, and does not at the value that asks for nothing."""
    names = [name for name in REFUSED if name not in ChatBody.model_fields]
    refused = [chat(f"bad {name}", "hi", **{name: "surprise"}) for name in names]
    resting = [chat(f"good {name}", "hi", **{name: AT_REST.get(name)}) for name in names]
    requests, rejects = read(put("in.jsonl", *refused, *resting))
    assert [row["custom_id"] for row in requests] == [f"good {name}" for name in names]
    hints = [f": {REFUSED[name]}" if REFUSED[name] else "" for name in names]
    expected = [f"the parameter {name!r} is not supported{hint}" for name, hint in zip(names, hints, strict=True)]
    assert [row["message"] for row in rejects] == expected


WANTED: list[tuple[str, Any]] = [
    ("skip_special_tokens", False),
    ("add_generation_prompt", False),
    ("include_reasoning", False),
    ("spaces_between_special_tokens", False),
    ("prompt_logprobs", 0),
    ("thinking_token_budget", 0),
    ("truncate_prompt_tokens", 0),
    ("reasoning_effort", "none"),
]


def test_what_looks_like_nothing_and_is_not(put: Put, chat: Chat, read: Read) -> None:
    """False, 0 and "none" ask for something where they are not the default."""
    requests, rejects = read(put("in.jsonl", *(chat(i, "hi", **{name: value}) for i, (name, value) in enumerate(WANTED))))
    assert requests == []
    assert [row["message"].split("'")[1] for row in rejects] == [name for name, _ in WANTED]


def test_special_tokens_of_a_raw_prompt(put: Put, read: Read) -> None:
    """A raw prompt gets its special tokens, a chat the ones that its template writes; the opposite is refused."""
    bodies = ({"prompt": "hi", "add_special_tokens": value} for value in (True, False))
    [request], [reject] = read(put("in.jsonl", *({"url": "/v1/completions", "body": body} for body in bodies)))
    assert (request["line"], reject["message"].split("'")[1]) == (1, "add_special_tokens")
