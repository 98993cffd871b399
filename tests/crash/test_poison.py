"""Requests that kill the engine, with real processes: they fail with their reason, and everything else is answered."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

ECHO = ("--model", "echo", "--max-num-seqs")
SCRIPT = str(Path(__file__).with_name("poisoned.py"))
NUM_ROWS = 40
FEW_STEPS = 200
"""Bytes of a journal: fewer than the shortest answer needs, more than its header."""

Rows = Callable[..., Path]
Run = Callable[..., tuple[int, str]]
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def rows(write_jsonl: Callable[..., Path]) -> Rows:
    """Forty rows of which these are marked as poison."""

    def write(*poisons: int) -> Path:
        marks = dict.fromkeys(poisons, " poison")
        prompts = [f"question {i % 7} {i}{marks.get(i, '')}" for i in range(NUM_ROWS)]
        return write_jsonl([{"id": f"r{i}", "prompt": prompt, "max_tokens": 12} for i, prompt in enumerate(prompts)])

    return write


@pytest.fixture
def start(cli: Any) -> Start:
    """`nightbatch run` with the engine that poison kills, as a process group of its own."""

    def popen(
        path: Path, poison: str = "poison", kind: str = "segv", width: int = 4, stall_s: float = 120, **env: str
    ) -> "subprocess.Popen[str]":
        command = cli.command("run", str(path), *ECHO, str(width), "--stall-timeout-s", str(stall_s))
        place = command.index("-m")
        command[place : place + 2] = [SCRIPT]
        return subprocess.Popen(
            command,
            env={**os.environ, **env, "POISON": poison, "POISON_KIND": kind},
            cwd=cli.home,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return popen


@pytest.fixture
def run(start: Start) -> Run:
    """The same to its end: exit code and what it said."""

    def finish(*arguments: Any, **options: Any) -> tuple[int, str]:
        process = start(*arguments, **options)
        _, err = process.communicate(timeout=120)
        return process.returncode, err

    return finish


def failures(cli: Any) -> dict[str, str]:
    return {row["custom_id"]: row["error"] for row in cli.sql("select custom_id, error from failures")}


def assert_only_these_failed(cli: Any, *poisons: int) -> None:
    assert failures(cli).keys() == {f"r{i}" for i in poisons}
    assert len(cli.sql("select 1 from results")) == NUM_ROWS - len(poisons)
    (run_id,) = [row["run_id"] for row in cli.sql("select run_id from runs")]
    assert cli.json("check", run_id)["problems"] == []


@pytest.mark.parametrize("after", ["0", "5"], ids=["at once", "with its sixth token"])
def test_a_request_that_kills_the_engine_fails_and_the_rest_is_answered(cli: Any, rows: Rows, run: Run, after: str) -> None:
    """One poison row among forty: exit code 1, 39 answers, and a failure that says how the engine died."""
    code, said = run(rows(17), POISON_AFTER=after)
    assert code == 1, said
    assert_only_these_failed(cli, 17)
    reason = failures(cli)["r17"]
    assert "times while this request was running, the last time alone: killed by SIGSEGV; its last words: " in reason
    assert "two deaths with the same 4 requests in flight: held back until the rest is done" in said
    assert "/r17 (choice 0) isolated: the engine died" in said


def test_two_poison_requests_are_both_found(cli: Any, rows: Rows, run: Run) -> None:
    """Wherever they are, each fails with a reason of its own and takes nobody along."""
    code, said = run(rows(3, 30))
    assert code == 1, said
    assert_only_these_failed(cli, 3, 30)


def test_a_request_that_hangs_the_engine_fails_as_such(cli: Any, rows: Rows, run: Run) -> None:
    """A step that never ends counts as a death, and the reason says so."""
    code, said = run(rows(0), kind="stop", width=2, stall_s=0.6)
    assert code == 1, said
    assert_only_these_failed(cli, 0)
    assert "the last time alone: made no step for 1 s, killed by SIGKILL" in failures(cli)["r0"]


def test_a_request_that_runs_out_of_memory_fails_with_the_last_words(cli: Any, rows: Rows, run: Run) -> None:
    """An exception that ends the child is a death, and its message is in the reason."""
    code, said = run(rows(39), kind="memory", width=2)
    assert code == 1, said
    assert_only_these_failed(cli, 39)
    assert "exit code 1; its last words: MemoryError: no room for this prompt" in failures(cli)["r39"]


def test_killed_with_only_the_poison_left_it_is_found_again(cli: Any, rows: Rows, start: Start, run: Run) -> None:
    """With nothing else to run on the second start, an answered request shows that the engine itself works."""
    path = rows(17)
    process = start(path, width=1)
    assert process.stderr is not None
    assert any("running 1 request of those held back" in line for line in process.stderr)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    code, said = run(path, width=1)
    assert code == 1, said
    assert "running a request that was answered before" in said
    assert_only_these_failed(cli, 17)


def test_an_engine_that_dies_with_every_request_fails_the_run_and_no_request(cli: Any, rows: Rows, run: Run) -> None:
    """The run ends after few deaths, nothing is written off, and a sound engine answers all of it later."""
    path = rows()
    code, said = run(path, poison="")
    assert code == 1, said
    assert "nightbatch: the engine died 7 times in a row (killed by SIGSEGV): it said nothing (all of it: " in said
    assert cli.json("run", str(path), *ECHO, "4")["failures"] == 0
    assert_only_these_failed(cli)


def test_killed_twice_from_outside_condemns_nobody(cli: Any, rows: Rows) -> None:
    """SIGKILL of a healthy engine, two times at the same requests: all are answered, and the exit code is 0."""
    process = cli.start("run", str(rows()), "--model", "echo:0.05", "--max-num-seqs", "4")
    killed: list[psutil.Process] = []
    deadline = time.monotonic() + 60
    while len(killed) < 2:
        assert time.monotonic() < deadline
        for child in psutil.Process(process.pid).children():
            if "tasks.worker" not in child.as_dict(["cmdline"], ad_value=[])["cmdline"]:  # nothing of a zombie
                continue
            segments = list(cli.checkpoints.glob("*/*.journal"))
            is_new = child not in killed and len(segments) == len(killed) + 1
            if is_new and max(segments).stat().st_size > FEW_STEPS:
                child.kill()
                killed.append(child)
        time.sleep(0.005)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert_only_these_failed(cli)
