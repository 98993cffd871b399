"""Builders, fakes and the command line as a fixture. Everything a test writes lies in its tmp_path."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tasks.core.plan import GroupMember, PlannedSequence
from tasks.core.request import SamplingParams, sequence_key

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "OMP_NUM_THREADS": str(len(os.sched_getaffinity(0))),
}

REPOSITORY = Path(__file__).parent.parent

MakeSequence = Callable[..., PlannedSequence]
MakeMember = Callable[..., GroupMember]
WriteJsonl = Callable[..., Path]


@pytest.fixture
def make_sequence() -> MakeSequence:
    """A planned sequence with a key made from its name."""

    def make(name: str = "s", prompt: tuple[int, ...] = (5, 6, 7), **sampling: Any) -> PlannedSequence:
        params = SamplingParams(**{"max_tokens": 8, **sampling})
        return PlannedSequence(sequence_key(name, 0), name, 0, 0, prompt, params)

    return make


@pytest.fixture
def make_member() -> MakeMember:
    """A group member; `source/name` is its request id."""

    def make(
        name: str = "r",
        prompt: tuple[int, ...] = (1, 2, 3),
        source: str = "src",
        text: str = "",
        n: int = 1,
        **sampling: Any,
    ) -> GroupMember:
        params = SamplingParams(**{"max_tokens": 8, **sampling})
        return GroupMember(f"{source}/{name}", source, text or name, prompt, params, n)

    return make


@pytest.fixture
def write_jsonl(tmp_path: Path) -> WriteJsonl:
    """Writes rows (dicts or raw lines) as JSON lines; the path."""

    def write(rows: list[Any], name: str = "in.jsonl") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        os.utime(path, (0, 0))  # it need not settle
        return path

    return write


@dataclass(frozen=True)
class Cli:
    """The `nightbatch` command in a process of its own, with its data under one folder."""

    home: Path

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def checkpoints(self) -> Path:
        return self.home / "checkpoints"

    def command(self, verb: str, *arguments: str) -> list[str]:
        roots = ["--data", str(self.data)]
        if verb != "sql":
            roots += ["--checkpoints", str(self.checkpoints)]
        return [sys.executable, "-P", "-m", "flows.cli", verb, *arguments, *roots]

    def start(self, verb: str, *arguments: str, env: Mapping[str, str] = {}) -> "subprocess.Popen[str]":
        """In a process group of its own, so that a test can kill all of it."""
        return subprocess.Popen(
            self.command(verb, *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, **env},
            cwd=self.home,
        )

    def __call__(self, verb: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        process = self.start(verb, *arguments)
        out, err = process.communicate(timeout=240)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def json(self, verb: str, *arguments: str) -> Any:
        """The one JSON value of a run that must succeed."""
        done = self(verb, *arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def sql(self, statement: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.json("sql", statement)
        return rows


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)
