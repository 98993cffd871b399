"""The verbs telemetry and doctor, as people call them, on a machine without a card."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

WriteJsonl = Callable[..., Path]

SLOW = ("--model", "echo:0.1", "--max-tokens", "40")


def test_telemetry_of_a_run(cli: Any, write_jsonl: WriteJsonl) -> None:
    """Some seconds of an engine are in the table, the summary, the named queries and the picture; without a card too."""
    path = write_jsonl([{"prompt": f"question {i} of a few"} for i in range(40)])
    run = cli.json("run", str(path), *SLOW)
    found = cli.json("telemetry", run["run_id"][:9], "--plot", str(cli.home / "night.png"))
    assert (found["run_id"], found["cards"], found["energy_j"]) == (run["run_id"], [], None)
    (engine,) = found["engines"]
    assert engine["generated_tokens"] == run["output_tokens"]
    assert (engine["lives"], engine["max_running"] > 0) == (1, True)
    assert (cli.home / "night.png").read_bytes().startswith(b"\x89PNG")
    (rows,) = cli.sql("select count(*) as n, count(card_uuid) as cards, max(generated_tokens) as g from telemetry")
    assert (rows["n"], rows["cards"], rows["g"]) == (found["readings"], 0, engine["generated_tokens"])
    assert "no GPU was measured" in cli("telemetry", run["run_id"]).stdout


def test_a_run_without_telemetry(cli: Any, write_jsonl: WriteJsonl) -> None:
    """It is a mistake to ask, with exit code 2 and one line; so is a picture of an unknown kind."""
    path = write_jsonl([{"prompt": "hi"}])
    run = cli.json("run", str(path), *SLOW, "--power", "off")
    done = cli("telemetry", run["run_id"])
    assert (done.returncode, done.stdout) == (2, "")
    assert f"run {run['run_id']} has no telemetry" in done.stderr
    assert cli("telemetry", run["run_id"], "--plot", "night.gif").returncode == 2


def test_doctor(cli: Any) -> None:
    """Every page is there, as lines and as one JSON value; a folder that cannot be written to ends with exit code 1."""
    done = cli("doctor", "--model", "echo", "--json")
    found = json.loads(done.stdout)
    assert (found["fit"], done.returncode) == (found["problems"] == 0, int(found["problems"] > 0))
    pages = {one["page"] for one in found["findings"]}
    assert pages == {"software", "model", "disk", "memory", "processor", "clock", "gpu", "prefect"}
    cli.data.write_text("a file where a folder belongs")
    done = cli("doctor", "--model", "echo")
    assert done.returncode == 1
    assert "nothing can be written there: Not a directory" in " ".join(done.stdout.split())
    assert "not fit for runs" in done.stdout
