"""Everything dies at one exact call: SIGKILL of the whole process group before, after or in the middle of it."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.crash.conftest import Ended, Night, Undisturbed

Faults = Mapping[str, str]
_KILLED = -9
_MOMENTS = {
    "ingest, requests half written": ("write", "/requests/", 1, "half"),
    "between plan and generate": ("rename", "/engine-0.json", 1, "before"),
    "generate, a step half written": ("write", ".journal", 20, "half"),
    "collect, failures there and results not": ("rename", "/results", 1, "before"),
    "query": ("rename", "/nightbatch.duckdb", 1, "before"),
}


@pytest.fixture
def night(night: "Night") -> "Night":
    """Without waiting: what a run dies at here is a call, and no time."""
    return replace(night, step_s=0)


def kill_at(night: "Night", faults: Faults, call: str, path: str, nth: int, side: str) -> "Ended":
    return night.run(**faults, FAULT_KILL=call, FAULT_PATH=path, FAULT_NTH=str(nth), FAULT_SIDE=side)


@pytest.mark.parametrize("moment", _MOMENTS.values(), ids=_MOMENTS)
def test_killed_in(night: "Night", undisturbed: "Undisturbed", faults: Faults, moment: tuple[str, str, int, str]) -> None:
    """Nothing half is to be seen after death at this moment, and the next start completes with the same answers."""
    assert kill_at(night, faults, *moment).code == _KILLED
    undisturbed.assert_nothing_half(night)
    night.complete()
    undisturbed.assert_whole(night)


def test_killed_with_results_written_and_the_run_not_done(
    night: "Night", undisturbed: "Undisturbed", faults: Faults
) -> None:
    """Collecting again what was collected gives the same bytes."""
    assert kill_at(night, faults, "rename", "/manifest.json", 2, "before").code == _KILLED
    undisturbed.assert_nothing_half(night)
    before = {path: path.read_bytes() for path in night.files.results.iterdir()}
    night.complete()
    undisturbed.assert_whole(night)
    assert {path: path.read_bytes() for path in night.files.results.iterdir()} == before


def test_killed_engine_gets_a_little_further_each_time(night: "Night", undisturbed: "Undisturbed", faults: Faults) -> None:
    """An engine that dies again and again, with new tokens in the journal in between, is started until all is done."""
    kill = {"FAULT_KILL": "write", "FAULT_NTH": "9", "FAULT_SIDE": "half", "FAULT_ALONE": "1"}
    ended = night.run(**faults, **kill, FAULT_PATH=".journal", FAULT_ONLY="tasks.worker")
    undisturbed.assert_nothing_half(night)
    assert ended.code == 0, ended.err
    undisturbed.assert_whole(night)


def test_killed_at_its_nth_rename(night: "Night", undisturbed: "Undisturbed", faults: Faults) -> None:
    """Each start dies at one rename later than the one before; nothing half in between, and the last one completes."""
    kept = 0
    for nth in count(1):
        ended = kill_at(night, faults, "rename", str(night.cli.home), nth, ("before", "after")[nth % 2])
        undisturbed.assert_nothing_half(night)
        if ended.code == 0:
            break
        assert ended.code == _KILLED, ended.err
        if night.segments:
            assert night.known().num_tokens >= kept, "a token that was in the journal is gone"
            kept = night.known().num_tokens
    assert nth > 6
    undisturbed.assert_whole(night)
