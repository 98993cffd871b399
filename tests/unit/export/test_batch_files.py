"""The batch output file and error file, checked with the types of OpenAI's own client."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.core.errors import DamageError
from tasks.export.logprobs import token_text
from tasks.export.openai import BatchFile
from tasks.storage.layout import Layout
from tasks.storage.parquet import RESULTS, read_rows, write_table

types = pytest.importorskip("openai.types")
REPOSITORY = Path(__file__).parents[3]

Row = dict[str, Any]
Make = Callable[..., Any]


def bodies(lines: list[Row]) -> list[Any]:
    """Each answer as OpenAI's client has it; every field that its types require must be there."""
    kinds = {"chat.completion": types.chat.ChatCompletion, "text_completion": types.Completion}
    for line in lines:
        assert line.keys() == {"id", "custom_id", "response", "error"}
        assert line["response"].keys() == {"status_code", "request_id", "body"}
        assert (line["response"]["status_code"], line["error"]) == (200, None)
    return [kinds[body["object"]].model_validate(body, strict=True) for body in (li["response"]["body"] for li in lines)]


def test_answers_come_back_under_their_ids(
    answer: Make, export: Make, lines: Make, write_jsonl: Make, chat: Make, completion: Make, cli: Any
) -> None:
    """Chats and raw prompts, one choice or several: the ids in the input's order, and the text and tokens of the results."""
    rows = [
        chat("z", "grüß dich 🌶", n=3, temperature=1, max_tokens=7),
        completion("m", "once upon", max_tokens=5),
        chat(17, "hi", max_tokens=4),
        chat("a", "hi", max_tokens=4),
    ]
    said = export(answer(write_jsonl(rows)), "out.jsonl")
    out = lines("out.jsonl")
    assert [line["custom_id"] for line in out] == ["z", "m", "17", "a"]
    parsed = bodies(out)
    assert [type(body).__name__ for body in parsed] == ["ChatCompletion", "Completion", "ChatCompletion", "ChatCompletion"]
    results = cli.sql("select * from results order by line, choice_index")
    of_z = results[:3]
    assert [choice.index for choice in parsed[0].choices] == [0, 1, 2]
    assert [choice.message.content for choice in parsed[0].choices] == [row["output_text"] for row in of_z]
    assert [choice.finish_reason for choice in parsed[0].choices] == [row["finish_reason"] for row in of_z]
    usage = parsed[0].usage
    assert usage.prompt_tokens == of_z[0]["prompt_tokens"]
    assert usage.completion_tokens == sum(row["output_tokens"] for row in of_z)
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens == 0
    assert parsed[1].choices[0].text == results[3]["output_text"]
    assert results[5]["duplicate_of"] is not None
    assert parsed[3].choices[0].message.content == parsed[2].choices[0].message.content
    assert {body.model for body in parsed} == {"echo"}
    assert len({line["id"] for line in out} | {body.id for body in parsed}) == 8
    assert (said["rows"], said["answered"], said["errors_path"]) == (4, 4, None)
    assert not (cli.home / "out.errors.jsonl").exists()


def test_log_probabilities_are_text(
    answer: Make, export: Make, lines: Make, write_jsonl: Make, chat: Make, completion: Make
) -> None:
    """Each token of an answer has its text, its bytes and its alternatives; a raw prompt's in the older form."""
    rows = [
        chat("c", "hi", logprobs=True, top_logprobs=2, min_tokens=8, max_tokens=8),
        completion("t", "hi", logprobs=2, min_tokens=8, max_tokens=8),
        chat("none", "hi"),
        chat("own", "hi", logprobs=True, max_tokens=4),
    ]
    export(answer(write_jsonl(rows)), "out.jsonl")
    in_chat, in_text, none, own = bodies(lines("out.jsonl"))
    entries, said = in_chat.choices[0].logprobs.content, in_chat.choices[0].message.content
    assert "".join(entry.token for entry in entries) == said
    assert bytes(byte for entry in entries for byte in entry.bytes).decode() == said
    assert all(len(entry.top_logprobs) == 2 and entry.top_logprobs[0].logprob == entry.logprob for entry in entries)
    assert all(entry.top_logprobs[0].token == entry.token for entry in entries)
    older, text = in_text.choices[0].logprobs, in_text.choices[0].text
    assert "".join(older.tokens) == text
    assert older.text_offset == list(range(8))
    assert [top[token] for top, token in zip(older.top_logprobs, older.tokens, strict=True)] == older.token_logprobs
    assert none.choices[0].logprobs is None
    assert all(entry.top_logprobs == [] for entry in own.choices[0].logprobs.content)


def test_tokens_without_a_tokenizer_go_by_their_ids(
    answer: Make, lines: Make, write_jsonl: Make, chat: Make, cli: Any
) -> None:
    """Where the model cannot be found any more the ids stand for the tokens' text, and a note says so."""
    run_id = answer(write_jsonl([chat("a", "hi", logprobs=True, max_tokens=4, min_tokens=4)]))
    shutil.rmtree(cli.checkpoints)
    done = cli("export", run_id, "-o", "out.jsonl")
    assert done.returncode == 0
    assert "token_id:N" in done.stderr
    ((body,), ids) = bodies(lines("out.jsonl")), cli.sql("select output_token_ids as ids from results")[0]["ids"]
    entries = body.choices[0].logprobs.content
    assert [(entry.token, entry.bytes) for entry in entries] == [(f"token_id:{token}", None) for token in ids]


def test_rows_without_an_answer_are_in_the_error_file(
    answer: Make, export: Make, lines: Make, write_jsonl: Make, chat: Make, cli: Any
) -> None:
    """Every input row is in exactly one file; a rejected one has status 400, an error body, its place and its id if any."""
    rows = [chat("a", "hi"), '{"custom_id": "cut', chat("a", "yo"), chat(None, "no id"), chat("e", ""), {"custom_id": "u"}]
    said = export(answer(write_jsonl(rows)), "out.jsonl")
    assert (said["rows"], said["answered"], said["failed"], said["rejected"]) == (6, 2, 0, 4)
    assert said["errors_path"] == str(cli.home / "out.errors.jsonl")
    answered, refused = lines("out.jsonl"), lines("out.errors.jsonl")
    assert len(answered) + len(refused) == 6
    assert [line["custom_id"] for line in answered] == ["a", "in.jsonl:4"]
    assert [line["custom_id"] for line in refused] == [None, "a", "e", "u"]
    assert len({line["id"] for line in answered + refused}) == 6
    for line, number in zip(refused, (2, 3, 5, 6), strict=True):
        assert line.keys() == {"id", "custom_id", "response", "error"}
        assert (line["response"]["status_code"], line["error"]) == (400, None)
        error = types.shared.ErrorObject.model_validate(line["response"]["body"]["error"], strict=True)
        assert error.type == "invalid_request_error"
        assert error.message.startswith(f"in.jsonl line {number}: ")
    assert [line["response"]["body"]["error"]["code"] for line in refused[:2]] == ["malformed_json", "duplicate_id"]


def test_failed_requests_are_in_the_error_file(export: Make, lines: Make, write_jsonl: Make, chat: Make, cli: Any) -> None:
    """A request that killed the engine has an error and no response; the others have their answers."""
    path = write_jsonl([chat("good", "hi"), chat("bad", "poison"), chat("fine", "yo")])
    command = cli.command("run", str(path), "--model", "echo")
    place = command.index("-m")
    command[place : place + 2] = [str(REPOSITORY / "tests" / "crash" / "poisoned.py")]
    env = {**os.environ, "POISON": "poison", "POISON_KIND": "segv"}
    assert subprocess.run(command, env=env, cwd=cli.home, capture_output=True, timeout=120, check=False).returncode == 1
    said = export("adhoc", "out.jsonl")
    assert (said["answered"], said["failed"], said["rejected"]) == (2, 1, 0)
    assert [line["custom_id"] for line in lines("out.jsonl")] == ["good", "fine"]
    (failed,) = lines("out.errors.jsonl")
    assert (failed["custom_id"], failed["response"], failed["error"]["code"]) == ("bad", None, "failed")
    assert failed["error"]["message"] == cli.sql("select error from failures")[0]["error"]
    export("adhoc", "rows.jsonl", given_format="jsonl")
    statuses = [(row["custom_id"], row["status"], row["output_text"] is None) for row in lines("rows.jsonl")]
    assert statuses == [("good", "completed", False), ("bad", "failed", True), ("fine", "completed", False)]


def choice(index: int, status: str = "completed", **more: Any) -> Row:
    row = {"request_id": "s/a", "custom_id": "a", "source": "s", "file": "f", "line": 1, "model": "m", "n": 2, "error": None}
    row |= {"choice_index": index, "status": status, "finish_reason": "stop", "output_text": "x", "is_completion": False}
    return row | {"prompt_tokens": 10, "output_tokens": 3, "cached_tokens": 0, "logprobs": None} | more


def test_a_request_with_a_failed_choice_has_failed() -> None:
    """Its line is one of the error file and names the choice."""
    line, is_answer = batch_file().line([choice(0), choice(1, "failed", error="no")])
    assert not is_answer
    assert line["error"] == {"code": "failed", "message": "choice 1: no"}


def batch_file() -> BatchFile:
    return BatchFile("r", "f" * 20, 0, lambda token_id: token_text(chr(token_id)))


def test_each_choice_has_its_own_text() -> None:
    """Texts and reasons stand under their choice's index."""
    of_two = [choice(0, output_text="one"), choice(1, output_text="two", finish_reason="length")]
    (body,) = bodies([batch_file().line(of_two)[0]])
    assert [(one.index, one.message.content, one.finish_reason) for one in body.choices] == [
        (0, "one", "stop"),
        (1, "two", "length"),
    ]


def test_a_missing_choice_is_damage() -> None:
    """Two choices asked for and one there: nothing is exported."""
    with pytest.raises(DamageError, match="1 choices"):
        batch_file().line([choice(0)])


def test_a_prompt_counts_once_and_as_cached_what_no_choice_computed() -> None:
    """Of two choices the second finds the whole prompt in the cache, the first only a part."""
    line, _ = batch_file().line([choice(0, cached_tokens=4), choice(1, cached_tokens=10)])
    assert line["response"]["body"]["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": 6,
        "total_tokens": 16,
        "prompt_tokens_details": {"cached_tokens": 4},
    }


def test_alternatives_of_one_text_and_infinities_keep_their_place() -> None:
    """Two tokens that look the same are told apart by id, a part of a character has no bytes, and JSON no infinity."""
    tops: Row = {
        "logprobs": [float("-inf")],
        "top_logprobs": [[{"token_id": 0xFFFD, "logprob": -1.0}] * 2],
        "output_token_ids": [0xFFFD],
    }
    line, _ = batch_file().line([choice(0, n=1, is_completion=True, **tops)])
    older = line["response"]["body"]["choices"][0]["logprobs"]
    assert older["token_logprobs"] == [-9999.0]
    assert older["top_logprobs"] == [{"\ufffd": -1.0, "token_id:65533": -1.0}]
    line, _ = batch_file().line([choice(0, n=1, **tops)])
    assert line["response"]["body"]["choices"][0]["logprobs"]["content"][0]["bytes"] is None


def test_order_is_that_of_the_input_and_bytes_are_the_same_each_time(
    answer: Make, export: Make, lines: Make, write_jsonl: Make, chat: Make, cli: Any
) -> None:
    """Sources and files by name, then lines as numbers, whatever the tables' own order; a second export is equal."""
    for source in ("b", "a"):
        for file in ("2.jsonl", "10.jsonl"):
            rows = [
                chat(f"{source}-{file}-{i}", f"question {i * 7 % 12}", n=2, temperature=1, max_tokens=4) for i in range(12)
            ]
            write_jsonl(["{", *rows], f"inbox/{source}/{file}")
    run_id = answer(cli.home / "inbox")
    export(run_id, "one.jsonl")
    ids = [line["custom_id"] for line in lines("one.jsonl")]
    assert ids == [f"{source}-{file}-{i}" for source in "ab" for file in ("10.jsonl", "2.jsonl") for i in range(12)]
    assert len(lines("one.errors.jsonl")) == 4
    results = Layout(cli.data, cli.checkpoints).run(run_id).results
    write_table(results, RESULTS, reversed(list(read_rows(sorted(results.glob("*.parquet"))))))
    export(run_id, "two.jsonl")
    for name in ("{}.jsonl", "{}.errors.jsonl"):
        assert (cli.home / name.format("one")).read_bytes() == (cli.home / name.format("two")).read_bytes()


def test_one_source_alone(answer: Make, export: Make, lines: Make, write_jsonl: Make, chat: Make, cli: Any) -> None:
    """Only that source's rows are in the files, its rejects too; a source that is not there is the user's mistake."""
    write_jsonl([chat("1", "hi"), "{"], "inbox/it's/x.jsonl")
    write_jsonl([chat("2", "hi")], "inbox/other/x.jsonl")
    run_id = answer(cli.home / "inbox")
    said = export(run_id, "out.jsonl", source="it's")
    assert (said["rows"], said["answered"], said["rejected"]) == (2, 1, 1)
    assert [line["custom_id"] for line in lines("out.jsonl") + lines("out.errors.jsonl")] == ["1", None]
    done = cli("export", run_id, "-o", "out.jsonl", "--source", "its")
    assert done.returncode == 2
    assert "it has it's, other" in done.stderr
