"""Prompts at, near and far over the model's context, and lines so large that the tokenizer must not see them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tasks.engine.tokenizer import ByteTokenizer

Rows = list[dict[str, Any]]
Chat = Callable[..., str]
Put = Callable[..., Path]
Read = Callable[..., tuple[Rows, Rows]]


class CountingTokenizer(ByteTokenizer):
    """Remembers the longest prompt it was given, and claims that a token may stand for several bytes."""

    max_token_bytes = 8

    def __init__(self, max_model_len: int) -> None:
        super().__init__(max_model_len)
        self.longest = 0
        self.most_chars = 0

    def encode(self, prompts: Sequence[str], *, rendered: Sequence[bool]) -> list[list[int]]:
        self.most_chars = max(self.most_chars, sum(map(len, prompts)))
        self.longest = max([self.longest, *map(len, prompts)])
        return super().encode(prompts, rendered=rendered)


class RefusingTokenizer(ByteTokenizer):
    """A template that wants no `tool`, and a vocabulary without spaces."""

    def render(self, messages: list[dict[str, object]], tools: list[dict[str, object]] | None = None) -> str:
        if messages[0]["content"] == "raise":
            raise ValueError("roles must alternate")
        return super().render(messages, tools)

    def encode(self, prompts: Sequence[str], *, rendered: Sequence[bool]) -> list[list[int]]:
        return super().encode([prompt.replace("\u200b", "") for prompt in prompts], rendered=rendered)


def raw(num_tokens: int, **body: Any) -> str:
    """A completion line whose prompt has so many tokens."""
    return json.dumps({"custom_id": f"{num_tokens}", "url": "/v1/completions", "body": {"prompt": "x" * num_tokens} | body})


def test_at_and_over_the_context(put: Put, read: Read) -> None:
    """511 of 512 tokens leave room for one; 512 and more are rejects with both numbers; the others are untouched."""
    short = [json.dumps({"id": i, "prompt": "hi", "max_tokens": 16}) for i in range(50)]
    lines = (*short[:25], raw(511), raw(512), raw(513), raw(5000), *short[25:])
    requests, rejects = read(put("in.jsonl", *lines), tokenizer=ByteTokenizer(512))
    assert [(row["custom_id"], row["max_tokens"]) for row in requests if row["prompt_tokens"] > 100] == [("511", 1)]
    assert [row["max_tokens"] for row in requests if row["prompt_tokens"] < 100] == [16] * 50
    assert [(row["custom_id"], row["reason"]) for row in rejects] == [(n, "prompt_too_long") for n in ("512", "513", "5000")]
    assert all(row["custom_id"] in row["message"] and "512" in row["message"] for row in rejects)


def test_the_answer_is_clipped_to_the_room(put: Put, read: Read) -> None:
    """500 + 100 tokens in a context of 512 are clipped to 12, in the table and in the sampling; so is the minimum."""
    line = raw(500, max_tokens=100, min_tokens=50)
    requests, _ = read(put("in.jsonl", line, raw(412, max_tokens=100)), tokenizer=ByteTokenizer(512))
    assert [(row["max_tokens"], json.loads(row["sampling"])) for row in requests] == [
        (12, {"max_tokens": 12, "min_tokens": 12}),
        (100, {"max_tokens": 100}),
    ]


def test_the_template_counts(put: Put, chat: Chat, read: Read) -> None:
    """What the chat template adds is part of the prompt's length."""
    around = len("user: \nassistant: ")
    requests, [reject] = read(
        put("in.jsonl", chat("fits", "x" * (511 - around)), chat("not", "x" * (512 - around))), tokenizer=ByteTokenizer(512)
    )
    assert [(row["custom_id"], row["prompt_tokens"]) for row in requests] == [("fits", 511)]
    assert reject["custom_id"] == "not"


@pytest.mark.parametrize("shape", ["chat", "completion", "plain", "csv"])
def test_a_huge_line_is_not_tokenised(put: Put, chat: Chat, read: Read, shape: str) -> None:
    """20 MB of text are a reject found by their bytes; encode never gets them, and the rows around are requests."""
    text = "word " * 4_000_000
    around = ('{"id": "a", "prompt": "hi"}', '{"id": "b", "prompt": "yo"}')
    match shape:
        case "chat":
            path = put("in.jsonl", around[0], chat("big", text), around[1])
        case "completion":
            path = put("in.jsonl", around[0], raw(20_000_000), around[1])
        case "plain":
            path = put("in.jsonl", around[0], {"id": "big", "prompt": text}, around[1])
        case _:
            path = put("in.csv", "id,prompt", "a,hi", f"big,{text}", "b,yo")
    tokenizer = CountingTokenizer(max_model_len=2048)
    requests, [reject] = read(path, tokenizer=tokenizer)
    assert [row["custom_id"] for row in requests] == ["a", "b"]
    assert reject["reason"] == "prompt_too_long"
    assert "2048" in reject["message"]
    assert "at least 2500" in reject["message"]
    assert len(reject["raw"]) <= 65_536
    assert tokenizer.longest < 100


def test_what_may_fit_is_tokenised(put: Put, read: Read) -> None:
    """The bound by bytes refuses nothing that could fit: such a prompt is counted exactly."""
    tokenizer = CountingTokenizer(max_model_len=512)
    _, [reject] = read(put("in.jsonl", raw(8 * 512 - 1)), tokenizer=tokenizer)
    assert tokenizer.longest == 8 * 512 - 1
    assert "has 4095 tokens" in reject["message"]


def test_long_prompts_are_tokenised_a_few_at_a_time(put: Put, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk ends when its prompts together are long, and the outcomes stay in the file's order."""
    monkeypatch.setattr("tasks.ingest.chunks._CHUNK_CHARS", 1000)
    monkeypatch.setattr("tasks.ingest.reading.blocks._MAX_BYTES", 1000)
    lines = [json.dumps({"id": i, "prompt": "x" * (i % 7) * 100}) for i in range(1, 200)]
    tokenizer = CountingTokenizer(550)
    requests, rejects = read(put("in.jsonl", *lines), tokenizer=tokenizer)
    assert [row["line"] for row in requests] == [i for i in range(1, 200) if i % 7 not in (0, 6)]
    assert tokenizer.most_chars < 2000
    assert {row["reason"] for row in rejects} == {"empty_prompt", "prompt_too_long"}


def test_a_template_that_refuses(put: Put, read: Read) -> None:
    """Messages that the model's template does not take are a reject with its reason."""
    [request], [reject] = read(put("in.jsonl", {"prompt": "raise"}, {"prompt": "hi"}), tokenizer=RefusingTokenizer())
    assert (request["line"], reject["reason"]) == (2, "chat_template")
    assert "roles must alternate" in reject["message"]


def test_a_prompt_without_any_token(put: Put, read: Read) -> None:
    """Text of which the tokenizer makes nothing is a reject: no engine takes an empty prompt."""
    line = {"url": "/v1/completions", "body": {"prompt": "\u200b"}}
    _, [reject] = read(put("in.jsonl", line), tokenizer=RefusingTokenizer())
    assert reject["reason"] == "empty_prompt"


def test_every_byte_of_many_scripts_is_counted(put: Put, read: Read) -> None:
    """Length is counted in the model's tokens, not in characters."""
    [request], _ = read(put("in.jsonl", {"url": "/v1/completions", "body": {"prompt": "日本語 👩‍👩‍👧"}}))
    assert request["prompt_tokens"] == len("日本語 👩‍👩‍👧".encode())
    assert ByteTokenizer().decode([request["prompt_token_ids"]]) == ["日本語 👩‍👩‍👧"]


@pytest.mark.parametrize(("how", "kept"), [("head", "cde"), ("tail", "abc"), ("middle", "abde")])
def test_a_prompt_that_is_too_long_can_be_cut(put: Put, read: Read, how: str, kept: str) -> None:
    """With a policy the row runs, with what is left of its text, and the table says how many tokens it lost."""
    text = "".join(letter * 100 for letter in "abcde")
    rows = [{"id": 1, "prompt": text, "max_tokens": 50}, {"id": 2, "prompt": "x" * 10**7}, {"id": 3, "prompt": "hi"}]
    requests, rejects = read(put("in.jsonl", *rows), tokenizer=ByteTokenizer(400), truncate_prompt=how)
    assert (rejects, [row["custom_id"] for row in requests]) == ([], ["1", "2", "3"])
    cut, huge, short = requests
    assert (cut["prompt_tokens"], cut["max_tokens"]) == (350, 50)
    assert cut["truncated_tokens"] == 500 - len(cut["text"])
    assert set(kept) <= set(cut["text"])
    assert ByteTokenizer().decode([cut["prompt_token_ids"]]) == [f"user: {cut['text']}\nassistant: "]
    assert json.loads(cut["messages"]) == [{"role": "user", "content": cut["text"]}]
    assert huge["truncated_tokens"] > 9_900_000
    assert (short["truncated_tokens"], short["text"]) == (0, "hi")
