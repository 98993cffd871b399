"""Files with good rows and bad ones through the whole command: the good are answered, each bad one costs itself."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.delivery import deliver
from tasks.export.settings import Export
from tasks.progress import LogDisplay
from tasks.query.views import run_query
from tasks.storage.layout import Layout

ECHO = ("--model", "echo", "--max-reject-rate", "1")
Row = dict[str, Any]
Rows = list[Row]
Answer = Callable[..., tuple[Rows, Rows]]
WriteJsonl = Callable[..., Path]


def chat(custom_id: Any, content: Any, **body: Any) -> Row:
    """A batch line that asks for 16 tokens of the model that everybody calls smol."""
    asked = {"model": "smol", "max_tokens": 16, "messages": [{"role": "user", "content": content}], **body}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": asked}


@pytest.fixture
def answer(cli: Any) -> Answer:
    """Runs files and exports them; the lines of the output file and of the error file, which are the input's rows."""

    def run(*paths: Path, options: tuple[str, ...] = ()) -> tuple[Rows, Rows]:
        counts = cli.json("run", *map(str, paths), *ECHO, *options)
        assert counts["rows"] == counts["requests"] + counts["rejects"]
        assert counts["requests"] == counts["results"] + counts["failures"]
        asked = Export(cli.home / "out.jsonl")
        deliver(Layout(cli.data, cli.checkpoints), counts["run_id"], asked, LogDisplay())
        tables = [lines_of(cli.home / name) for name in ("out.jsonl", "out.errors.jsonl")]
        assert sum(map(len, tables)) == counts["rows"]
        return tables[0], tables[1]

    return run


def query(cli: Any, statement: str) -> Rows:
    """What `nightbatch sql` says."""
    names, rows = run_query(Layout(cli.data, cli.checkpoints), statement)
    return [dict(zip(names, row, strict=True)) for row in rows]


def lines_of(path: Path) -> Rows:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def test_a_malformed_line_in_the_middle(cli: Any, answer: Answer, write_jsonl: WriteJsonl) -> None:
    """The rows around it are answered and it has its place in the error file, if the threshold allows it."""
    path = write_jsonl([chat("a", "hi"), '{"custom_id":"b","body":{', chat("c", "yo")])
    stopped = cli("run", str(path), "--model", "echo")
    assert (stopped.returncode, "1 of 3 rows were rejected" in stopped.stderr) == (1, True)
    out, [bad] = answer(path)
    assert [line["custom_id"] for line in out] == ["a", "c"]
    place = bad["response"]["body"]["error"]
    assert (bad["custom_id"], bad["response"]["status_code"], place["code"]) == (None, 400, "malformed_json")
    assert "line 2" in place["message"]
    [reject] = query(cli, "select line, byte_offset, raw from rejects")
    first = path.read_text().splitlines()[0]
    assert reject == {"line": 2, "byte_offset": len(first) + 1, "raw": '{"custom_id":"b","body":{'}


def test_byte_order_marks_and_utf16(answer: Answer, write_jsonl: WriteJsonl) -> None:
    """With a BOM, or in UTF-16, all rows are answered."""
    bom, wide = write_jsonl([chat("a", "hi"), chat("b", "yo")], "bom.jsonl"), write_jsonl([chat("w", "hi")], "u16.jsonl")
    bom.write_bytes(b"\xef\xbb\xbf" + bom.read_bytes())
    wide.write_bytes(wide.read_text().encode("utf-16"))
    out, errors = answer(bom, wide)
    assert ([line["custom_id"] for line in out], errors) == (["a", "b", "w"], [])


def test_ids_that_stand_twice_or_not_at_all(cli: Any, answer: Answer, write_jsonl: WriteJsonl) -> None:
    """The second row with an id is in the error file, rows without one are answered, and a second run is the same."""
    blank = [chat(custom_id, f"blank {i}") for i, custom_id in enumerate(["", "  ", None])]
    without = {key: value for key, value in chat("", "without").items() if key != "custom_id"}
    rows = [chat("a", "hi"), chat("a", "yo"), chat("b", "x"), chat("b", "x"), *blank, without]
    path = write_jsonl(rows, "dup.jsonl")
    for _ in range(2):
        out, errors = answer(path)
        assert [line["custom_id"] for line in out] == ["a", "b", *(f"dup.jsonl:{line}" for line in (5, 6, 7, 8))]
        assert [line["custom_id"] for line in errors] == ["a", "b"]
        assert ["line 1" in str(errors[0]), "line 3" in str(errors[1])] == [True, True]
    joined = query(cli, "select r.custom_id, q.text from results r join requests q using (request_id) order by q.line")
    assert [(row["custom_id"], row["text"]) for row in joined[:2]] == [("a", "hi"), ("b", "x")]
    assert len(joined) == 6


def test_content_in_parts_nulls_and_values_out_of_range(cli: Any, answer: Answer, write_jsonl: WriteJsonl) -> None:
    """What is legal is answered, and what is not is named by its field, without a token spent on it."""
    image = [{"type": "image_url", "image_url": {"url": "data:,"}}]
    called = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    history = [{"role": "user", "content": "do"}, {"role": "assistant", "content": None, "tool_calls": [called]}]
    history += [{"role": "tool", "tool_call_id": "c", "content": "done"}, {"role": "user", "content": "so?"}]
    good = [
        chat("text", "hi"),
        chat("parts", [{"type": "text", "text": "yo"}, {"type": "text", "text": "!"}]),
        chat("nulls", "hi", seed=None, stop=None, max_tokens=None),
        chat("seed", "hi", seed=7),
        chat("calls", "", messages=history),
    ]
    bad = {
        "image_url": chat("1", image),
        "content": chat("2", None),
        "messages": chat("3", "", messages=[]),
        "nothing is asked": chat("4", " "),
        " n ": chat("5", "hi", n=0),
        "temperature": chat("6", "hi", temperature=-1),
        "top_p": chat("7", "hi", top_p=float("nan")),
        "max_tokens": chat("8", "hi", max_tokens="64"),
    }
    out, errors = answer(write_jsonl([*good, *bad.values()]))
    assert [line["custom_id"] for line in out] == ["text", "parts", "nulls", "seed", "calls"]
    messages = [f" {line['response']['body']['error']['message']} ".replace(":", " ") for line in errors]
    assert [name in message for name, message in zip(bad, messages, strict=True)] == [True] * len(bad), messages
    [stored] = query(cli, "select messages from requests where custom_id = 'parts'")
    assert json.loads(stored["messages"]) == good[1]["body"]["messages"]


def test_endpoints_and_text_that_is_none(cli: Any, answer: Answer, write_jsonl: WriteJsonl) -> None:
    """Embeddings, half an emoji, a NUL and bytes that are not UTF-8 cost their rows; chats and completions are answered."""
    completion = {
        "custom_id": "raw",
        "method": "POST",
        "url": "/v1/completions",
        "body": {"prompt": "Once", "max_tokens": 4},
    }
    embedding = {"custom_id": "e", "method": "POST", "url": "/v1/embeddings", "body": {"input": "hi"}}
    half, nul = json.dumps(chat("s", "cut \ud83d")), json.dumps(chat("n", "a\0b"))
    path = write_jsonl([chat("a", "hi"), completion, embedding, half, nul, "BYTES", chat("z", "end")])
    path.write_bytes(path.read_bytes().replace(b"BYTES", json.dumps(chat("u", "x")).encode().replace(b'"x"', b'"\xff"')))
    out, errors = answer(path)
    assert [line["custom_id"] for line in out] == ["a", "raw", "z"]
    assert [line["response"]["body"]["error"]["code"] for line in errors] == [
        "unsupported_endpoint", "encoding", "invalid_request", "encoding",
    ]  # fmt: skip
    assert "/v1/chat/completions" in errors[0]["response"]["body"]["error"]["message"]


def test_prompts_around_the_context(cli: Any, answer: Answer, write_jsonl: WriteJsonl) -> None:
    """511 of 512 tokens leave one, 500 leave twelve, 512 and more are errors with both numbers; the fifty are untouched."""

    def raw(num_tokens: int) -> Row:
        body = {"prompt": "x" * num_tokens, "max_tokens": 100, "ignore_eos": True}
        return {"custom_id": f"{num_tokens}", "method": "POST", "url": "/v1/completions", "body": body}

    short = [chat(f"r{i}", f"question {i}", ignore_eos=True) for i in range(50)]
    long = [raw(size) for size in (500, 511, 512, 513, 5000)]
    out, errors = answer(write_jsonl([*short[:25], *long, *short[25:]]), options=("--max-model-len", "512"))
    assert [line["custom_id"] for line in errors] == ["512", "513", "5000"]
    assert all(line["custom_id"] in str(line["response"]) and "of 512" in str(line["response"]) for line in errors)
    rows = query(
        cli, "select custom_id, output_tokens, finish_reason from results where length(custom_id) = 3 and custom_id < '6'"
    )
    assert sorted(map(tuple, (row.values() for row in rows))) == [("500", 12, "length"), ("511", 1, "length")]
    assert Counter(line["response"]["body"]["usage"]["completion_tokens"] for line in out)[16] == 50


def test_an_answer_without_max_tokens_gets_the_runs(cli: Any, write_jsonl: WriteJsonl) -> None:
    """It is as long as --max-tokens says, 512 if unset, and the summary counts what was cut there."""
    path = write_jsonl([chat("a", "Name forty animals.", max_tokens=None, ignore_eos=True)])
    for options, expected in (((), 512), (("--max-tokens", "40"), 40)):
        done = cli("run", str(path), *ECHO, *options)
        assert (done.returncode, "cut at max_tokens │ 1" in done.stdout) == (0, True), done.stdout
        assert query(cli, f"select finish_reason from results where output_tokens = {expected}") == [
            {"finish_reason": "length"}
        ]


def test_one_column_says_what_became_of_a_row(cli: Any, answer: Answer, write_jsonl: WriteJsonl) -> None:
    """Rows with an answer are completed and have no error; no error stands where an answer would."""
    answer(write_jsonl([chat("a", "hi"), "{", chat("b", "", n=0), chat("c", "yo")]))
    assert query(cli, "select status, count(*) as n from results group by 1") == [{"status": "completed", "n": 2}]
    assert query(cli, "select error, output_text from results where error is not null or output_text is null") == []
    assert query(cli, "select reason, count(*) as n from rejects group by 1 order by 1") == [
        {"reason": "invalid_request", "n": 1},
        {"reason": "malformed_json", "n": 1},
    ]


def test_a_huge_line_costs_itself(cli: Any, write_jsonl: WriteJsonl) -> None:
    """A row of 20 MB is rejected for its length and the next one is answered, all in seconds."""
    path = write_jsonl([chat("big", "word " * 4_000_000), chat("b", "hi")])
    counts = cli.json("run", str(path), *ECHO)
    assert (counts["rejects"], counts["results"]) == (1, 1)
    assert query(cli, "select custom_id, reason from rejects") == [{"custom_id": "big", "reason": "prompt_too_long"}]
