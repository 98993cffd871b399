"""Real processes, real signals. The engine is the stand-in (0.02 s a step), so that many deaths fit in seconds."""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tasks.journal.replay import replay
from tasks.journal.segments import segments

ECHO = ("--model", "echo:0.02", "--max-num-seqs", "8")
NUM_ROWS = 40


@pytest.fixture
def rows(write_jsonl: Callable[..., Path]) -> Path:
    return write_jsonl(
        [{"id": f"r{i}", "prompt": f"question {i % 7} {i}", "max_tokens": 20 + i % 9} for i in range(NUM_ROWS)]
    )


def answers(cli: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cli.sql(
        "select custom_id, output_text, output_token_ids, finish_reason from results order by 1"
    )
    return found


def journal_bytes(cli: Any) -> int:
    return sum(path.stat().st_size for path in cli.checkpoints.glob("*/*.journal"))


def wait_for(condition: Callable[[], object], process: "subprocess.Popen[str]", timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def worker_of(process: "subprocess.Popen[str]") -> psutil.Process:
    found: list[psutil.Process] = []

    def look() -> bool:
        found[:] = [c for c in psutil.Process(process.pid).children() if "tasks.worker" in c.cmdline()]
        return bool(found)

    wait_for(look, process)
    return found[0]


def finish(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.fixture
def undisturbed(cli: Any, rows: Path, tmp_path: Path) -> list[dict[str, Any]]:
    """The answers of a run that nobody kills."""
    home = tmp_path / "undisturbed"
    home.mkdir()
    other = type(cli)(home)
    other.json("run", str(rows), "--model", "echo", "--max-num-seqs", "8")
    return answers(other)


def test_killed_group_at_random_moments_loses_and_doubles_nothing(
    cli: Any, rows: Path, undisturbed: list[dict[str, Any]]
) -> None:
    """SIGKILL of the whole process group again and again: acknowledged tokens stay, and the answers are the same."""
    random.seed(3)
    kept = 0
    for _ in range(8):
        process = cli.start("run", str(rows), *ECHO)
        enough = journal_bytes(cli) + 200
        wait_for(partial(lambda size: journal_bytes(cli) > size, enough), process)
        time.sleep(random.uniform(0, 0.15))
        os.killpg(process.pid, signal.SIGKILL)
        finish(process)
        manifest = json.loads(next(cli.data.glob("runs/*/manifest.json")).read_text())
        known = replay(segments(cli.checkpoints / manifest["run_id"]), bytes.fromhex(manifest["fingerprint"]))
        assert known.num_tokens >= kept, "a token that was in the journal is gone"
        kept = known.num_tokens
    last = cli.json("run", str(rows), *ECHO)
    assert last["resumed_tokens"] == kept > 0
    assert (last["rows"], last["results"], last["failures"]) == (NUM_ROWS, NUM_ROWS, 0)
    assert answers(cli) == undisturbed


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_asked_to_stop_it_puts_down_at_once_and_resumes(
    cli: Any, rows: Path, undisturbed: list[dict[str, Any]], number: signal.Signals
) -> None:
    """A stop signal ends the run within seconds with exit code 75; nothing is lost, and status says stopped."""
    process = cli.start("run", str(rows), *ECHO)
    wait_for(lambda: journal_bytes(cli) > 500, process)
    worker = worker_of(process)
    asked = time.monotonic()
    process.send_signal(number)
    code, out, err = finish(process)
    assert (code, out) == (75, "")
    assert time.monotonic() - asked < 5
    assert "everything generated is kept" in err.splitlines()[-1]
    assert not worker.is_running()
    (status,) = cli.json("status")
    assert status["state"] == "stopped"
    assert status["journal_tokens"] > 0
    assert cli.json("run", str(rows), *ECHO)["resumed_tokens"] == status["journal_tokens"]
    assert answers(cli) == undisturbed


def test_killed_engine_is_restarted_in_the_same_run(cli: Any, rows: Path, undisturbed: list[dict[str, Any]]) -> None:
    """SIGKILL of the engine child alone: the supervisor says so, starts another, and the run completes."""
    process = cli.start("run", str(rows), *ECHO)
    wait_for(lambda: journal_bytes(cli) > 500, process)
    worker_of(process).kill()
    code, _, err = finish(process)
    assert code == 0, err
    assert "killed by SIGKILL" in err
    assert "resuming" in err
    assert answers(cli) == undisturbed


def test_killed_supervisor_takes_its_engine_along(cli: Any, rows: Path) -> None:
    """SIGKILL of the command alone leaves no engine behind, and status knows that nobody works on the run."""
    process = cli.start("run", str(rows), *ECHO)
    wait_for(lambda: journal_bytes(cli) > 200, process)
    worker = worker_of(process)
    process.kill()
    finish(process)
    psutil.wait_procs([worker], timeout=5)
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
    (status,) = cli.json("status")
    assert status["state"] == "interrupted"


def test_second_process_on_one_run_is_refused(cli: Any, rows: Path) -> None:
    """While one process works on a run, another that would do the same is refused and told who has it."""
    process = cli.start("run", str(rows), *ECHO)
    wait_for(lambda: journal_bytes(cli) > 200, process)
    second = cli("run", str(rows), *ECHO)
    assert second.returncode == 75
    assert f"process {process.pid} " in second.stderr
    assert finish(process)[0] == 0


def test_other_settings_are_another_run(cli: Any, rows: Path) -> None:
    """Anything that would change a token makes a new run; what was there before is not touched."""
    ids = [
        cli.json("run", str(rows), "--model", "echo", *extra)["run_id"]
        for extra in ((), ("--max-tokens", "9"), ("--seed", "1"), ("--dtype", "float32"), ("--system", "Be brief."))
    ]
    assert len(set(ids)) == len(ids)
    rows.write_text(rows.read_text() + '{"prompt": "one more"}\n')
    assert cli.json("run", str(rows), "--model", "echo")["run_id"] not in ids
