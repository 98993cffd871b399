"""The command: the contract of its JSON and exit codes, and one clear line for each mistake."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ECHO = ("--model", "echo")
WriteJsonl = Callable[..., Path]


def batch_line(custom_id: str, text: str, **body: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": {"messages": messages, **body}}


def test_run_gives_one_json_object_with_the_contracts_keys(cli: Any, write_jsonl: WriteJsonl) -> None:
    """Exactly one JSON object on stdout; the counts add up; the results are where it says."""
    bad = '{"custom_id": "cut'
    path = write_jsonl([batch_line("a", "hi"), bad, batch_line("b", "hi"), batch_line("c", "yo", n=2, max_tokens=5)])
    done = cli("run", str(path), *ECHO, "--max-reject-rate", "0.5", "--json")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    values = json.loads(line)
    assert {k: values[k] for k in ("rows", "requests", "rejects", "results", "failures", "duplicates")} == {
        "rows": 4, "requests": 3, "rejects": 1, "results": 3, "failures": 0, "duplicates": 1,
    }  # fmt: skip
    assert values.keys() >= {"run_id", "prompt_tokens", "output_tokens", "cached_tokens", "tokens_per_s", "resumed_tokens"}
    assert list(Path(values["results_path"]).glob("*.parquet"))
    assert cli.sql("select custom_id, choice_index from results order by all") == [
        {"custom_id": "a", "choice_index": 0},
        {"custom_id": "b", "choice_index": 0},
        {"custom_id": "c", "choice_index": 0},
        {"custom_id": "c", "choice_index": 1},
    ]
    assert cli.sql("select file, line, reason from rejects") == [{"file": "in.jsonl", "line": 2, "reason": "malformed_json"}]
    assert cli.sql("select sum(output_tokens) as n from results") == [{"n": values["output_tokens"]}]
    assert cli.sql("select run_id, state, rows from runs") == [{"run_id": values["run_id"], "state": "done", "rows": 4}]


def test_running_it_again_does_nothing(cli: Any, write_jsonl: WriteJsonl) -> None:
    """The second time it says so, gives the same numbers, and starts no engine."""
    path = write_jsonl([batch_line("a", "hi")])
    first = cli.json("run", str(path), *ECHO)
    journals = sorted(cli.checkpoints.rglob("*.journal"))
    second = cli.json("run", str(path), *ECHO)
    assert second == {**first, "was_done": True}
    assert sorted(cli.checkpoints.rglob("*.journal")) == journals
    assert "nothing left to do" in cli("run", str(path), *ECHO).stdout


def test_results_can_be_collected_again(cli: Any, write_jsonl: WriteJsonl) -> None:
    """Deleted results come back from the journal, equal, without generating anything."""
    path = write_jsonl([batch_line("a", "hi"), batch_line("b", "yo")])
    cli.json("run", str(path), *ECHO)
    before = cli.sql("select * from results order by custom_id")
    for folder in cli.data.glob("runs/*/results"):
        shutil.rmtree(folder)
    assert cli.json("run", str(path), *ECHO)["resumed_tokens"] == sum(row["output_tokens"] for row in before)
    assert cli.sql("select * from results order by custom_id") == before


def test_nightly_is_named_by_its_date(cli: Any, write_jsonl: WriteJsonl) -> None:
    """Each night of the same inbox is a run of its own; the same night again does nothing."""
    write_jsonl([batch_line("a", "hi")], "inbox/source-a/x.jsonl")
    write_jsonl([batch_line("a", "hi")], "inbox/source-b/x.jsonl")
    inbox = str(cli.home / "inbox")
    runs = [
        cli.json("nightly", "--inbox", inbox, *ECHO, "--date", day) for day in ("2026-11-29", "2026-11-30", "2026-11-30")
    ]
    assert [run["logical_date"] for run in runs] == ["2026-11-29", "2026-11-30", "2026-11-30"]
    assert [run["was_done"] for run in runs] == [False, False, True]
    assert cli.sql("select source, count(*) as n from results group by 1 order by 1") == [
        {"source": "source-a", "n": 2},
        {"source": "source-b", "n": 2},
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "nothere.jsonl"), "no such file or folder: nothere.jsonl"),
        (("run",), "Missing argument 'FILES...'"),
        (("run", "in.jsonl", "--no-such-flag"), "No such option"),
        (("run", "in.jsonl", "--temperature", "3"), "temperature must be between 0 and 2, not 3.0"),
        (("run", "in.jsonl", "--max-tokens", "many"), "--max-tokens"),
        (("run", "in.jsonl", "--dtype", "int3"), "dtype must be one of"),
        (("run", "in.jsonl", "--model", "./nothere"), "unknown model './nothere': no such folder"),
        (("run", "in.jsonl", "--model", "no/such-model"), "unknown model 'no/such-model'"),
        (("run", "empty"), "no input files in empty"),
        (("run", "empty.jsonl", *ECHO), "the input is empty: empty.jsonl"),
        (("run", "plain.jsonl", *ECHO, "--id-column", "nope"), "no field 'nope' (--id-column); the row has 'prompt'"),
        (("run", "nocolumn.csv", *ECHO), "no text in 'prompt' or 'messages'; the row has 'a', 'b'"),
        (("nightly", "--inbox", "empty"), "no input files in empty"),
        (("nightly", "--date", "tomorrow"), "tomorrow"),
        (("status", "nothere"), "no run 'nothere'"),
        (("sql", "select x from nothere"), "nothere"),
        (("sql",), "give a statement"),
        (("sql", " "), "give a statement"),
        (("sql", "--name", "nothere"), "--name is one of"),
        (("frobnicate",), "No such command"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_users_mistakes_get_one_line_and_exit_code_2(cli: Any, arguments: tuple[str, ...], words: str) -> None:
    """A mistake ends with exit code 2, an empty stdout and a message that names it, without a traceback."""
    (cli.home / "empty").mkdir()
    cli.data.mkdir()
    (cli.home / "in.jsonl").write_text(json.dumps(batch_line("a", "hi")) + "\n")
    (cli.home / "empty.jsonl").write_text("")
    (cli.home / "plain.jsonl").write_text('{"prompt": "hi"}\n')
    (cli.home / "nocolumn.csv").write_text("a,b\n1,2\n")
    done = cli(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    message = [line for line in done.stderr.splitlines() if line.startswith("nightbatch: ")]
    assert len(message) == 1
    assert words in done.stderr


def test_too_many_rejects_stop_before_the_engine(cli: Any, write_jsonl: WriteJsonl) -> None:
    """Above the threshold nothing is generated; the message has counts and places; a higher threshold lets it run."""
    path = write_jsonl([batch_line("a", "hi"), "{", "["])
    done = cli("run", str(path), *ECHO)
    assert done.returncode == 1
    assert "2 of 3 rows were rejected" in done.stderr
    assert "in.jsonl line 2" in done.stderr
    assert not list(cli.checkpoints.rglob("*.journal"))
    assert cli.json("run", str(path), *ECHO, "--max-reject-rate", "1")["results"] == 1


@pytest.mark.parametrize(
    "roots",
    [
        ("--data", "in.jsonl"),
        ("--data", "in.jsonl/sub"),
        ("--checkpoints", "in.jsonl"),
        ("--data", "/proc/nope"),
        ("--checkpoints", "/proc/nope"),
    ],
    ids=" ".join,
)
def test_roots_that_cannot_be_written_get_one_line(tmp_path: Path, write_jsonl: WriteJsonl, roots: tuple[str, ...]) -> None:
    """A data or checkpoints folder that cannot be there is named in one line, with exit code 2; with --json as JSON too."""
    write_jsonl([batch_line("a", "hi")])
    command = [sys.executable, "-P", "-m", "flows.cli", "run", "in.jsonl", *ECHO, *roots, "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("nightbatch: ")
    assert json.loads(done.stdout)["exit_code"] == 2


def test_answers_stand_beside_what_was_asked(cli: Any, write_jsonl: WriteJsonl) -> None:
    """After two runs over one file the named query gives each run's answers once, with their prompts."""
    path = write_jsonl([batch_line("a", "hi"), batch_line("b", "yo", n=2, temperature=1)])
    for tokens in ("4", "5"):
        cli.json("run", str(path), *ECHO, "--max-tokens", tokens)
    rows = cli.json("sql", "--name", "answers")
    assert [(row["asked"], row["choice_index"]) for row in rows] == 2 * [("hi", 0), ("yo", 0), ("yo", 1)]
    assert len({row["run_id"] for row in rows}) == 2


def test_json_of_a_query_is_json(cli: Any, write_jsonl: WriteJsonl) -> None:
    """Decimals are numbers and NaN is null."""
    cli.json("run", str(write_jsonl([batch_line("a", "hi")])), *ECHO)
    assert cli.sql("select 1.5 as d, 'nan'::double as n") == [{"d": 1.5, "n": None}]


def test_help_teaches(cli: Any) -> None:
    """Every verb has a help text with what it does; run shows an example."""
    assert "nightbatch run requests.jsonl" in " ".join(cli("run", "--help").stdout.split())
