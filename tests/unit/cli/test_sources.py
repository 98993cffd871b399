"""Templates, records and what sources say of themselves, through the command."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WriteJsonl = Callable[..., Path]

ECHO = ("--model", "echo", "--max-tokens", "200")


def test_a_template_from_a_file(cli: Any, write_jsonl: WriteJsonl) -> None:
    """--prompt-template @FILE asks what the template makes of each row; another text in the file is another run."""
    path = write_jsonl([{"title": "T", "items": [{"q": "one"}, {"q": "two"}]}])
    (cli.home / "ask.j2").write_text("{{ up.title }}: {{ q }}")
    asked = ("run", str(path), *ECHO, "--record-path", "items", "--prompt-template", "@ask.j2")
    first = cli.json(*asked)
    assert cli.sql("select text, line from requests order by line") == [
        {"text": "T: one", "line": 1},
        {"text": "T: two", "line": 2},
    ]
    assert cli.json(*asked) == {**first, "was_done": True}
    (cli.home / "ask.j2").write_text("{{ up.title }}! {{ q }}")
    assert cli.json(*asked)["run_id"] != first["run_id"]


def test_a_template_that_is_wrong(cli: Any, write_jsonl: WriteJsonl) -> None:
    """It ends the command before anything is written, with the line."""
    done = cli("run", str(write_jsonl([{"a": 1}])), *ECHO, "--prompt-template", "{{ a")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nightbatch: --prompt-template: prompt_template: line 1: unexpected end of template" in done.stderr
    assert not cli.data.exists()


@pytest.fixture
def inbox(cli: Any, write_jsonl: WriteJsonl) -> Path:
    """Three sources that ask the same, in the order of their names the last of which is the most urgent."""
    for name in ("a", "b", "c"):
        write_jsonl([{"question": "same"}, {"question": f"only {name}"}], f"inbox/{name}/x.jsonl")
        toml = "prompt_column = 'question'\n[sampling]\nmax_tokens = 4"
        (cli.home / "inbox" / name / "source.toml").write_text(toml)
    (cli.home / "inbox/c/source.toml").write_text(f"priority = 1\n{toml}")
    (cli.home / "inbox/b/source.toml").write_text(f"deadline = 2030-01-01T06:00:00Z\n{toml}")
    return Path(cli.home / "inbox")


def test_sources_that_speak_for_themselves(cli: Any, inbox: Path) -> None:
    """Each source's rows are read its way; the plan begins with the most urgent, answering for the others."""
    values = cli.json("run", str(inbox), *ECHO)
    assert (values["requests"], values["duplicates"], values["output_tokens"]) == (6, 2, 24)
    requests = cli.sql("select distinct source, priority, deadline::varchar as due from requests order by 1")
    assert [(row["source"], row["priority"]) for row in requests] == [("a", 0), ("b", 0), ("c", 1)]
    assert [row["due"] is None for row in requests] == [True, False, True]
    plan = f"read_parquet('{cli.data}/runs/*/plan/*.parquet')"
    planned = cli.sql(f"select source, request_id from {plan} order by position")
    assert [row["source"] for row in planned] == ["c", "c", "b", "a"]


def test_what_makes_another_run(cli: Any, inbox: Path) -> None:
    """A source's own settings are part of the run's name; its priority, and notes beside it, are not."""
    first = cli.json("run", str(inbox), *ECHO)
    said = inbox / "a" / "source.toml"
    said.write_text(f"priority = 9\n# a note\n{said.read_text()}")
    again = cli.json("run", str(inbox), *ECHO)
    assert again == {**first, "was_done": True}
    said.write_text(said.read_text().replace("max_tokens = 4", "max_tokens = 5"))
    other = cli.json("run", str(inbox), *ECHO)
    assert (other["was_done"], other["run_id"] != first["run_id"]) == (False, True)


def test_a_source_toml_that_is_wrong(cli: Any, inbox: Path) -> None:
    """It ends the command before anything is read, with file and key; with --json as JSON too."""
    (inbox / "b" / "source.toml").write_text("max_token = 4\n")
    done = cli("run", str(inbox), *ECHO, "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"].startswith(f"{inbox}/b/source.toml: unknown key 'max_token'")
    assert not cli.data.exists()


def test_a_seed_of_a_source(cli: Any, write_jsonl: WriteJsonl) -> None:
    """A source's own seed feeds the seeds of its requests, those of other sources stay the run's."""
    for name in ("a", "b"):
        write_jsonl([{"id": "1", "prompt": "same"}], f"inbox/{name}/x.jsonl")
    seeds = []
    for toml in ("", "[sampling]\nseed = 5\n"):
        (cli.home / "inbox/b/source.toml").write_text(toml)
        run_id = cli.json("run", str(cli.home / "inbox"), *ECHO, "--temperature", "1")["run_id"]
        plan = f"read_parquet('{cli.data}/runs/{run_id}/plan/*.parquet')"
        seeds.append({row["source"]: row["sampling"] for row in cli.sql(f"select source, sampling from {plan}")})
    assert seeds[0]["a"] == seeds[1]["a"]
    assert seeds[0]["b"] != seeds[1]["b"]
