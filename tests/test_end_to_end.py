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
RUN = ("--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "6")


def line(custom_id: str, text: str, **body: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": text}]
    body = {"model": "SmolLM2-135M-Instruct", "messages": messages, "max_tokens": 60, **body}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}


@pytest.fixture
def requests(write_jsonl: Callable[..., Path]) -> Path:
    greedy = [line(f"greedy-{i}", text) for i, text in enumerate(QUESTIONS)]
    sampled = [line(f"seeded-{i}", text, temperature=0.9, top_p=0.9, seed=i) for i, text in enumerate(QUESTIONS)]
    return write_jsonl([*greedy, *sampled, "{not json", line("long", "word " * 2000)])


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
        "rows": 14, "requests": 12, "rejects": 2, "results": 12, "failures": 0,
    }  # fmt: skip
    assert resumed["resumed_tokens"] == status["journal_tokens"]

    home = tmp_path / "undisturbed"
    home.mkdir()
    other = type(cli)(home)
    other.json("run", str(requests), *RUN)
    answers = "select custom_id, output_text, output_token_ids, finish_reason from results order by custom_id"
    assert cli.sql(answers) == other.sql(answers)

    texts = {row["custom_id"]: row["output_text"] for row in cli.sql(answers)}
    assert texts["greedy-0"] == "The capital of France is Paris."
    assert {row["reason"] for row in cli.sql("select reason from rejects")} == {"malformed_json", "prompt_too_long"}
