"""Ingest is killed, runs out of disk, or runs twice: nothing half is ever seen, and the same command ends with all rows."""

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

SOURCES = ("a", "b", "c")
NUM_ROWS = 4000
NUM_BAD = 40
EACH_ONCE = "select source, count(*) as n, count(distinct request_id) as ids from requests group by 1 order by 1"
Night = Any


@pytest.fixture
def inbox(cli: Any) -> Path:
    """Three sources of two files each, with some bad rows."""
    inbox: Path = cli.home / "inbox"
    for source in SOURCES:
        (inbox / source).mkdir(parents=True)
        for name in ("x", "y"):
            rows = ({"id": f"{name}{i}", "prompt": f"question {i}"} for i in range(NUM_ROWS // 2))
            lines = [json.dumps(row) for row in rows] + ["{"] * (NUM_BAD // 2)
            (inbox / source / f"{name}.jsonl").write_text("\n".join(lines))
    return inbox


@pytest.fixture
def assert_whole(cli: Any) -> Callable[[dict[str, Any]], None]:
    """All rows are in the tables once, and nothing is left of those who died."""

    def check(counts: dict[str, Any]) -> None:
        assert (counts["requests"], counts["rejects"]) == (3 * NUM_ROWS, 3 * NUM_BAD)
        assert cli.sql(EACH_ONCE) == [{"source": source, "n": NUM_ROWS, "ids": NUM_ROWS} for source in SOURCES]
        assert cli.sql("select count(*) as n from rejects") == [{"n": 3 * NUM_BAD}]

    return check


def half(cli: Any) -> list[Path]:
    """Tables of whole datasets only are seen; these are the files that are none."""
    return [path for name in ("requests", "rejects") for path in cli.data.rglob(f"{name}/**/.*")]


def test_killed_at_its_nth_rename(cli: Any, inbox: Path, assert_whole: Any, faults: Mapping[str, str]) -> None:
    """Each start dies one rename later than the one before; what a part has is not read again, and all is there once."""
    for nth in count(1):
        fault = {"FAULT_KILL": "rename", "FAULT_PATH": str(cli.home), "FAULT_SIDE": ("before", "after")[nth % 2]}
        process = cli.start(
            "ingest", str(inbox), "--model", "echo", "--json", env={**faults, **fault, "FAULT_NTH": str(nth)}
        )
        out, err = process.communicate(timeout=60)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, err
        seen = [row["n"] for row in cli.sql("select count(*) as n from requests")]
        assert seen in ([0], [3 * NUM_ROWS])
    assert nth > 3
    assert_whole(json.loads(out))


@pytest.mark.parametrize("delay_s", [0.0, 0.1, 0.3])
def test_killed_while_reading(cli: Any, inbox: Path, assert_whole: Any, delay_s: float) -> None:
    """SIGKILL some time after the first table is begun: no row is seen, and the same command ends with each row once."""
    process = cli.start("ingest", str(inbox), "--model", "echo")
    while not half(cli) and process.poll() is None:
        time.sleep(0.002)
    time.sleep(delay_s)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert cli.sql("select count(*) as n from requests")[0]["n"] in (0, 3 * NUM_ROWS)
    assert_whole(cli.json("ingest", str(inbox), "--model", "echo"))


def test_disk_fills_up_while_reading(cli: Any, inbox: Path, assert_whole: Any, small_disk: Callable[..., Path]) -> None:
    """A disk with room for a part of it ends the command in one line with the words; with room only the rest is read."""
    cli.json("ingest", str(inbox), "--model", "echo")
    small_disk(cli.data, sum(path.stat().st_size for path in cli.data.rglob("*.parquet")) // 2)
    for _ in range(2):
        done = cli("ingest", str(inbox), "--model", "echo")
        assert done.returncode == 1, done.stderr
        assert "disk full: " in done.stderr.splitlines()[-1] and f": {cli.data}/" in done.stderr.splitlines()[-1]
        assert cli.sql("select count(*) as n from requests") == [{"n": 0}]
        assert half(cli) == []
    read = {path: path.stat().st_mtime_ns for path in cli.data.rglob("requests/**/*.parquet")}
    assert read
    small_disk(cli.data, 16 << 20)
    assert_whole(cli.json("ingest", str(inbox), "--model", "echo"))
    assert {path: path.stat().st_mtime_ns for path in read} == read


def test_two_at_once(cli: Any, inbox: Path, assert_whole: Any) -> None:
    """Two that read the same files at the same time say the same, and each row is there once."""
    both = [cli.start("ingest", str(inbox), "--model", "echo", "--json") for _ in range(2)]
    ended = [(*process.communicate(timeout=60), process.returncode) for process in both]
    assert [code for *_, code in ended] == [0, 0], [err for _, err, _ in ended]
    assert json.loads(ended[0][0]) == json.loads(ended[1][0])
    assert_whole(json.loads(ended[0][0]))
    assert half(cli) == []
