"""Requests for the benchmarks, made from the samples in data/samples; the same every time."""

import json
from pathlib import Path
from typing import Any

from benchmarks.rig import REPOSITORY

_SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string", "maxLength": 60}, "sure": {"type": "boolean"}},
    "required": ["answer", "sure"],
    "additionalProperties": False,
}
MIXED: dict[str, dict[str, Any]] = {
    "greedy": {},
    "temperature": {"temperature": 0.8},
    "top-p and top-k": {"temperature": 1.0, "top_p": 0.9, "top_k": 40},
    "min-p": {"temperature": 0.7, "min_p": 0.05, "min_tokens": 20},
    "penalties": {"presence_penalty": 0.6, "frequency_penalty": 0.4, "repetition_penalty": 1.1},
    "penalties, sampled": {"temperature": 0.9, "presence_penalty": 0.5, "frequency_penalty": 0.5},
    "stop strings": {"stop": ["\n\n", ". The"]},
    "bad words": {"bad_words": ["the answer", "I am"], "temperature": 0.6},
    "json": {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": _SCHEMA}}},
    "json, sampled": {"structured_outputs": {"json": _SCHEMA}, "temperature": 0.9},
    "choices": {"n": 2, "temperature": 0.9},
    "logprobs": {"logprobs": True, "top_logprobs": 2},
}
"""Kinds of sampling; those that sample get a seed of their own."""


def chats() -> list[list[dict[str, Any]]]:
    """The chats of the samples' OpenAI Batch files, in seven languages."""
    lines = [
        json.loads(line)
        for path in sorted((REPOSITORY / "data/samples").rglob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith('{"custom_id"') and line.endswith("}")
    ]
    found = [line["body"]["messages"] for line in lines]
    return [turns for turns in found if sum(len(turn["content"]) for turn in turns) < 1500]


def write_mixed(path: Path, num_requests: int, max_tokens: int) -> Path:
    """Requests of all kinds of sampling in turn, over chats in all languages."""
    turns, kinds = chats(), list(MIXED)
    rows = []
    for i in range(num_requests):
        kind = kinds[i % len(kinds)]
        body = {"messages": turns[(i * 7) % len(turns)], "max_tokens": max_tokens, **MIXED[kind]}
        if body.get("temperature"):
            body["seed"] = i
        rows.append({"custom_id": f"{i:03d} {kind}", "method": "POST", "url": "/v1/chat/completions", "body": body})
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path
