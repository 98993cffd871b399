"""Endpoints and models of batch lines: known ones run, others are refused with what is supported."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]
Chat = Callable[..., str]
Put = Callable[..., Path]
Read = Callable[..., tuple[Rows, Rows]]

COMPLETIONS = "/v1/completions"
SUPPORTED = "/v1/chat/completions, /v1/completions, /v1/responses and /v1/messages"


def test_several_endpoints_and_models_in_one_file(put: Put, chat: Chat, read: Read) -> None:
    """Chat and completions run; embeddings and another model are rejects that name what is supported."""
    lines = (
        chat("chat", "hi", model="smol"),
        {"custom_id": "raw", "method": "POST", "url": COMPLETIONS, "body": {"model": "SMOL", "prompt": "hi"}},
        {"custom_id": "emb", "method": "POST", "url": "/v1/embeddings", "body": {"model": "smol", "input": "hi"}},
        chat("other", "hi", model="gpt-4o"),
        {"custom_id": "raw2", "method": "POST", "url": COMPLETIONS, "body": {"model": "gpt-4o", "prompt": "hi"}},
        chat("none", "hi"),
    )
    requests, rejects = read(put("in.jsonl", *lines), served=["smol", "default"])
    assert [(row["custom_id"], row["requested_model"]) for row in requests] == [
        ("chat", "smol"),
        ("raw", "SMOL"),
        ("none", None),
    ]
    assert [(row["custom_id"], row["reason"]) for row in rejects] == [
        ("emb", "unsupported_endpoint"),
        ("other", "unknown_model"),
        ("raw2", "unknown_model"),
    ]
    assert SUPPORTED in rejects[0]["message"]
    assert "'gpt-4o'" in rejects[1]["message"]
    assert "'SmolLM2'" in rejects[1]["message"]


def test_any_model_where_any_is_served(put: Put, chat: Chat, read: Read) -> None:
    """When the run serves any name, the row's model is kept as what was asked for."""
    [request], _ = read(put("in.jsonl", chat("a", "hi", model="gpt-4o")), served=None)
    assert request["requested_model"] == "gpt-4o"


def test_an_empty_model_is_no_model(put: Put, chat: Chat, read: Read) -> None:
    """A model of no name is not silently the loaded one."""
    _, [reject] = read(put("in.jsonl", chat("a", "hi", model="")), served=["smol"])
    assert reject["reason"] == "unknown_model"


def test_an_endpoint_that_is_not_supported(put: Put, read: Read) -> None:
    """Anything but the four paths is refused, naming them."""
    urls = [
        "/v1/rerank",
        "/v1/audio/speech",
        "/v1/Chat/Completions",
        "/v1",
        "ftp://x.example/v1/completions",
        "https://[",
        "",
    ]
    body = {"messages": [{"role": "user", "content": "hi"}]}
    requests, rejects = read(put("in.jsonl", *({"url": url, "body": body} for url in urls)))
    assert requests == []
    assert [row["reason"] for row in rejects] == ["unsupported_endpoint"] * len(urls)
    assert all(SUPPORTED in row["message"] for row in rejects)


LACKING: list[tuple[dict[str, Any], str]] = [
    ({"body": {"prompt": "hi"}}, "url: Field required"),
    ({"url": None, "body": {}}, "url: "),
    ({"url": COMPLETIONS}, "body: Field required"),
    ({"url": COMPLETIONS, "body": None}, "body: "),
    ({"url": COMPLETIONS, "body": '{"prompt": "hi"}'}, "body: "),
    ({"url": COMPLETIONS, "body": []}, "body: "),
    ({"url": COMPLETIONS, "method": "GET", "body": {"prompt": "hi"}}, "method: "),
    ({"url": COMPLETIONS, "body": {"prompt": "hi", "model": 5}}, "model: "),
]


def test_a_line_that_lacks_something(put: Put, read: Read) -> None:
    """A batch line without its parts is a reject with its id and the part's name."""
    _, rejects = read(put("in.jsonl", *({"custom_id": f"{i}"} | line for i, (line, _) in enumerate(LACKING))))
    named = [name for _, name in LACKING]
    assert [row["message"][: len(name)] for row, name in zip(rejects, named, strict=True)] == named
    assert [row["custom_id"] for row in rejects] == [f"{i}" for i in range(len(LACKING))]


def test_a_raw_prompt_is_not_a_chat(put: Put, read: Read) -> None:
    """A completion's prompt is stored and tokenised as it is, without template or system prompt."""
    [request], _ = read(put("in.jsonl", {"url": COMPLETIONS, "body": {"prompt": "Once"}}), system="Be brief.")
    assert (request["text"], request["messages"]) == ("Once", None)
    assert request["prompt_token_ids"] == [byte + 1 for byte in b"Once"]


def test_a_raw_prompt_of_the_wrong_shape(put: Put, read: Read) -> None:
    """A prompt that is no text, or empty, is a reject that names it."""
    prompts = [None, 5, ["a", "b"], [1, 2, 3], "", " \n", "a\0"]
    requests, rejects = read(put("in.jsonl", *({"url": COMPLETIONS, "body": {"prompt": prompt}} for prompt in prompts)))
    assert requests == []
    assert [row["message"].split(" ")[0] for row in rejects] == ["prompt:"] * len(prompts)


def test_further_fields_of_a_line(put: Put, read: Read) -> None:
    """Fields beside the body are not part of the request."""
    line = {"custom_id": "a", "url": COMPLETIONS, "body": {"prompt": "hi"}, "priority": 3, "prompt": "not this"}
    [request], _ = read(put("in.jsonl", line))
    assert request["text"] == "hi"
