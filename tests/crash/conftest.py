"""A run to disturb, what it gives undisturbed, small disks, and a C library with faults.

Real processes and real faults; the engine is the stand-in, with a time for each step, so that many deaths fit in seconds.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest

from tasks.check import CheckReport, check_run
from tasks.journal.replay import Replay, replay_run
from tasks.query.views import run_query
from tasks.status import RunStatus, run_statuses
from tasks.storage.layout import Layout, Run

_OWN_MOUNTS = ("unshare", "--map-root-user", "--mount")
ANSWERS = "select custom_id, choice_index, output_text, output_token_ids, finish_reason from results order by 1, 2"


@dataclass(frozen=True)
class Ended:
    """How a process ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        return self.err.splitlines()[-1]


@dataclass(frozen=True)
class Night:
    """One run of the command over some rows, in a process group of its own, and all that can be seen of it."""

    cli: Any
    rows: Path
    step_s: float = 0.01
    extra: tuple[str, ...] = ()
    started: "list[subprocess.Popen[str]]" = field(default_factory=list)

    @property
    def arguments(self) -> tuple[str, ...]:
        return (str(self.rows), "--model", f"echo:{self.step_s}", "--max-num-seqs", "8", *self.extra)

    @property
    def layout(self) -> Layout:
        return Layout(self.cli.data, self.cli.checkpoints)

    @property
    def files(self) -> Run:
        (manifest,) = self.cli.data.glob("runs/*/manifest.json")
        return self.layout.run(manifest.parent.name)

    @property
    def manifest(self) -> dict[str, Any]:
        values: dict[str, Any] = json.loads(self.files.manifest.read_text())
        return values

    @property
    def segments(self) -> list[Path]:
        return sorted(self.cli.checkpoints.glob("*/*.journal"))

    def start(self, *extra: str, **env: str) -> "subprocess.Popen[str]":
        process: subprocess.Popen[str] = self.cli.start("run", *self.arguments, *extra, env=env)
        self.started.append(process)
        return process

    def finish(self, process: "subprocess.Popen[str]") -> Ended:
        out, err = process.communicate(timeout=60)
        return Ended(process.returncode, out, err)

    def run(self, *extra: str, **env: str) -> Ended:
        return self.finish(self.start(*extra, **env))

    def complete(self) -> dict[str, Any]:
        """Run to the end, as the user does after a fault; the run's own report."""
        ended = self.run("--json")
        assert ended.code == 0, ended.err
        report: dict[str, Any] = json.loads(ended.out)
        return report

    def undisturbed(self, folder: Path) -> "Undisturbed":
        """What the same rows give in a folder of their own, without waiting between steps."""
        folder.mkdir(exist_ok=True)
        night = replace(self, cli=type(self.cli)(folder), step_s=0)
        night.complete()
        tokens = {key: list(progress.token_ids) for key, progress in night.known().progress.items()}
        return Undisturbed(night.sql(ANSWERS), tokens, night.journal_bytes())

    def known(self) -> Replay:
        """What the journal holds."""
        return replay_run(self.files.journals, self.manifest["fingerprint"])

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """What `nightbatch sql` says."""
        return run_query(self.layout, statement)[1]

    def check(self) -> CheckReport:
        """What `nightbatch check` says."""
        return check_run(self.layout, self.files.run_id)

    def bytes(self) -> dict[str, bytes]:
        """All files of the run with what is in them."""
        roots = (self.cli.data, self.cli.checkpoints)
        return {str(path): path.read_bytes() for root in roots for path in sorted(root.rglob("*")) if path.is_file()}

    def wait_for(self, condition: Callable[[], object], process: "subprocess.Popen[str]", timeout_s: float = 30.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def journal_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.segments)

    def wait_for_tokens(self, process: "subprocess.Popen[str]", num_bytes: int = 500) -> None:
        """Until the journals have grown by this much."""
        wanted = self.journal_bytes() + num_bytes
        self.wait_for(lambda: self.journal_bytes() >= wanted, process)

    def worker_of(self, process: "subprocess.Popen[str]") -> psutil.Process:
        found: list[psutil.Process] = []

        def look() -> bool:
            found[:] = [c for c in psutil.Process(process.pid).children() if "tasks.worker" in c.cmdline()]
            return bool(found)

        self.wait_for(look, process)
        return found[0]

    def lives(self, process: psutil.Process) -> bool:
        """Whether it does; one that is dead may wait for somebody to ask how it ended."""
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)

    def status(self) -> RunStatus:
        """What `nightbatch status` says."""
        return run_statuses(self.layout, self.files.run_id)[0]


@dataclass(frozen=True)
class Undisturbed:
    """What the same rows give when nobody disturbs."""

    answers: list[tuple[Any, ...]]
    token_ids: dict[int, list[int]]
    journal_bytes: int

    @property
    def num_rows(self) -> int:
        return len({custom_id for custom_id, *_ in self.answers})

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.token_ids.values()))

    def holds(self, known: Replay) -> bool:
        """Whether every token of a journal is one of ours, in its place."""
        return all(list(of.token_ids) == self.token_ids[key][: len(of.token_ids)] for key, of in known.progress.items())

    def assert_whole(self, night: Night, damaged: Path | None = None) -> None:
        """The run is done: each row once, each answer the same, and the check agrees, but for a file that was damaged."""
        manifest = night.manifest
        outcome = (manifest["state"], manifest["rows"], manifest["results"], manifest["failures"])
        assert outcome == ("done", self.num_rows, self.num_rows, 0)
        assert night.sql(ANSWERS) == self.answers
        assert [problem for problem in night.check().problems if str(damaged) not in problem] == []

    def assert_nothing_half(self, night: Night) -> None:
        """Every table is there with all its rows or not at all, and what is in the journal is right."""
        assert night.sql("select count(*) from requests")[0][0] in (0, self.num_rows)
        assert night.sql("select count(*) from results")[0][0] in (0, len(self.answers))
        assert night.sql("select count(*) from rejects") == night.sql("select count(*) from failures") == [(0,)]
        if any(night.cli.data.glob("runs/*/manifest.json")):
            assert self.holds(night.known())
            assert night.check().problems == ()


@pytest.fixture
def ask(write_jsonl: Callable[..., Path]) -> Callable[..., Path]:
    """Writes so many requests, different ones and of different lengths; keywords are further fields of each."""

    def write(num_rows: int = 24, **fields: Any) -> Path:
        rows = ({"id": f"r{i}", "prompt": f"question {i % 7} {i}", "max_tokens": 18 + i % 9} for i in range(num_rows))
        return write_jsonl([row | fields for row in rows])

    return write


@pytest.fixture
def night(cli: Any, ask: Callable[..., Path]) -> Iterator[Night]:
    """A run of its own; whatever of it still lives when the test ends is killed."""
    night = Night(cli, ask())
    yield night
    for process in night.started:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture(scope="session")
def _once() -> dict[str, Undisturbed]:
    return {}


@pytest.fixture
def undisturbed(night: Night, tmp_path_factory: pytest.TempPathFactory, _once: dict[str, Undisturbed]) -> Undisturbed:
    """The answers and the journal of a run that nobody kills, made once for all tests."""
    if not _once:
        _once["for all"] = night.undisturbed(tmp_path_factory.mktemp("undisturbed"))
    return _once["for all"]


@pytest.fixture(scope="session")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment that preloads faults.c, which says what else may be set."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) to build the faulty C library with")
    library = tmp_path_factory.mktemp("faults") / "faults.so"
    source = Path(__file__).with_name("faults.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", library, source, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library)}


@pytest.fixture
def small_disk() -> Iterator[Callable[..., Path]]:
    """Mounts a tmpfs of so many bytes at a folder; a second call with the same folder changes the mount."""
    mounted: list[Path] = []

    def mount(path: Path, size: int, *options: str) -> Path:
        path.mkdir(parents=True, exist_ok=True)
        given = ",".join((*(["remount"] if path in mounted else []), f"size={size}", *options))
        subprocess.run(["mount", "-t", "tmpfs", "-o", given, "tmpfs", path], check=True)
        if path not in mounted:
            mounted.append(path)
        return path

    yield mount
    for path in reversed(mounted):
        subprocess.run(["umount", "--lazy", path], check=True)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object | None:
    """A test with small disks, where mounting is not permitted, runs in a process with mounts of its own."""
    if "small_disk" not in pyfuncitem.fixturenames or _can_mount(()):
        return None
    if not _can_mount(_OWN_MOUNTS):
        pytest.skip("no small disk: neither mount nor unshare is permitted")
    again = [*_OWN_MOUNTS, sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", pyfuncitem.nodeid]
    done = subprocess.run(again, capture_output=True, text=True, cwd=pyfuncitem.config.rootpath)
    assert done.returncode == 0, done.stdout
    return True


@cache
def _can_mount(prefix: tuple[str, ...]) -> bool:
    with TemporaryDirectory() as folder:
        script = 'mount -t tmpfs -o size=4096 tmpfs "$0" && umount "$0"'
        return subprocess.run([*prefix, "sh", "-c", script, folder], capture_output=True).returncode == 0
