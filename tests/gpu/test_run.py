"""`nightbatch run` with the governor at work on a simulated card behind the stub driver, from the command to the table."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parent.parent.parent

Play = Callable[..., tuple[dict[str, Any], dict[str, Any], str]]


@pytest.fixture
def play(stub_library: Path, tmp_path: Path) -> Play:
    """A run of 24 requests on the dry-run engine; what it printed, what the card went through, and what it told people."""

    def run(
        *options: str, power: str = "managed", engine: str = "echo:0.25", state: str = ""
    ) -> tuple[dict[str, Any], dict[str, Any], str]:
        prompts, report = tmp_path / "prompts.jsonl", tmp_path / "report.json"
        prompts.write_text("".join(f'{{"prompt": "prompt {i}"}}\n' for i in range(24)))
        roots = ["--data", str(tmp_path / "data"), "--checkpoints", str(tmp_path / "checkpoints")]
        night = ["run", str(prompts), "--model", engine, "--max-tokens", "64", "--max-num-seqs", "16", "--json", *roots]
        command = [sys.executable, "-m", "tests.gpu.play", "--report", str(report), "--speed", "4", "--inlet", "40"]
        command += ["--limit", str(tmp_path / "checkpoints/*/engine-0.limit"), "--full", "16", *options, "--"]
        command += [sys.executable, "-P", "-m", "flows.cli", *night, "--power", power]
        environment = os.environ | {"NIGHTBATCH_STATE_DIR": state or str(tmp_path / "state"), "PYTHONPATH": str(REPOSITORY)}
        done = subprocess.run(
            command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=200, check=False
        )
        assert done.stdout, done.stderr
        return json.loads(done.stdout), json.loads(report.read_text()), done.stderr

    return run


def telemetry(tmp_path: Path, sql: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-P", "-m", "flows.cli", "sql", sql, "--json", "--data", str(tmp_path / "data")]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=os.environ | {"PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True, check=True
    )
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def test_a_run_governs_its_card_and_puts_it_back(play: Play, tmp_path: Path) -> None:
    """A card whose fan fails is set in time; all is answered, recorded, and as it was before."""
    run, card, told = play("--card", "H100", "--load", "prefill", "--event", "fan@0=1.4")
    assert (run["results"], run["failures"]) == (24, 0)
    assert card["peak_c"] < 84  # without a governor it gets over 87; below 80 where both keep to real time
    assert card["lowest_limit_w"] is not None or card["lowest_clock_mhz"] is not None
    assert card["is_put_back"]
    assert "GPU throttled" in told
    rows = telemetry(
        tmp_path, "select state, max(temperature_c) c, count(*) n, max(running) running from telemetry group by 1"
    )
    assert {row["state"] for row in rows} >= {"Nominal", "Throttled"}
    assert max(row["running"] or 0 for row in rows) > 0
    assert not list((tmp_path / "state").glob("*.lease"))


def test_a_lost_card_ends_the_run_and_loses_nothing(play: Play) -> None:
    """When the card falls off the bus the run is put down with the reason, and can go on."""
    run, _, told = play("--card", "H100", "--load", "decode", "--event", "lost@24", engine="echo:2")
    assert run["exit_code"] == 1
    assert "lost" in run["error"]
    assert "everything generated so far is kept" in run["error"]
    assert "GPU lost" in told


def test_observing_leaves_the_card_alone(play: Play) -> None:
    """Without managed control nothing is set."""
    run, card, _ = play("--card", "A10G", "--load", "decode", power="observe", engine="echo:0.05")
    assert run["results"] == 24
    assert card["sets"] == {}


def test_without_a_lease_nothing_is_set(play: Play) -> None:
    """Where no lease can be kept the card is left alone, however hot it gets, and that is said."""
    run, card, told = play("--card", "H100", "--load", "prefill", "--event", "fan@0=1.9", state="/proc/nowhere")
    assert run["results"] == 24
    assert card["sets"] == {}
    assert "no lease can be kept, so the card is left alone" in told
