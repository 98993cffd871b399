"""Builders for the ingest room: lines in, rows of the two tables out, through the real reader and the real Parquet."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tasks.core.config import RowConfig, SamplingDefaults
from tasks.core.protocols import Tokenizer
from tasks.engine.tokenizer import ByteTokenizer
from tasks.ingest.finding.sources import digest_file, discover
from tasks.ingest.ingest import ingest
from tasks.ingest.shapes.validate import Validator
from tasks.storage.layout import Layout
from tasks.storage.parquet import read_rows

Row = dict[str, Any]


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spares the disk: what survives a power cut is tested with the storage room."""
    monkeypatch.setattr("tasks.storage.atomic.sync_file", lambda path: None)
    monkeypatch.setattr("tasks.storage.atomic.sync_dir", lambda path: None)


@pytest.fixture
def chat() -> Callable[..., str]:
    """A line of an OpenAI batch file that asks `content`; keywords are further fields of its body, None among them."""

    def make(custom_id: Any, content: Any, **body: Any) -> str:
        messages = {"messages": [{"role": "user", "content": content}]}
        return json.dumps({"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": messages | body})

    return make


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file of lines (text, bytes, or values for JSON) under `in/`, one line break after each; its path."""

    def write(name: str, *lines: Any) -> Path:
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        encoded = [line if isinstance(line, str | bytes) else json.dumps(line) for line in lines]
        path.write_bytes(b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in encoded))
        os.utime(path, (0, 0))  # it need not settle
        return path

    return write


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "data", tmp_path / "checkpoints")


@pytest.fixture
def read(layout: Layout) -> Callable[..., tuple[list[Row], list[Row]]]:
    """Ingests paths and reads both tables back; keywords are fields of RowConfig, or of the run.

    Checks on the way that the manifest's counts are those of the tables, and that no row is in both or in neither.
    """

    def run(
        *paths: Path,
        tokenizer: Tokenizer | None = None,
        defaults: SamplingDefaults | None = None,
        served: Sequence[str] | None = None,
        source: str | None = None,
        **options: Any,
    ) -> tuple[list[Row], list[Row]]:
        names = None if served is None else frozenset(served)
        validator = Validator(RowConfig(**options), defaults or SamplingDefaults(), names, "SmolLM2")
        files = [(file, digest_file(file)) for file in discover(paths, source, format=options.get("format"))]
        rules: dict[str, Any] = {"validator_of": lambda _: validator, "tokenizer": tokenizer or ByteTokenizer()}
        dataset = ingest(files, layout=layout, tokens="bytes", dataset_id="d1", ds="2026-01-02", **rules)
        requests = list(read_rows([Path(part) for part in dataset.request_parts]))
        rejects = list(read_rows([Path(part) for part in dataset.reject_parts]))
        places = {(row["source"], row["file"], row["line"]) for row in requests + rejects}
        assert dataset.rows == len(requests) + len(rejects) == len(places)
        assert (dataset.requests, dataset.rejects) == (len(requests), len(rejects))
        return requests, rejects

    return run
