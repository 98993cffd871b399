"""Goal 13: how fast files become requests, beside a bare conversion of the same file and a bare tokenizer.

Three files in the OpenAI Batch format: `short` (questions of some 70 tokens, nothing shared), `shared` (a system prompt of
some 600 tokens and a short question, as most sources of a business have it), and `plain` (rows with a prompt). What is
timed is one process each time, warm, in turns:

- reading: ingest with a tokenizer that does nothing, against DuckDB's and pyarrow's conversion of the file to Parquet;
- tokenising: the tokenizer's part of ingest, against `encode_batch` of the tokenizers library over the same prompts;
- all of ingest against that bare `encode_batch`;
- with `--memory-gb`, the peak memory of `nightbatch ingest` over a file of that size.
"""

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.json
import pyarrow.parquet as pq

from benchmarks.engine import MODEL
from benchmarks.rig import REPOSITORY, Result, command, interval, record, result
from benchmarks.workloads import chats
from tasks.core.config import RowConfig, SamplingDefaults
from tasks.core.protocols import Tokenizer
from tasks.engine.models import resolve_model
from tasks.engine.tokenizer import ByteTokenizer, ModelTokenizer
from tasks.ingest.chunks import Reader
from tasks.ingest.draft import Chunk
from tasks.ingest.finding.sources import digest_file, discover
from tasks.ingest.ingest import ingest
from tasks.ingest.shapes.validate import Validator
from tasks.ingest.tokens import tokenise
from tasks.storage.layout import Layout

NAME = "ingest"
_VALIDATOR = Validator(RowConfig(), SamplingDefaults(), None, "m")


class _NoTokens(ByteTokenizer):
    """One token for whatever it is given, so that only the rest of ingest takes time."""

    def encode(self, prompts: Sequence[str], *, rendered: Sequence[bool]) -> list[list[int]]:
        return [[1]] * len(prompts)


def write_requests(path: Path, kind: str, num_rows: int) -> Path:
    """A file of requests of one kind, made of the samples' words; the same every time."""
    rng = random.Random(kind)
    words = [word for turns in chats() for turn in turns for word in turn["content"].split()]

    def text(number: int) -> str:
        begin = rng.randrange(len(words) - number)
        return " ".join(words[begin : begin + number])

    system = text(400) if kind == "shared" else "You are a careful tutor. Solve the problem step by step."
    with path.open("w", encoding="utf-8") as file:
        for i in range(num_rows):
            asked = text(rng.randint(10, 50))
            if kind == "plain":
                row: dict[str, object] = {"id": i, "prompt": asked, "label": "none", "score": i / 7}
            else:
                messages = [{"role": "system", "content": system}, {"role": "user", "content": asked}]
                body = {"model": "m", "max_tokens": 128, "temperature": 0, "messages": messages}
                row = {"custom_id": f"r-{i}", "method": "POST", "url": "/v1/chat/completions", "body": body}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return path


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def ingest_anew(path: Path, tokenizer: Tokenizer, home: Path) -> float:
    """Seconds of an ingest that finds nothing done; the digest that names the dataset is part of it."""
    shutil.rmtree(home, ignore_errors=True)

    def work() -> None:
        files = [(file, digest_file(file)) for file in discover([path], None)]
        layout = Layout(home, home)
        ingest(files, lambda _: _VALIDATOR, tokenizer, layout, tokens="", dataset_id="d", ds="2026-01-02")

    return seconds(work)


def tokenise_all(chunks: Sequence[Chunk], tokenizer: Tokenizer) -> float:
    return seconds(lambda: [tokenise(chunk.drafts, tokenizer) for chunk in chunks])


def by_duckdb(path: Path, out: Path) -> float:
    rows = f"SELECT * FROM read_json('{path}', format = 'newline_delimited')"
    return seconds(lambda: duckdb.sql(f"COPY ({rows}) TO '{out}' (FORMAT parquet, COMPRESSION zstd)"))


def by_pyarrow(path: Path, out: Path) -> float:
    return seconds(lambda: pq.write_table(pyarrow.json.read_json(path), out, compression="zstd"))


def measure_reading(kind: str, path: Path, home: Path, pairs: int) -> list[Result]:
    """Ratios of rows a second; the same twice as noise."""
    found: dict[str, list[float]] = {"DuckDB": [], "pyarrow": [], "itself": []}
    for _ in range(pairs):
        ours = ingest_anew(path, _NoTokens(), home / "out")
        found["DuckDB"].append(by_duckdb(path, home / "d.parquet") / ours)
        found["pyarrow"].append(by_pyarrow(path, home / "p.parquet") / ours)
        found["itself"].append(ingest_anew(path, _NoTokens(), home / "out") / ours)
    noise = interval(found["itself"])
    results = []
    for peer in ("DuckDB", "pyarrow"):
        ratio = interval(found[peer])
        measure = f"{kind}: rows/s of reading / {peer}'s conversion"
        results.append(result(NAME, "13", measure, ratio, ">= 0.85", ratio.low >= 0.85, aa=str(noise), pairs=pairs))
    return results


def measure_tokens(kind: str, path: Path, home: Path, pairs: int) -> list[Result]:
    """Ratios against the bare library over the very same prompts; each time with a tokenizer that remembers nothing."""
    (file,) = discover([path], None)
    chunks = list(Reader(_VALIDATOR, opened()).chunks(file, lambda _: None))
    prompts = [[one.prompt for one in chunk.drafts] for chunk in chunks]
    core = bare_core()
    alone: list[float] = []
    whole: list[float] = []
    again: list[float] = []
    for _ in range(pairs):
        bare = seconds(lambda: [core.encode_batch(chunk, add_special_tokens=False) for chunk in prompts])
        alone.append(bare / tokenise_all(chunks, opened()))
        whole.append(bare / ingest_anew(path, opened(), home / "out"))
        again.append(seconds(lambda: [core.encode_batch(chunk, add_special_tokens=False) for chunk in prompts]) / bare)
    detail = {"aa": str(interval(again)), "pairs": pairs, "rows": sum(map(len, prompts))}
    results = []
    for name, ratios in (("tokenising", alone), ("all of ingest", whole)):
        ratio = interval(ratios)
        measure = f"{kind}: rows/s of {name} / bare encode_batch"
        target = ">= 0.95" if name == "tokenising" else "-"
        results.append(result(NAME, "13", measure, ratio, target, name != "tokenising" or ratio.low >= 0.95, **detail))
    return results


def bare_core() -> Any:
    """The tokenizers library's own object, without transformers around it."""
    from tokenizers import Tokenizer as Core

    return Core.from_file(str(resolve_model(MODEL).path / "tokenizer.json"))


def measure_memory(home: Path, gigabytes: float) -> list[Result]:
    """The real command over a large file, in a process of its own."""
    path = write_requests(home / "large.jsonl", "short", 1000)
    block, size = path.read_text(encoding="utf-8"), path.stat().st_size
    with path.open("w", encoding="utf-8") as file:
        for i in range(int(gigabytes * 1e9 / size)):
            file.write(block.replace('"r-', f'"{i}-r-'))
    arguments = ("ingest", str(path), "--data", str(home / "data"), "--checkpoints", str(home / "c"))
    subprocess.run(command(*arguments, "--served-model-name", "*"), check=True, cwd=REPOSITORY)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    detail = {"file_gb": path.stat().st_size / 1e9}
    return [result(NAME, "13", "peak MiB of ingest", peak, "<= 1024", peak <= 1024, **detail)]


def opened() -> ModelTokenizer:
    return ModelTokenizer(resolve_model(MODEL).path, None)


def main() -> None:
    """Measure and write down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--token-rows", type=int, default=30_000)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--kinds", nargs="+", default=["short", "shared", "plain"])
    parser.add_argument("--memory-gb", type=float, help="measure this alone")
    given = parser.parse_args()
    if given.memory_gb:
        with tempfile.TemporaryDirectory() as folder:
            record(measure_memory(Path(folder), given.memory_gb))
        return
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for kind in given.kinds:
            results += measure_reading(kind, write_requests(home / f"{kind}.jsonl", kind, given.rows), home, given.pairs)
            few = write_requests(home / f"{kind}-few.jsonl", kind, given.token_rows)
            results += measure_tokens(kind, few, home, given.pairs)
            sys.stderr.write(f"{kind} done\n")
    record(results)


if __name__ == "__main__":
    main()
