"""Builders, fakes and the command line as a fixture. Everything a test writes lies in its tmp_path."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from tasks.core.config import GroupConfig
from tasks.core.plan import PlannedSequence
from tasks.core.request import SamplingParams
from tasks.group.group import group
from tasks.storage.parquet import REQUESTS, read_rows, writing_table
from tasks.storage.planned import GroupTable, Labels
from tasks.storage.prompts import PromptFile

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
WriteJsonl = Callable[..., Path]


@pytest.fixture
def make_sequence() -> MakeSequence:
    """A planned sequence with a key made from its name."""

    def make(name: str = "s", prompt: tuple[int, ...] = (5, 6, 7), **sampling: Any) -> PlannedSequence:
        params = SamplingParams(**{"max_tokens": 8, **sampling})
        return PlannedSequence(crc32(name.encode()), name, 0, 0, prompt, params)

    return make


@dataclass(frozen=True)
class Asked:
    """A request as the requests table has it; `source/name` is its id."""

    name: str
    prompt: tuple[int, ...]
    sampling: SamplingParams
    source: str = "src"
    n: int = 1
    text: str = ""
    context: str = ""

    @property
    def request_id(self) -> str:
        return f"{self.source}/{self.name}"


@pytest.fixture(scope="session")
def ask() -> Callable[..., Asked]:
    """A request to be grouped; keywords that it has no field for are sampling parameters."""

    def make(name: str, prompt: tuple[int, ...] = (1, 2, 3), **given: Any) -> Asked:
        own = {key: given.pop(key) for key in ("source", "n", "text", "context") if key in given}
        return Asked(name, prompt, SamplingParams(**{"max_tokens": 8, **given}), **own)

    return make


@dataclass(frozen=True)
class Grouped:
    """The stage's outcome with the requests' ids, and the folder of its files."""

    folder: Path
    table: GroupTable
    ids: list[str]

    @property
    def prompts(self) -> Path:
        return self.folder / "prompts.arrow"

    @property
    def labels(self) -> Labels:
        with PromptFile(self.prompts) as file:
            return Labels(file)

    @property
    def groups(self) -> dict[str, list[str]]:
        """The ids in each group, in order."""
        found: dict[str, list[str]] = {name: [] for name in self.table.group_ids}
        for request_id, of in zip(self.ids, self.table.group.tolist(), strict=True):
            if of >= 0:
                found[self.table.group_ids[of]].append(request_id)
        return found

    @property
    def duplicate_of(self) -> dict[str, str]:
        pairs = zip(self.ids, self.table.original.tolist(), strict=True)
        return {request_id: self.ids[other] for request_id, other in pairs if self.ids[other] != request_id}

    @property
    def similarity(self) -> dict[str, float]:
        pairs = zip(self.ids, self.table.similarity.tolist(), strict=True)
        return {request_id: near for request_id, near in pairs if not math.isnan(near)}


def write_part(path: Path, requests: Sequence[Asked]) -> Path:
    """A part of the requests table, of one source."""
    with writing_table(path, REQUESTS) as table:
        for one in requests:
            told = dict.fromkeys(REQUESTS.names) | {
                "ds": "2026-12-01",
                "custom_id": one.name,
                "file": "f",
                "line": 1,
            }
            told |= {
                "request_id": one.request_id,
                "source": one.source,
                "text": one.text,
                "sampling": one.sampling.to_json(),
            }
            told |= {"n": one.n, "max_tokens": one.sampling.max_tokens, "prompt_tokens": len(one.prompt)}
            table.append(told | {"prompt_token_ids": one.prompt})
    return path


@pytest.fixture(scope="session")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Grouped]:
    """Puts requests through the stage, in two files where a source has several; keywords are settings of groups."""

    def make(requests: Sequence[Asked], urgency: Mapping[str, int] = {}, **given: Any) -> Grouped:
        how = {key: given.pop(key) for key in ("find_near", "max_tokens_at_once") if key in given}
        folder = tmp_path_factory.mktemp("grouped")
        parts = []
        for i, source in enumerate(dict.fromkeys(one.source for one in requests)):
            of_source = [one for one in requests if one.source == source]
            half = len(of_source) // 2
            pieces = [piece for piece in (of_source[:half], of_source[half:]) if piece]
            parts += [write_part(folder / f"{i}-{j}.parquet", piece) for j, piece in enumerate(pieces)]
        table, prompts = folder / "groups.parquet", folder / "prompts.arrow"
        made = group(parts, table, prompts, GroupConfig(**given), lambda source: (urgency.get(source, 0), 0.0), **how)
        ids = [row["request_id"] for row in read_rows(table, ["request_id"])]
        return Grouped(folder, made, ids)

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
