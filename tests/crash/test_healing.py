"""Files other than the journal that are damaged or lost: check says so, and the same command makes them again."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.crash.conftest import Night, Undisturbed

FILES = {
    "the manifest": "data/runs/*/manifest.json",
    "the dataset's manifest": "data/requests/_datasets/*.json",
    "the requests": "data/requests/ds=*/source=*/*.parquet",
    "the groups": "data/runs/*/groups/*.parquet",
    "the plan": "data/runs/*/plan/*.parquet",
    "the plan's checksums": "data/runs/*/plan/_SHA256SUMS",
}
OF_A_DONE_RUN = {"the results": "data/runs/*/results/*.parquet", "the failures": "data/runs/*/failures/*.parquet"}


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def one(night: "Night", pattern: str) -> Path:
    found: list[Path] = list(night.cli.home.glob(pattern))
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("damage", [flip, cut, Path.unlink], ids=["flipped", "cut", "deleted"])
def test_damaged_in_a_killed_run(night: "Night", undisturbed: "Undisturbed", damage: Callable[[Path], None]) -> None:
    """Whatever file beside the journal is damaged: check names it, status works, and the run goes on to the same answers."""
    process = night.start()
    night.wait_for_tokens(process, 1000)
    os.killpg(process.pid, signal.SIGKILL)
    night.finish(process)
    kept = night.known().num_tokens
    files = {name: one(night, pattern) for name, pattern in FILES.items()}
    for name, path in files.items():
        before = path.read_bytes()
        damage(path)
        if name != "the manifest":
            assert any(str(path) in problem for problem in night.check().problems), name
        elif damage is not Path.unlink:
            done = night.cli("status", "--json")
            assert '"state": "damaged"' in done.stdout, done.stderr
            assert night.cli("check", path.parent.name).returncode == 1
        path.write_bytes(before)
    assert night.check().problems == ()
    for path in files.values():
        damage(path)
    report = night.complete()
    assert report["resumed_tokens"] == kept
    undisturbed.assert_whole(night)


@pytest.mark.parametrize("name", [*FILES, *OF_A_DONE_RUN])
def test_damaged_in_a_run_that_is_done(night: "Night", undisturbed: "Undisturbed", name: str) -> None:
    """The results of a done run are collected again from the journal when they are damaged, without the engine."""
    night.complete()
    path = one(night, (FILES | OF_A_DONE_RUN)[name])
    flip(path)
    if name != "the manifest":
        assert night.check().problems
    ended = night.run()
    assert ended.code == 0, ended.err
    if name in OF_A_DONE_RUN:
        assert "collected again from the journal" in ended.err
        assert night.check().problems == ()
        undisturbed.assert_whole(night)


def test_journal_that_is_gone_is_said_once(night: "Night") -> None:
    """With another --checkpoints folder check says that there is no journal, and not so for each request."""
    night.complete()
    for path in night.segments:
        path.unlink()
    (problem,) = night.check().problems
    assert "there is no journal in" in problem
