"""Asked to stop, once or again and again, the run is put down within its step; an engine that hangs is started again."""

import os
import pty
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.crash.conftest import Night, Undisturbed

_PATIENCE_S = 2.5
_ON_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_asked_to_stop(night: "Night", undisturbed: "Undisturbed", number: signal.Signals) -> None:
    """A stop signal ends the run at once with exit code 75; nothing is lost, and status says stopped."""
    process = night.start()
    night.wait_for_tokens(process)
    worker = night.worker_of(process)
    asked = time.monotonic()
    process.send_signal(number)
    ended = night.finish(process)
    assert time.monotonic() - asked < _PATIENCE_S
    assert (ended.code, ended.out) == (75, "")
    assert "everything generated is kept" in ended.last_line
    assert not worker.is_running()
    status = night.status()
    assert (status.state, status.owner) == ("stopped", None)
    assert status.journal_tokens > 0
    undisturbed.assert_nothing_half(night)
    if number == signal.SIGTERM:
        assert night.complete()["resumed_tokens"] == status.journal_tokens
        undisturbed.assert_whole(night)


@pytest.mark.parametrize("pauses", [(0.0, 0.001, 0.01, 0.02), (0.005,) * 400], ids=["five times", "hail"])
def test_asked_to_stop_again_while_stopping(night: "Night", undisturbed: "Undisturbed", pauses: tuple[float, ...]) -> None:
    """More stop signals to the whole group, as an impatient Ctrl-C sends them, change nothing about how it is put down."""
    process = night.start()
    night.wait_for_tokens(process)
    asked = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    for pause in pauses:
        time.sleep(pause)
        if process.poll() is not None:
            break
        os.killpg(process.pid, signal.SIGINT)
        process.terminate()
    ended = night.finish(process)
    assert time.monotonic() - asked < _PATIENCE_S
    assert (ended.code, ended.out) == (75, "")
    assert "everything generated is kept" in ended.last_line
    assert "Traceback" not in ended.err
    assert night.manifest["state"] == "stopped"
    assert night.known().damages == []
    undisturbed.assert_nothing_half(night)


def test_asked_to_stop_again_while_a_step_takes_long(night: "Night") -> None:
    """A second signal does not cut the step in flight short: its tokens are in the journal when the command ends."""
    process = replace(night, step_s=0.6).start()
    night.wait_for_tokens(process, 100)
    before = night.known().num_tokens
    for _ in range(2):
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
    ended = night.finish(process)
    assert ended.code == 75
    assert night.known().num_tokens > before
    assert night.manifest["state"] == "stopped"


def test_terminal_is_closed_while_a_step_takes_long(night: "Night") -> None:
    """SIGHUP to the whole group, as a closed terminal sends it, lets the step in flight end like SIGINT does."""
    process = replace(night, step_s=0.6).start()
    night.wait_for_tokens(process, 100)
    before = night.known().num_tokens
    os.killpg(process.pid, signal.SIGHUP)
    assert night.finish(process).code == 75
    assert night.manifest["state"] == "stopped"
    assert night.known().num_tokens > before


def test_terminal_is_closed(night: "Night") -> None:
    """When its terminal goes away the run is put down like on any other stop signal."""
    terminal, inside = pty.openpty()
    command = [sys.executable, "-c", _ON_TERMINAL, *night.cli.command("run", *night.arguments)]
    process = subprocess.Popen(
        command, stdin=inside, stdout=inside, stderr=inside, start_new_session=True, cwd=night.cli.home, text=True
    )
    night.started.append(process)
    os.close(inside)
    night.wait_for_tokens(process)
    os.close(terminal)
    assert process.wait(timeout=_PATIENCE_S) == 75
    assert night.manifest["state"] == "stopped"


def test_terminal_is_closed_under_nohup(night: "Night", undisturbed: "Undisturbed") -> None:
    """A run that was started to survive its terminal does."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = night.start()
    finally:
        signal.signal(signal.SIGHUP, before)
    night.wait_for_tokens(process)
    os.killpg(process.pid, signal.SIGHUP)
    ended = night.finish(process)
    assert ended.code == 0, ended.err
    undisturbed.assert_whole(night)


@pytest.fixture
def impatient(night: "Night") -> "Night":
    """Its engine may take a second for a step."""
    return replace(night, step_s=0.03, extra=("--stall-timeout-s", "1"))


def test_engine_stands_still(impatient: "Night", undisturbed: "Undisturbed") -> None:
    """An engine child that makes no step any more is named, killed and replaced, and the run completes."""
    process = impatient.start()
    impatient.wait_for_tokens(process, 3000)  # so that it has reported a step: starting may take longer than a step
    worker = impatient.worker_of(process)
    worker.suspend()
    ended = impatient.finish(process)
    assert ended.code == 0, ended.err
    assert "no step" in ended.err
    assert "killed by SIGKILL" in ended.err
    assert "resuming" in ended.err
    assert not worker.is_running()
    undisturbed.assert_whole(impatient)


def test_suspended_and_continued(impatient: "Night", undisturbed: "Undisturbed") -> None:
    """A run that is suspended with all its processes for long (Ctrl-Z, fg) goes on with the engine that it has."""
    process = impatient.start()
    impatient.wait_for_tokens(process, 3000)
    worker = impatient.worker_of(process)
    worker.suspend()
    time.sleep(0.3)  # what it has reported is heard
    process.send_signal(signal.SIGSTOP)
    time.sleep(1.2)
    os.killpg(process.pid, signal.SIGCONT)
    ended = impatient.finish(process)
    assert ended.code == 0, ended.err
    undisturbed.assert_whole(impatient)
    assert "starting it again" not in ended.err
