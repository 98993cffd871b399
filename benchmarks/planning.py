"""Goal 14: planning a million requests against DuckDB's `ORDER BY prompt` on the same column, its memory and its growth.

    python -m benchmarks.planning [--rows 1000000] [--pairs 5] [--one-source]

Ours is all from the requests table to the groups, the prompts in order and the plan, each written to its file; DuckDB sorts
the column of texts of the same table and writes it to a Parquet file. Each runs in a process of its own, in turn, with as
many threads; what is timed is from the first byte read to the last one written. Prompts have some 125 tokens: a template of
60 that a source shares, a document of 30 to 70 that five requests share, and a question of 20.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.rig import REPOSITORY, Result, interval, record, result
from tasks.storage.parquet import REQUESTS

NAME = "planning"
_NUM_SOURCES, _TEMPLATE, _QUESTION, _ROWS_AT_ONCE = 20, 60, 20, 50_000


def write_requests(folder: Path, num_rows: int, num_sources: int) -> None:
    """The requests table: a part for each source, rows in random order."""
    rng = np.random.default_rng(0)
    templates = rng.integers(1000, 40_000, (num_sources, _TEMPLATE), dtype=np.int32)
    for index in range(num_sources):
        schema, left, number = REQUESTS, num_rows // num_sources, 0
        with pq.ParquetWriter(folder / f"{index:03}.parquet", schema, compression="zstd") as writer:
            while left:
                size = min(left, _ROWS_AT_ONCE)
                writer.write_table(_rows(index, templates[index], number, size, num_rows, rng), row_group_size=8192)
                left, number = left - size, number + size


def _rows(index: int, template: Any, first: int, size: int, num_rows: int, rng: np.random.Generator) -> pa.Table:
    documents = rng.integers(0, max(num_rows // 5, 1), size)
    prompts = []
    for document in documents.tolist():
        length = 30 + document % 41
        of_document = (np.arange(length) * 2_654_435_761 + document * 40_503) % 39_000 + 1000
        prompts += [template, of_document.astype(np.int32), rng.integers(1000, 40_000, _QUESTION, dtype=np.int32)]
    lengths = (_TEMPLATE + 30 + documents % 41 + _QUESTION).astype(np.int32)
    flat, offsets = np.concatenate(prompts), np.append(0, np.cumsum(lengths)).astype(np.int32)
    ids = pa.array([f"s{index:03}/{first + i:08}" for i in range(size)])
    texts = [" ".join(map(str, flat[offsets[i] : offsets[i + 1]])) for i in range(size)]
    known: dict[str, Any] = {
        "request_id": ids,
        "source": [f"s{index:03}"] * size,
        "text": texts,
        "sampling": ['{"max_tokens":100}'] * size,
        "n": np.ones(size, np.int32),
        "max_tokens": np.full(size, 100, np.int32),
        "prompt_tokens": lengths,
        "prompt_token_ids": pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat)).cast(pa.list_(pa.int32())),
    }
    columns = [known.get(field.name, pa.nulls(size, field.type)) for field in REQUESTS]
    return pa.Table.from_arrays([pa.array(c) if not isinstance(c, pa.Array) else c for c in columns], schema=REQUESTS)


def ours(requests: Path, out: Path) -> float:
    """Group and plan; seconds."""
    from tasks.core.config import GroupConfig, PlanConfig
    from tasks.group.group import group, ranks
    from tasks.plan.make import sequences, write_plan
    from tasks.storage.planned import Labels, read_groups
    from tasks.storage.prompts import PromptFile

    def urgency(source: str) -> tuple[int, float]:
        return (0, 0.0)

    began = time.perf_counter()
    group(sorted(requests.glob("*.parquet")), out / "groups.parquet", out / "prompts.arrow", GroupConfig(), urgency)
    groups = read_groups(out / "groups.parquet")
    planned = sequences(groups, PlanConfig(), ranks(groups.sources, urgency))
    with PromptFile(out / "prompts.arrow") as prompts:
        labels = Labels(prompts)
    write_plan(out / "plan.parquet", groups, labels, planned, lambda source: 0)
    return time.perf_counter() - began


def duckdb_sort(requests: Path, out: Path) -> float:
    """Sort the texts; seconds."""
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"set threads = {len(os.sched_getaffinity(0))}")
    began = time.perf_counter()
    read = f"select text from read_parquet('{requests}/*.parquet') order by text"
    connection.execute(f"copy ({read}) to '{out}/sorted.parquet' (compression zstd)")
    return time.perf_counter() - began


def in_process(which: str, requests: Path) -> tuple[float, float]:
    """Seconds, and the most memory in MB."""
    with tempfile.TemporaryDirectory(dir=requests.parent) as out:
        command = [sys.executable, "-m", "benchmarks.planning", "--only", which, str(requests), out]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    seconds, memory = json.loads(done.stdout)
    return seconds, memory


def measure(num_rows: int, num_pairs: int, num_sources: int) -> list[Result]:
    run = partial(_measured, num_sources=num_sources)
    with tempfile.TemporaryDirectory() as home:
        large, small = Path(home) / "large", Path(home) / "small"
        for folder, number in ((large, num_rows), (small, num_rows // 10)):
            folder.mkdir()
            write_requests(folder, number, num_sources)
        in_process("ours", small)  # compiles
        return run(large, small, num_rows, num_pairs)


def _measured(large: Path, small: Path, num_rows: int, num_pairs: int, num_sources: int) -> list[Result]:
    ratios: list[float] = []
    growth: list[float] = []
    memory: list[float] = []
    peer_memory: list[float] = []
    seconds: list[float] = []
    for pair in range(num_pairs):
        times = {}
        for which in ("ours", "duckdb") if pair % 2 else ("duckdb", "ours"):
            times[which], used = in_process(which, large)
            (memory if which == "ours" else peer_memory).append(used)
        tenth, _ = in_process("ours", small)
        ratios.append(times["ours"] / times["duckdb"])
        growth.append(times["ours"] / tenth)
        seconds.append(times["ours"])
        sys.stderr.write(f"pair {pair}: {times['ours']:.2f} s / {times['duckdb']:.2f} s; a tenth {tenth:.2f} s\n")
    detail = {"rows": num_rows, "sources": num_sources, "pairs": num_pairs, "ours_s": interval(seconds).median}
    detail |= {"duckdb_mb": max(peer_memory)}
    ratio, grown, most = interval(ratios), interval(growth), interval(memory)
    return [
        result(NAME, "14", "plan / DuckDB ORDER BY prompt", ratio, "<= 2", ratio.high <= 2, **detail),
        result(NAME, "14", "memory, MB", most, "<= 2000", most.high <= 2000, **detail),
        result(NAME, "14", "time of ten times the rows", grown, "<= 11", grown.high <= 11, **detail),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--one-source", action="store_true", help="all in one source, which is sorted in ranges")
    parser.add_argument("--only", nargs=3, metavar=("WHICH", "REQUESTS", "OUT"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        which, requests, out = given.only
        seconds = (ours if which == "ours" else duckdb_sort)(Path(requests), Path(out))
        sys.stdout.write(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
        return
    record(measure(given.rows, given.pairs, 1 if given.one_source else _NUM_SOURCES))


if __name__ == "__main__":
    main()
