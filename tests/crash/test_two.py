"""Two processes on one run, at once or one behind the other: one works, the other is told who, and no lock stays behind."""

import os
import signal
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.crash.conftest import Night, Undisturbed


def test_started_while_the_run_is_worked_on(night: "Night", undisturbed: "Undisturbed") -> None:
    """While one process works on a run, another that would do the same is refused and told who has it."""
    process = night.start()
    night.wait_for_tokens(process, 200)
    second = night.run()
    assert second.code == 75
    assert f"process {process.pid} " in second.err
    assert night.finish(process).code == 0
    undisturbed.assert_whole(night)


@pytest.mark.parametrize("pair", range(5))
def test_started_at_the_same_instant(night: "Night", undisturbed: "Undisturbed", pair: int) -> None:
    """Of two processes that start together exactly one works, the other ends with 75 and its id, and the run is whole."""
    both = [night.start(), night.start()]
    ended = [night.finish(process) for process in both]
    assert sorted(one.code for one in ended) == [0, 75], [one.err for one in ended]
    winner = [one.code for one in ended].index(0)
    assert f"process {both[winner].pid} " in ended[1 - winner].last_line
    undisturbed.assert_whole(night)


def test_lock_file_left_by_a_dead_process(night: "Night", undisturbed: "Undisturbed") -> None:
    """After SIGKILL the lock's text still names the dead process; the next start takes the lock without waiting."""
    process = night.start()
    night.wait_for_tokens(process, 200)
    os.killpg(process.pid, signal.SIGKILL)
    night.finish(process)
    assert str(process.pid) in night.files.lock.read_text()
    again = night.start()
    began = time.monotonic()
    night.wait_for(lambda: str(again.pid) in night.files.lock.read_text(), again)
    assert time.monotonic() - began < 3
    assert night.finish(again).code == 0
    undisturbed.assert_whole(night)


def test_started_while_the_old_engine_still_lives(
    night: "Night", undisturbed: "Undisturbed", faults: Mapping[str, str]
) -> None:
    """After SIGKILL of the command alone the next start waits for its engine to be gone, and keeps what it had written."""
    process = night.start(**faults, FAULT_ORPHAN="1")
    night.wait_for_tokens(process)
    worker = night.worker_of(process)
    worker.suspend()
    process.kill()
    again = night.start()
    second = night.worker_of(again)
    assert worker.is_running()
    before = night.journal_bytes()
    worker.resume()
    night.finish(process)
    ended = night.finish(again)
    assert ended.code == 0, ended.err
    assert "tokens found in the journal" in ended.err
    assert second.pid != worker.pid
    assert not night.lives(worker)
    assert night.segments[0].stat().st_size >= before
    undisturbed.assert_whole(night)
