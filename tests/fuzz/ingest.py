"""Damages input files and reads them: whatever a file holds, each row is a request or a reject, and nothing else happens.

    .venv/bin/python -m tests.fuzz.ingest --minutes 10 [--first NUMBER]

Every case has a number and is made of it alone, so that a finding is a number: `--case NUMBER --keep FOLDER` runs it by
itself, shows where it fails and leaves the file. To make a test of it, cut the file down by hand to the bytes that matter,
put them inline into the module of tests/unit/ingest that has the topic, with what should become of them, and fix the kind.
Cases run in a child process, so that one that ends its process is a finding as well.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from tasks.core.config import RowConfig, SamplingDefaults
from tasks.core.dataset import Dataset
from tasks.core.errors import ConfigError, NightbatchError
from tasks.engine.tokenizer import ByteTokenizer
from tasks.ingest.finding.sources import digest_file, discover
from tasks.ingest.ingest import ingest
from tasks.ingest.shapes.validate import Validator
from tasks.storage.layout import Layout
from tasks.storage.parquet import read_rows
from tasks.storage.transcode import encoding_of
from tests.fuzz.damage import case

CONTEXT = 512
CASE_S = 10
MAX_MORE_BYTES = 3 << 30
_BOM = b"\xef\xbb\xbf"


class Tables:
    """What ingest made of a file."""

    def __init__(self, path: Path, options: dict[str, Any], layout: Layout) -> None:
        validator = Validator(RowConfig(**options), SamplingDefaults(max_tokens=32), None, "echo")
        files = [(file, digest_file(file)) for file in discover([path], None, format=options.get("format"))]
        rules: dict[str, Any] = {"validator_of": lambda _: validator, "tokenizer": ByteTokenizer(CONTEXT), "layout": layout}
        self.dataset: Dataset = ingest(files, tokens="bytes", dataset_id="d", ds="2026-01-02", **rules)
        self.requests, self.rejects = (
            list(read_rows(list(map(Path, parts)))) for parts in (self.dataset.request_parts, self.dataset.reject_parts)
        )


@contextmanager
def one_by_one() -> Iterator[None]:
    """Every row by itself and by the rules alone: no fast lane, and a block and a chunk for each row."""
    with (
        patch("tasks.ingest.fast.FastLane.drafts", lambda lane, lines, *_: [None] * len(lines)),
        patch("tasks.ingest.reading.blocks._MAX_LINES", 1),
        patch("tasks.ingest.chunks._CHUNK_ROWS", 1),
    ):
        yield


def check(name: str, content: bytes, options: dict[str, Any], folder: Path) -> None:
    """Read it, twice and in two ways, and assert what holds for any file."""
    path = folder / name
    path.write_bytes(content)
    try:
        tables = Tables(path, options, Layout(folder / "data", folder / "c"))
    except NightbatchError:
        return  # which says what to do
    with one_by_one():
        again = Tables(path, options, Layout(folder / "again", folder / "c"))
    assert tables.requests == again.requests, "requests depend on how rows are taken together"
    assert tables.rejects == again.rejects, "rejects depend on how rows are taken together"
    known = Tables(path, options, Layout(folder / "data", folder / "c"))
    assert (known.requests, known.rejects) == (tables.requests, tables.rejects), "what is known is not what was read"
    rows = [*tables.requests, *tables.rejects]
    assert tables.dataset.rows == len(rows) == len({(row["source"], row["file"], row["line"]) for row in rows})
    assert len({row["request_id"] for row in tables.requests}) == len(tables.requests)
    for one in tables.requests:
        assert one["text"].strip() and one["custom_id"] and one["prompt_tokens"] == len(one["prompt_token_ids"]) > 0
        assert one["prompt_tokens"] + one["max_tokens"] <= CONTEXT and one["max_tokens"] > 0
    for one in tables.rejects:
        assert one["reason"].isidentifier() and one["message"].strip() and len(one["message"]) <= 500, one
    is_plain = "record_path" not in options and encoding_of(content[: 1 << 17], options.get("encoding")) is None
    if is_plain and path.suffix in (".jsonl", ".txt") and options.get("format") in (None, "jsonl", "txt"):
        lines = enumerate(content.split(b"\n"), 1)
        assert sorted(row["line"] for row in rows) == [i for i, line in lines if line.removeprefix(_BOM).strip()]


def run(number: int, folder: Path) -> None:
    """One case. Raises what it finds; a case that does not end in time is an error too."""

    def late(*_: object) -> None:
        raise TimeoutError(f"not done after {CASE_S} s")

    signal.signal(signal.SIGALRM, late)
    name, content, options = case(number)
    try:
        RowConfig(**options)
    except ConfigError:
        return
    signal.alarm(CASE_S)
    try:
        check(name, content, options, folder)
    finally:
        signal.alarm(0)


def child(first: int, seconds: float) -> None:
    """Cases one after another; a line of JSON for each that is begun or failed."""
    virtual = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (virtual + MAX_MORE_BYTES,) * 2)
    begun = time.monotonic()
    with quick():
        while time.monotonic() - begun < seconds:
            print(json.dumps({"case": first}), flush=True)
            with TemporaryDirectory() as folder:
                try:
                    run(first, Path(folder))
                except Exception:
                    print(json.dumps({"case": first, "error": traceback.format_exc(limit=-4)}), flush=True)
            first += 1


@contextmanager
def quick() -> Iterator[None]:
    """Without what takes time and is tested elsewhere: syncing the disk, and starting the grammar checker anew."""
    with (
        patch("tasks.storage.atomic.sync_file", lambda path: None),
        patch("tasks.storage.atomic.sync_dir", lambda path: None),
        patch("tasks.ingest.shapes.checker.close", lambda: None),
    ):
        yield


def fuzz(first: int, seconds: float) -> Iterator[tuple[int, str]]:
    """Each finding with its number; at last the number of the next case, and nothing."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        command = [sys.executable, "-m", "tests.fuzz.ingest", "--child", str(left), "--first", str(first)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONHASHSEED": "0"}
        ) as process:
            for line in process.stdout or ():
                said = json.loads(line)
                if "error" in said:
                    yield said["case"], said["error"]
                first = said["case"] + 1
        if process.returncode:
            yield first - 1, f"the process ended with {process.returncode}"
    yield first, ""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--case", type=int)
    parser.add_argument("--keep", type=Path, default=Path("case"))
    parser.add_argument("--child", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.first, given.child)
        return 0
    if given.case is not None:
        given.keep.mkdir(parents=True, exist_ok=True)
        print(case(given.case)[2])
        with quick():
            run(given.case, given.keep)
        return 0
    found = 0
    for number, error in fuzz(given.first, 60 * given.minutes):
        found += bool(error)
        print(f"case {number}: {error}" if error else f"{number - given.first} cases, {found} findings", flush=True)
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
