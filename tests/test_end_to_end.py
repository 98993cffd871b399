"""A dozen requests through real vLLM in a real engine child, killed in mid-generation and resumed."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

QUESTIONS = [
    "What is the capital of France?",
    "Nenne drei Farben.",
    "日本の首都はどこですか。",
    "What is two plus two?",
    "Write a short story about a fox.",
    "Say hello with an emoji 🌶.",
]
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string", "maxLength": 30}, "sure": {"type": "boolean"}},
    "required": ["answer", "sure"],
}
FORM = {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}}
KINDS: dict[str, dict[str, Any]] = {
    "penalties": {"presence_penalty": 0.8, "frequency_penalty": 0.5, "temperature": 0.7, "seed": 5},
    "stop": {"stop": [" of", "!"], "min_tokens": 2},
    "bad-words": {"bad_words": ["capital of"]},
    "json": FORM,
    "json-cut": {**FORM, "max_tokens": 8},
    "choices": {"n": 2, "temperature": 0.9, "seed": 3},
    "logprobs": {"logprobs": True, "top_logprobs": 2},
}
RUN = ("--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "6")


def line(custom_id: str, text: str, **body: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": text}]
    body = {"model": "SmolLM2-135M-Instruct", "messages": messages, "max_tokens": 60, **body}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}


@pytest.fixture
def requests(write_jsonl: Callable[..., Path]) -> Path:
    greedy = [line(f"greedy-{i}", text) for i, text in enumerate(QUESTIONS)]
    sampled = [line(f"seeded-{i}", text, temperature=0.9, top_p=0.9, seed=i) for i, text in enumerate(QUESTIONS)]
    others = [line(name, QUESTIONS[0], **kind) for name, kind in KINDS.items()]
    bad = line("bad-form", "hi", response_format={"type": "json_schema", "json_schema": {"schema": {"type": "objekt"}}})
    return write_jsonl([*greedy, *sampled, *others, "{not json", line("long", "word " * 2000), bad])


def journal_size(cli: Any) -> int:
    return sum(path.stat().st_size for path in cli.checkpoints.glob("*/*.journal"))


def test_killed_in_mid_generation_and_resumed_equals_undisturbed(cli: Any, requests: Path, tmp_path: Path) -> None:
    """After SIGKILL the second start keeps every token and ends with all rows, token for token as if nothing had been."""
    process = cli.start("run", str(requests), *RUN)
    deadline = time.monotonic() + 120
    while journal_size(cli) < 2500:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    (status,) = cli.json("status")
    assert status["state"] == "interrupted"
    assert status["journal_tokens"] > 0

    resumed = cli.json("run", str(requests), *RUN)
    assert {k: resumed[k] for k in ("rows", "requests", "rejects", "results", "failures")} == {
        "rows": 22, "requests": 19, "rejects": 3, "results": 19, "failures": 0,
    }  # fmt: skip
    assert resumed["resumed_tokens"] == status["journal_tokens"]

    home = tmp_path / "undisturbed"
    home.mkdir()
    other = type(cli)(home)
    other.json("run", str(requests), *RUN)
    columns = "custom_id, choice_index, output_text, output_token_ids, finish_reason, stop_reason, is_valid_json"
    answers = f"select {columns}, prompt_tokens, output_tokens, len(logprobs) n from results order by 1, 2"
    assert cli.sql(answers) == other.sql(answers)

    said = {(row["custom_id"], row["choice_index"]): row for row in cli.sql(answers)}
    assert said["greedy-0", 0]["output_text"] == "The capital of France is Paris."
    assert (said["stop", 0]["output_text"], said["stop", 0]["stop_reason"]) == ("The capital", " of")
    assert said["json", 0]["is_valid_json"] is True
    assert (said["json-cut", 0]["is_valid_json"], said["json-cut", 0]["finish_reason"]) == (False, "length")
    assert said["choices", 0]["output_text"] != said["choices", 1]["output_text"]
    assert said["logprobs", 0]["n"] == said["logprobs", 0]["output_tokens"]
    assert "capital of" not in said["bad-words", 0]["output_text"]
    reasons = {row["reason"] for row in cli.sql("select reason from rejects")}
    assert reasons == {"malformed_json", "prompt_too_long", "invalid_structured_output"}
    assert cli("check", resumed["run_id"]).returncode == 0
