"""Large inputs through the command: memory that does not grow with them, and few open files."""

import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest


def ingest_under(cli: Any, *paths: Path, max_files: int = 1024) -> tuple[dict[str, Any], int]:
    """What `nightbatch ingest` counts with so many files open at most, and the most memory that it had, in bytes."""
    process = cli.start("ingest", *map(str, paths), "--model", "echo", "--json")
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (max_files, max_files))  # this process may have more open
    with process.stdout, process.stderr:
        counts, said = process.stdout.read(), process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, said
    return json.loads(counts), used.ru_maxrss << 10


def test_memory_does_not_grow_with_the_rows(cli: Any) -> None:
    """Ten thousand prompts of 2 kB more take a few megabytes more, where keeping them would take hundreds."""
    few, many = cli.home / "few.jsonl", cli.home / "many.jsonl"
    for path, num_rows in ((few, 3_000), (many, 13_000)):
        rows = ({"id": i, "prompt": "two thousand characters " * 83, "max_tokens": 1} for i in range(num_rows))
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (_, least), (counts, most) = ingest_under(cli, few), ingest_under(cli, many)
    assert counts["requests"] == 13_000
    assert most - least < 80 << 20


@pytest.mark.parametrize("name", ["one/{}.jsonl", "{}/x.jsonl"], ids=["one source", "a source each"])
def test_many_files_with_few_descriptors(cli: Any, name: str) -> None:
    """Three hundred files are read with 64 descriptors, as one source or as many, and once more with a file more."""
    for i in range(300):
        path = cli.home / "inbox" / name.format(f"s{i}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"id": f"r{i}", "prompt": f"question {i}"}))
    counts, _ = ingest_under(cli, cli.home / "inbox", max_files=64)
    assert (counts["files"], counts["requests"]) == (300, 300)
    (path.parent / "more.jsonl").write_text('{"prompt": "one more"}\n')
    again, _ = ingest_under(cli, cli.home / "inbox", max_files=64)
    assert (again["files"], again["requests"]) == (301, 301)
