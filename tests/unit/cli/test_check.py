"""`nightbatch check`: quiet about a healthy run, precise about a damaged one, and never changing anything."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.storage.parquet import RESULTS, read_rows, write_table


@pytest.fixture
def run_id(cli: Any, write_jsonl: Callable[..., Path]) -> str:
    """A finished run with an exact duplicate and a request of three choices."""
    prompts = [{"id": f"r{i}", "prompt": f"question {i % 5}"} for i in range(6)]
    path = write_jsonl([*prompts, {"id": "three", "prompt": "three", "n": 3, "temperature": 1}])
    return str(cli.json("run", str(path), "--model", "echo", "--max-tokens", "9")["run_id"])


def check(cli: Any, run_id: str) -> tuple[int, dict[str, Any]]:
    done = cli("check", run_id, "--json")
    return done.returncode, json.loads(done.stdout)


def only(folder: Path, pattern: str) -> Path:
    (path,) = folder.rglob(pattern)
    return path


def test_healthy_run(cli: Any, run_id: str) -> None:
    """Every table row is compared, nothing is found, the exit code is 0."""
    code, report = check(cli, run_id)
    assert (code, report["problems"], report["notes"]) == (0, [], [])
    assert (report["sequences"], report["ended"], report["rows_compared"]) == (8, 8, 9)
    assert "healthy" in cli("check", run_id).stdout


def test_changed_tokens_and_lost_rows_are_named(cli: Any, run_id: str) -> None:
    """A changed answer and a missing row in the results are reported by request; the file stays as it is."""
    part = only(cli.data, "results/*.parquet")
    rows = list(read_rows(part))
    rows[0]["output_token_ids"] = [1, 2, 3]
    write_table(part.parent, RESULTS, rows[:-1])
    before = part.read_bytes()
    code, report = check(cli, run_id)
    assert code == 1
    text = "\n".join(report["problems"])
    assert "in/r0 choice 0: the table's tokens are not the journal's" in text
    assert "in/three choice 2: planned, and in neither table" in text
    assert part.read_bytes() == before


def test_damaged_journal_is_named(cli: Any, run_id: str) -> None:
    """A flipped byte in the journal is reported with its file and byte, and so is every sequence that lost its end."""
    segment = only(cli.checkpoints, "*.journal")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 0xFF
    segment.write_bytes(bytes(data))
    code, report = check(cli, run_id)
    assert code == 1
    assert str(segment) in " ".join(report["problems"])
    assert any("without an end in the journal" in problem for problem in report["problems"])


def test_flipped_byte_in_any_table_is_named(cli: Any, run_id: str) -> None:
    """A damaged plan, results or checksum file is reported by its path, and check itself goes on to the others."""
    for pattern in ("plan/*.parquet", "results/*.parquet", "failures/_SHA256SUMS"):
        path = only(cli.data, pattern)
        before = path.read_bytes()
        path.write_bytes(before[:100] + bytes([before[100] ^ 0xFF]) + before[101:] if len(before) > 101 else b"\xff")
        code, report = check(cli, run_id)
        assert code == 1, pattern
        assert any(str(path.parent) in problem for problem in report["problems"]), report["problems"]
        path.write_bytes(before)
    assert check(cli, run_id)[0] == 0


def test_checksums_are_those_of_sha256sum(cli: Any, run_id: str) -> None:
    """The standard tool can check the results as well."""
    folder = only(cli.data, "results/_SHA256SUMS").parent
    done = subprocess.run(["sha256sum", "--check", "--strict", "_SHA256SUMS"], cwd=folder, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_unknown_run(cli: Any, run_id: str) -> None:
    """A run that is not there is the user's mistake."""
    done = cli("check", "nothere")
    assert done.returncode == 2
    assert "no run 'nothere'" in done.stderr
