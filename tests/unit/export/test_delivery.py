"""What an export refuses, and that it then leaves everything as it was."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.core.errors import ConfigError, NightbatchError
from tasks.export.settings import Export
from tasks.storage.layout import Layout
from tasks.storage.lock import RunLock
from tasks.storage.parquet import RESULTS, read_rows, write_table

Make = Callable[..., Any]


@pytest.fixture
def refused(cli: Any, export: Make) -> Callable[..., str]:
    """An export that fails; its message. No file appears or changes."""

    def call(run_id: str, out: str, code: int = 2, **settings: Any) -> str:
        before = {path: path.read_bytes() for path in cli.home.iterdir() if path.is_file()}
        with pytest.raises(NightbatchError) as caught:
            export(run_id, out, **settings)
        assert caught.value.exit_code == code
        assert {path: path.read_bytes() for path in cli.home.iterdir() if not path.is_dir()} == before
        return str(caught.value)

    return call


def test_the_command_says_what_it_wrote(answer: Make, write_jsonl: Make, chat: Make, cli: Any) -> None:
    """With --json one object with the counts and files, without it the same in words; the beginning of an id will do."""
    run_id = answer(write_jsonl([chat("a", "hi"), "{"]))
    assert cli.json("export", run_id[:8], "-o", "out.jsonl") == {
        "run_id": run_id,
        "format": "openai",
        "rows": 2,
        "answered": 1,
        "failed": 0,
        "rejected": 1,
        "path": "out.jsonl",
        "errors_path": "out.errors.jsonl",
    }
    assert cli("export", run_id, "-o", "out.jsonl").stdout.splitlines() == [
        f"out.jsonl: run {run_id}, 2 rows: 1 answered, 0 failed, 1 rejected",
        "out.errors.jsonl: those without an answer",
    ]


def test_a_run_that_is_not_done(answer: Make, refused: Make, write_jsonl: Make, chat: Make, cli: Any) -> None:
    """The message says its state and how to finish it."""
    run_id = answer(write_jsonl([chat("a", "hi")]))
    path = cli.data / "runs" / run_id / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"state": "stopped"}))
    assert f"run {run_id} is stopped, not done: the command that began it" in refused(run_id, "out.jsonl", code=1)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"state": "running"}))
    assert f"run {run_id} is interrupted, not done" in refused(run_id, "out.jsonl", code=1)


def test_a_run_that_is_running(answer: Make, refused: Make, write_jsonl: Make, chat: Make, cli: Any) -> None:
    """While a process works on it there is nothing to export, and trying again later is right."""
    run_id = answer(write_jsonl([chat("a", "hi")]))
    run = Layout(cli.data, cli.checkpoints).run(run_id)
    values = json.loads(run.manifest.read_text())
    run.manifest.write_text(json.dumps(values | {"state": "running"}))
    with RunLock(run.lock):
        assert f"run {run_id} is still running" in refused(run_id, "out.jsonl", code=75)


def test_counts_that_do_not_add_up(answer: Make, refused: Make, write_jsonl: Make, chat: Make, cli: Any) -> None:
    """The tables must have the manifest's counts."""
    run_id = answer(write_jsonl([chat("a", "hi"), "{"]))
    path = cli.data / "runs" / run_id / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rejects": 2}))
    assert "do not have the manifest's counts: run `nightbatch check`" in refused(run_id, "out.jsonl", code=1)


def test_lost_rows(answer: Make, refused: Make, write_jsonl: Make, chat: Make, cli: Any) -> None:
    """A request without a row in the results, or a result without a request, is damage and never a shorter file."""
    run_id = answer(write_jsonl([chat(name, name, n=2, temperature=1) for name in "abc"]))
    results = Layout(cli.data, cli.checkpoints).run(run_id).results
    rows = list(read_rows(sorted(results.glob("*.parquet"))))
    for lost in ([0, 1], [2], [4, 5]):
        write_table(results, RESULTS, [row for place, row in enumerate(rows) if place not in lost])
        for form in ("openai", "csv"):
            refused(run_id, "out.jsonl", code=1, given_format=form)
    write_table(results, RESULTS, [row | {"line": row["line"] + 1} for row in rows])
    assert "is no request" in refused(run_id, "out.jsonl", code=1)


def test_damaged_tables(answer: Make, refused: Make, write_jsonl: Make, chat: Make, cli: Any) -> None:
    """A table that is not as it was written is named, and nothing is exported."""
    run_id = answer(write_jsonl([chat("a", "hi")]))
    (part,) = (cli.data / "runs" / run_id / "results").glob("*.parquet")
    part.write_bytes(part.read_bytes()[:-9] + b"123456789")
    assert f"{part} is damaged" in refused(run_id, "out.jsonl", code=1)
    part.unlink()
    assert f"{part} is missing" in refused(run_id, "out.csv", code=1)


def test_users_mistakes(answer: Make, refused: Make, write_jsonl: Make, chat: Make, cli: Any) -> None:
    """Each has its own message; an input file is never written over."""
    path = write_jsonl([chat("a", "hi"), "{"])
    run_id = answer(path)
    (cli.home / "link.jsonl").hardlink_to(path)
    assert "no run 'nothere'" in refused("nothere", "out.jsonl")
    assert "in.jsonl is an input file of this run" in refused(run_id, "in.jsonl")
    assert "link.jsonl is an input file of this run" in refused(run_id, "out.jsonl", given_errors=cli.home / "link.jsonl")
    assert "data is a folder" in refused(run_id, "data", given_format="csv")
    assert f"no such folder: {cli.home / 'nothere'}" in refused(run_id, "nothere/out.csv")
    assert "no such folder: nothere" in refused(run_id, "out.jsonl", given_errors=Path("nothere/errors.jsonl"))
    for options, words in (((), "1 rows have no answer: name a file for them with --errors"), (("--json",), "choose one")):
        done = cli("export", run_id, "-o", "-", *options)
        assert done.returncode == 2
        assert words in done.stderr.splitlines()[-1]
        assert not done.stdout or json.loads(done.stdout)["exit_code"] == 2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"out": "x.txt"}, "x.txt: the ending is none of"),
        ({"out": "x.csv", "given_format": "xml"}, "--format must be one of openai, jsonl, csv, parquet"),
        ({"out": "x.csv", "order": "name"}, "--order must be input or any"),
        ({"out": "x.jsonl", "given_format": "openai", "join": True}, "--join puts answers beside"),
        ({"out": "x.csv", "given_errors": Path("e")}, "--errors is for --format openai"),
        ({"out": "x.jsonl", "given_errors": Path("x.jsonl")}, "name the same file"),
    ],
)
def test_settings_that_do_not_go_together(settings: dict[str, Any], words: str) -> None:
    """A bad value or combination names its option."""
    with pytest.raises(ConfigError, match=words):
        Export(**settings | {"out": Path(settings["out"])})


def test_where_errors_go() -> None:
    """Beside the output, under its name; of stdout only where it is said."""
    assert Export(Path("a/out.jsonl")).errors == Path("a/out.errors.jsonl")
    assert Export(Path("out"), "openai").errors == Path("out.errors")
    assert Export(Path("out.csv")).errors is None
    assert Export(None).errors is None
    assert Export(None, given_errors=Path("e")).errors == Path("e")


def test_stdout_devices_and_links(answer: Make, write_jsonl: Make, chat: Make, cli: Any) -> None:
    """- is stdout, a device stays one, and of a link the file behind it is replaced."""
    run_id = answer(write_jsonl([chat("a", "hi"), "{"]))
    errors = cli.home / "null"
    errors.symlink_to("/dev/null")
    done = cli("export", run_id, "-o", "-", "--errors", str(errors))
    assert done.returncode == 0
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["custom_id"] == "a"
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    (cli.home / "real.csv").write_text("old")
    (cli.home / "link.csv").symlink_to("real.csv")
    assert cli("export", run_id, "-o", "link.csv").returncode == 0
    assert (cli.home / "link.csv").is_symlink()
    assert (cli.home / "real.csv").read_text().startswith("custom_id,")


def test_a_reader_who_leaves_is_no_error(answer: Make, write_jsonl: Make, chat: Make, cli: Any) -> None:
    """A closed pipe ends the export without a traceback; what was read is not whole, so the exit code is 1."""
    run_id = answer(write_jsonl([chat("a", "hi")]))
    command = cli.command("export", run_id, "-o", "-")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, cwd=cli.home, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writer)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_an_error_file_of_an_earlier_export_does_not_stay(
    answer: Make, export: Make, write_jsonl: Make, chat: Make, cli: Any
) -> None:
    """Files are replaced; where the run has no errors there is no error file, not even an old one."""
    bad = answer(write_jsonl([chat("a", "hi"), "{"], "bad.jsonl"))
    good = answer(write_jsonl([chat("b", "hi")], "good.jsonl"))
    assert export(bad, "out.jsonl")["errors_path"] == str(cli.home / "out.errors.jsonl")
    assert (cli.home / "out.errors.jsonl").exists()
    assert export(good, "out.jsonl")["errors_path"] is None
    assert not (cli.home / "out.errors.jsonl").exists()
    assert json.loads((cli.home / "out.jsonl").read_text())["custom_id"] == "b"
    assert not list(cli.home.glob(".*"))


def test_input_that_is_gone_or_has_changed(answer: Make, export: Make, refused: Make, write_jsonl: Make, cli: Any) -> None:
    """A join needs the very file: a line more or less, other bytes, or none at all are told, and nothing appears."""
    rows = [{"id": "a", "prompt": "hi"}, {"id": "b", "prompt": "yo"}]
    path = write_jsonl(rows)
    run_id = answer(path)
    export(run_id, "first.csv", join=True)
    write_jsonl(rows[:1])
    assert f"{path} has changed since the run has read it" in refused(run_id, "out.csv", join=True)
    write_jsonl([*rows, {"id": "c", "prompt": "more"}])
    assert f"{path} has changed since the run has read it" in refused(run_id, "out.csv", join=True)
    path.unlink()
    assert f"{path} is not there any more" in refused(run_id, "out.csv", join=True)
    export(run_id, "out.csv")
    write_jsonl(rows)
    export(run_id, "second.csv", join=True)
    assert (cli.home / "first.csv").read_bytes() == (cli.home / "second.csv").read_bytes()


def test_an_older_dataset(answer: Make, refused: Make, write_jsonl: Make, chat: Make, cli: Any) -> None:
    """One that does not say where its files lay cannot be joined to them, and the message says what can be done."""
    run_id = answer(write_jsonl([chat("a", "hi")]))
    (manifest,) = (cli.data / "requests" / "_datasets").glob("*.json")
    dataset = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({name: value for name, value in dataset.items() if name != "inputs"}))
    assert "export without --join" in refused(run_id, "out.csv", join=True)


def test_input_of_other_bytes(answer: Make, refused: Make, write_jsonl: Make, cli: Any) -> None:
    """Where the dataset has the file's digest, a change that keeps every line in its place is told too."""
    path = write_jsonl([{"id": "a", "prompt": "hi"}])
    run_id = answer(path)
    (manifest,) = (cli.data / "requests" / "_datasets").glob("*.json")
    dataset = json.loads(manifest.read_text())
    dataset["inputs"][0]["digest"] = "00" * 32
    manifest.write_text(json.dumps(dataset))
    assert f"{path} has changed since the run has read it" in refused(run_id, "out.csv", join=True)


def test_light(tmp_path: Path) -> None:
    """An export loads no model library."""
    code = "import sys, tasks.delivery; print([m for m in ('torch', 'vllm', 'transformers', 'prefect') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "[]", done.stderr
