"""One writer per run, and no stale locks."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tasks.core.errors import LockedError
from tasks.storage.lock import RunLock, is_locked


def test_second_holder_is_refused_and_told_of_the_first(tmp_path: Path) -> None:
    """The error names the run and the process that holds it."""
    path = tmp_path / "run-1" / "lock"
    with RunLock(path), pytest.raises(LockedError, match=rf"run-1 .* process {os.getpid()} "), RunLock(path):
        pass


def test_lock_is_free_after_use(tmp_path: Path) -> None:
    """Leaving the block frees the lock, and it can be taken again."""
    path = tmp_path / "lock"
    assert not is_locked(path)
    for _ in range(2):
        with RunLock(path):
            assert is_locked(path)
    assert not is_locked(path)


def test_lock_follows_no_link(tmp_path: Path) -> None:
    """A link in the lock's place does not make its holder empty another file."""
    (tmp_path / "other").write_text("precious")
    (tmp_path / "lock").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links"), RunLock(tmp_path / "lock"):
        pass
    assert (tmp_path / "other").read_text() == "precious"


def test_lock_ends_with_a_killed_holder(tmp_path: Path) -> None:
    """SIGKILL of the holder frees the lock at once: there is nothing to time out."""
    path = tmp_path / "lock"
    code = (
        "from pathlib import Path; from tasks.storage.lock import RunLock\n"
        f"with RunLock(Path({str(path)!r})): print(1, flush=True); input()"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert child.stdout is not None and child.stdin is not None
    child.stdout.readline()
    assert is_locked(path)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    child.stdin.close()
    with RunLock(path):
        pass


def test_refusal_names_the_one_who_has_just_taken_it(tmp_path: Path) -> None:
    """While the holder has not yet written its name over a dead one's, the refused wait for that."""
    path = tmp_path / "run-1" / "lock"
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    with RunLock(path):
        mine = path.read_text()
        path.write_text(mine.replace(str(os.getpid()), str(dead.pid)))
        timer = threading.Timer(0.1, path.write_text, [mine])
        timer.start()
        with pytest.raises(LockedError, match=f"process {os.getpid()} "), RunLock(path):
            pass
        timer.join()
