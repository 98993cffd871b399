"""The recipe of docs/prefect.md for real: server, work pool, deployments, worker, and `prefect deployment run --watch`."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import psutil
import pytest

from tasks.core.manifest import DONE, STOPPED

pytestmark = pytest.mark.prefect

REPOSITORY = Path(__file__).parent.parent.parent


def free_port() -> int:
    """Below 32768: the other end of somebody's connection may sit on a higher one."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def wait_for(condition: Callable[[], object], timeout_s: float, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


class Prefect:
    """Prefect's command line against a server of our own, from the repository's folder as in the recipe."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/api"
        settings = {"PREFECT_HOME": str(home), "PREFECT_API_URL": self.url, "DO_NOT_TRACK": "1", "NO_COLOR": "1"}
        self._environment = {**os.environ, **settings, "PREFECT_SERVER_MEMO_STORE_PATH": str(home / "memo_store.toml")}

    def __call__(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "prefect", *arguments]
        options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 120, "check": False}
        return subprocess.run(command, cwd=REPOSITORY, env=self._environment, **options)

    def ok(self, *arguments: str) -> str:
        done = self(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def service(self, name: str, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
        """In a session of its own with SIGINT as on a terminal: Prefect turns SIGTERM into it. Ended whatever happens."""
        with (self.home / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "prefect", *arguments],
                cwd=REPOSITORY,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            _end_group(process.pid)

    def is_up(self) -> bool:
        try:
            with urlopen(f"{self.url}/health", timeout=1) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False

    def flow_run(self, run_id: str) -> dict[str, Any]:
        with urlopen(f"{self.url}/flow_runs/{run_id}", timeout=10) as answer:
            run: dict[str, Any] = json.load(answer)
        return run


def _end_group(group: int) -> None:
    """What a service left behind in its session, flow runs included."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


@pytest.fixture(scope="module")
def prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prefect]:
    """Steps 1 to 4 of the recipe; the worker runs until the last test is done."""
    prefect = Prefect(tmp_path_factory.mktemp("prefect"))
    with prefect.service("server", "server", "start", "--port", str(prefect.port)) as server:
        wait_for(lambda: prefect.is_up() or server.poll() is not None, 60, "the server did not start")
        prefect.ok("work-pool", "create", "nightbatch", "--type", "process")
        prefect.ok("work-pool", "update", "nightbatch", "--concurrency-limit", "1")
        prefect.ok("--no-prompt", "deploy", "--all")
        with prefect.service("worker", "worker", "start", "--pool", "nightbatch"):
            yield prefect


@pytest.fixture
def parameters(tmp_path: Path, inbox: Path) -> dict[str, Any]:
    roots = {"data": str(tmp_path / "data"), "checkpoints": str(tmp_path / "checkpoints")}
    return {**roots, "inbox": str(inbox), "model": {"name": "echo"}, "logical_date": "2026-12-01"}


def manifest_of(parameters: dict[str, Any]) -> dict[str, Any]:
    (path,) = Path(parameters["data"]).glob("runs/*/manifest.json")
    manifest: dict[str, Any] = json.loads(path.read_text())
    return manifest


def test_deployment_run_gives_results(prefect: Prefect, parameters: dict[str, Any]) -> None:
    """`--watch` ends with 0, the tables are there, and the run's log has each of our lines once."""
    shown = prefect.ok("deployment", "run", "nightly/nightly", "--params", json.dumps(parameters), "--watch")
    manifest = manifest_of(parameters)
    assert (manifest["state"], manifest["results"], manifest["logical_date"]) == (DONE, 3, "2026-12-01")
    assert list(Path(parameters["data"]).glob("runs/*/results/**/*.parquet"))

    run_id = shown.partition("UUID: ")[2].split()[0]
    assert prefect.flow_run(run_id)["name"] == "nightly-2026-12-01"
    assert prefect.flow_run(run_id)["state"]["message"].startswith("3 answered, 0 failed, 0 rejected")
    inventory = "3 rows: 3 requests, 0 rejected"
    wait_for(lambda: inventory in prefect.ok("flow-run", "logs", run_id), 10, "our lines are not in the run's log")
    assert prefect.ok("flow-run", "logs", run_id).count(inventory) == 1


def test_bad_parameter_is_refused_before_a_run_exists(prefect: Prefect) -> None:
    """The server names the key and what is wrong with it."""
    done = prefect("deployment", "run", "nightly/nightly", "--params", '{"sampling": {"max_tokens": 0}}')
    assert done.returncode == 1
    assert "'sampling.max_tokens'" in done.stdout and "0 is less than the minimum of 1" in " ".join(done.stdout.split())


def begin(prefect: Prefect, slow: dict[str, Any]) -> tuple[str, psutil.Process]:
    """A run that has generated something: its id and its engine child."""
    shown = prefect.ok("deployment", "run", "nightly/nightly", "--params", json.dumps(slow))
    journals = Path(slow["checkpoints"])
    wait_for(lambda: any(path.stat().st_size > 300 for path in journals.glob("*/*.journal")), 30, "nothing was generated")
    commands = [(process, str(process.info["cmdline"])) for process in psutil.process_iter(["cmdline"])]
    (engine,) = [process for process, command in commands if str(journals) in command and "tasks.worker" in command]
    return shown.partition("UUID: ")[2].split()[0], engine


def complete(prefect: Prefect, parameters: dict[str, Any]) -> None:
    """The same night again goes on from there. The stand-in's speed is no part of a run's name."""
    prefect.ok("deployment", "run", "nightly/nightly", "--params", json.dumps(parameters), "--watch")
    manifest = manifest_of(parameters)
    assert (manifest["state"], manifest["results"]) == (DONE, 3)
    assert manifest["resumed_tokens"] > 0


def test_cancelled_run_stops_and_the_next_one_completes_it(prefect: Prefect, parameters: dict[str, Any]) -> None:
    """Cancelling ends the engine child within seconds and keeps its tokens; the same night again goes on from there."""
    slow = {**parameters, "model": {"name": "echo:0.5"}}
    run_id, engine = begin(prefect, slow)
    prefect.ok("flow-run", "cancel", run_id)
    engine.wait(timeout=15)
    wait_for(lambda: prefect.flow_run(run_id)["state"]["name"] == "Cancelled", 30, "the run was not cancelled")
    assert manifest_of(slow)["state"] == STOPPED
    complete(prefect, parameters)


def test_killed_flow_run_is_crashed_and_the_next_one_completes_it(prefect: Prefect, parameters: dict[str, Any]) -> None:
    """SIGKILL of the flow run's process takes the engine along, Prefect calls it crashed, and the same night goes on."""
    slow = {**parameters, "model": {"name": "echo:0.5"}}
    run_id, engine = begin(prefect, slow)
    flow_run = engine.parent()
    assert flow_run is not None
    flow_run.kill()
    psutil.wait_procs([engine], timeout=15)
    wait_for(lambda: prefect.flow_run(run_id)["state"]["type"] == "CRASHED", 60, "the run is not known to have crashed")
    complete(prefect, parameters)
