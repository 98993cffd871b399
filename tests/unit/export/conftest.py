"""Real runs on the echo engine, exported by the command and read back."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.delivery import deliver
from tasks.export.settings import Export
from tasks.progress import LogDisplay
from tasks.storage.layout import Layout

Row = dict[str, Any]
ECHO = ("--model", "echo", "--max-reject-rate", "1")


@pytest.fixture
def answer(cli: Any) -> Callable[..., str]:
    """Runs input files on the echo engine; the run's id."""

    def run(*paths: Path, options: tuple[str, ...] = ()) -> str:
        return str(cli.json("run", *map(str, paths), *ECHO, *options)["run_id"])

    return run


@pytest.fixture
def export(cli: Any) -> Callable[..., Row]:
    """Exports to a file in the test's folder; what the command would say of it. Keywords are fields of Export."""

    def call(run_id: str, out: str, **settings: Any) -> Row:
        layout = Layout(cli.data, cli.checkpoints)
        return deliver(layout, run_id, Export(cli.home / out, **settings), LogDisplay()).to_dict()

    return call


@pytest.fixture
def lines(tmp_path: Path) -> Callable[[str], list[Row]]:
    """The JSON values of a file's lines; none where there is no file."""

    def read(name: str) -> list[Row]:
        path = tmp_path / name
        return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]] if path.exists() else []

    return read


@pytest.fixture
def chat() -> Callable[..., Row]:
    """A line of a batch input file for the chat endpoint."""

    def make(custom_id: Any, text: str, **body: Any) -> Row:
        messages = {"messages": [{"role": "user", "content": text}], **body}
        return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": messages}

    return make


@pytest.fixture
def completion() -> Callable[..., Row]:
    """A line of a batch input file for the completions endpoint."""

    def make(custom_id: Any, prompt: str, **body: Any) -> Row:
        return {"custom_id": custom_id, "method": "POST", "url": "/v1/completions", "body": {"prompt": prompt, **body}}

    return make
