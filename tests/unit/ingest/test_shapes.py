"""Which shape a row has, told by its fields alone; what URLs mean; and numbers that were written as floats."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.ingest.shapes.openai_lines import endpoint_of

Rows = list[dict[str, Any]]
Put = Callable[..., Path]
Read = Callable[..., tuple[Rows, Rows]]

USER = {"role": "user", "content": "hi"}
CHAT = {"messages": [USER]}
COMPLETIONS = "/v1/completions"

SHAPES: list[dict[str, Any]] = [
    {"url": "/v1/chat/completions", "body": CHAT},
    {"url": "/v1/completions", "body": {"prompt": "hi"}},
    {"url": "/v1/responses", "body": {"input": "hi"}},
    {"url": "/v1/messages", "body": {"max_tokens": 9} | CHAT},
    {"params": {"max_tokens": 9} | CHAT},
    {"conversations": [{"from": "human", "value": "hi"}]},
    {"messages": [USER]},
    {"prompt": "hi"},
]


@pytest.mark.parametrize("step", [1, -1])
def test_all_shapes_in_one_file(put: Put, read: Read, step: int) -> None:
    """Each row is of its own shape, whatever stands before it, in JSON lines and in one JSON document."""
    rows = [row | {"custom_id": f"{i}"} for i, row in enumerate(SHAPES)][::step]
    put("s/a.jsonl", *rows)
    path = put("s/b.json", json.dumps([row | {"custom_id": f"b{row['custom_id']}"} for row in rows]))
    requests, rejects = read(path.parent)
    assert [row["custom_id"] for row in requests] == [f"{name}{row['custom_id']}" for name in ("", "b") for row in rows]
    assert {row["text"] for row in requests} == {"hi"}
    assert rejects == []


def test_all_shapes_in_one_table(put: Put, read: Read) -> None:
    """A table that holds rows of several shapes has null in the columns of the others, and null is absent."""
    nulls = dict.fromkeys(("url", "body", "params", "conversations", "messages", "prompt", "method", "system"))
    requests, rejects = read(put("in.jsonl", *(nulls | row for row in SHAPES)))
    assert [row["line"] for row in requests] == list(range(1, len(SHAPES) + 1))
    assert rejects == []


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: next(iter(shape.values())) if "url" in shape else min(shape))
def test_one_row_as_a_document(put: Put, read: Read, shape: dict[str, Any]) -> None:
    """A JSON file of one object is that row, though it has a list within."""
    [request], _ = read(put("in.json", json.dumps(shape, indent=1)))
    assert (request["text"], request["custom_id"]) == ("hi", "in.json:1")


OTHER_COLUMNS: list[dict[str, Any]] = [
    {"params": {"messages": []}},
    {"params": {"max_tokens": 5}},
    {"params": "?a=b"},
    {"conversations": []},
    {"conversations": [{"from": "gpt", "value": "x"}]},
    {"url": "https://api.openai.com/v1/chat/completions"},
    {"url": "/v1/completions", "body": "a text"},
    {"url": "https://shop.example/p/1", "body": {"html": "<p>"}},
    {"input": "hi", "instructions": "none"},
]


@pytest.mark.parametrize("prompt", [{"prompt": "hi"}, {"messages": [USER]}], ids=["prompt", "messages"])
def test_a_plain_row_stays_plain(put: Put, read: Read, prompt: dict[str, Any]) -> None:
    """Columns that other shapes have mean nothing beside a prompt or messages."""
    requests, rejects = read(put("in.jsonl", *(prompt | other for other in OTHER_COLUMNS)))
    assert [json.loads(row["messages"]) for row in requests] == [[USER]] * len(OTHER_COLUMNS)
    assert rejects == []


def test_batches_in_tables(put: Put, read: Read) -> None:
    """A batch file that was kept as a table has its bodies as JSON text, and its ids as they were."""

    def cell(value: Any) -> str:
        return '"' + json.dumps(value).replace('"', '""') + '"'

    put("s/a.csv", "custom_id,method,url,body", f"a1,POST,/v1/chat/completions,{cell(CHAT)}", "a2,POST,/v1/responses,{")
    path = put("s/b.csv", "custom_id,params", f"b1,{cell({'max_tokens': 5} | CHAT)}")
    requests, [reject] = read(path.parent)
    assert [(row["custom_id"], row["max_tokens"]) for row in requests] == [("a1", 512), ("b1", 5)]
    assert (reject["custom_id"], reject["message"][:6]) == ("a2", "body: ")


def test_batches_in_parquet(put: Put, read: Read) -> None:
    """In a typed table each row has all fields of the others, as null, and whole numbers may be floats."""
    text, picture = {"type": "text", "text": "hi"}, {"type": "image", "source": {"data": "x"}}
    params = [
        {"max_tokens": 9.0, "messages": [{"role": "user", "content": [text]}], "system": "Be brief."},
        {"max_tokens": None, "messages": [{"role": "user", "content": [text]}]},
        {"max_tokens": 9.0, "messages": [{"role": "user", "content": [picture]}]},
    ]
    line = {"url": "/v1/chat/completions", "body": CHAT | {"max_tokens": 7, "tools": [], "temperature": None}}
    rows: list[dict[str, Any]] = [{"custom_id": f"{i}", "params": one} for i, one in enumerate(params)]
    rows += [{"custom_id": "c", **line}, {"custom_id": "s", "conversations": [{"from": "human", "value": "hi"}]}]
    names = {name: None for row in rows for name in row}
    path = put("in.parquet")
    pq.write_table(pa.Table.from_pylist([names | row for row in rows]), path)
    requests, [reject] = read(path)
    assert [(row["custom_id"], row["max_tokens"]) for row in requests] == [("0", 9), ("1", 512), ("c", 7), ("s", 512)]
    assert [row["text"] for row in requests] == ["hi"] * 4
    assert (reject["custom_id"], "'image'" in reject["message"]) == ("2", True)


MEANT = {
    "chat/completions": "/v1/chat/completions /chat/completions chat/completions v1/chat/completions /v1/chat/completions/ "
    "https://api.openai.com/v1/chat/completions http://localhost:8000/v1/chat/completions/ "
    "https://x.example/chat/completions https://x.example/llm/v1/chat/completions",
    "completions": "/v1/completions /completions https://x.example/v1/completions",
    "responses": "/v1/responses /responses https://api.openai.com/v1/responses",
    "messages": "/v1/messages https://api.anthropic.com/v1/messages",
}
UNCLEAR = (
    *("/v2/chat/completions", "/v1/embeddings", "/v1/Chat/Completions", "/v1/threads/x/messages", "/v1", "/", ""),
    *(
        "https://x.example/v1/completions?key=SECRET",
        "ftp://x.example/v1/completions",
        "https://[",
        "/chat",
        "x/completions",
    ),
)


def test_what_a_url_means() -> None:
    """A whole URL, a path without /v1 and a slash at the end mean the endpoint; anything else is none for sure."""
    found = {name: {endpoint_of(url) for url in urls.split()} for name, urls in MEANT.items()}
    assert found == {name: {name} for name in MEANT}
    assert [url for url in UNCLEAR if endpoint_of(url)] == []


def test_lines_with_such_urls(put: Put, read: Read) -> None:
    """They run, and what is refused shows the path alone: a key in the URL is not repeated."""
    urls = ("https://api.openai.com/v1/chat/completions", "/chat/completions", "https://u:SECRET@x.example/v1/embeddings")
    keyed = "https://x.example/v1/chat/completions?key=SECRET"
    requests, rejects = read(put("in.jsonl", *({"url": url, "body": CHAT} for url in (*urls, keyed))))
    assert [row["line"] for row in requests] == [1, 2]
    assert [row["reason"] for row in rejects] == ["unsupported_endpoint"] * 2
    assert rejects[0]["message"].startswith("the endpoint '/v1/embeddings' is not supported: /v1/chat/completions, ")
    assert "SECRET" not in "".join(row["message"] for row in rejects)


PROMPTS: list[tuple[Any, str]] = [
    (["a", "b"], "prompt: a list of 2 prompts is not supported: give each its own line"),
    ([1, 2, 3], "prompt: a prompt of token ids is not supported: send its text"),
    ([[1, 2], [3]], "prompt: a prompt of token ids is not supported: send its text"),
    ([], "prompt: must be text, or a list of one text"),
    (["a", 1], "prompt: must be text, or a list of one text"),
    ([""], "prompt: nothing is asked"),
    (["a\0"], "prompt: must not hold a NUL"),
]


def test_a_completion_of_a_list(put: Put, read: Read) -> None:
    """A list of one text is that text; any other list says what to do instead."""
    lines = [{"url": COMPLETIONS, "body": {"prompt": prompt}} for prompt in (["hi"], *(prompt for prompt, _ in PROMPTS))]
    [request], rejects = read(put("in.jsonl", *lines))
    assert request["text"] == "hi"
    assert [row["message"][: len(w)] for row, (_, w) in zip(rejects, PROMPTS, strict=True)] == [
        start for _, start in PROMPTS
    ]


def test_whole_numbers_as_floats(put: Put, read: Read) -> None:
    """What data frames make of whole numbers beside a missing one is that number, as a parameter and as an id."""
    given = {"max_tokens": 5.0, "seed": 7.0, "n": 2.0, "stop_token_ids": [9.0], "temperature": 1, "top_k": 3.0}
    rows = ({"id": 7.0, "prompt": "hi"} | given, {"custom_id": -0.0, "url": COMPLETIONS, "body": {"prompt": "hi"}})
    requests, rejects = read(put("in.jsonl", *rows))
    assert [row["custom_id"] for row in requests] == ["7", "0"]
    assert json.loads(requests[0]["sampling"]) == {
        "max_tokens": 5,
        "seed": 7,
        "stop_token_ids": [9],
        "temperature": 1.0,
        "top_k": 3,
    }
    assert requests[0]["n"] == 2
    assert rejects == []


def test_an_id_that_was_a_float_is_shown_so(put: Put, read: Read) -> None:
    """A reject shows the id under which the request would have been; 7.5 is none."""
    _, rejects = read(put("in.jsonl", {"id": 7.0, "prompt": ""}, {"id": 7.5, "prompt": "hi"}))
    assert [(row["custom_id"], row["reason"]) for row in rejects] == [("7", "empty_prompt"), (None, "invalid_id")]


def test_instruction_data_names_its_columns(put: Put, read: Read) -> None:
    """Alpaca's columns are no shape of their own: which of them is asked is for the user to say."""
    row = {"instruction": "Translate.", "input": "Katze", "output": "cat"}
    _, [reject] = read(put("in.jsonl", row))
    assert reject["reason"] == "no_prompt"
    assert all(word in reject["message"] for word in ("'instruction'", "--prompt-column", "--prompt-template"))
    [request], _ = read(put("in.jsonl", row), prompt_column="instruction")
    assert request["text"] == "Translate."
