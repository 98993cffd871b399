"""RunLock: one writer per run.

The kernel holds the lock (flock), so it ends with its holder however that dies: no time-out, no stale lock to judge. The
file's text only names the holder for people.
"""

import fcntl
import json
import os
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tasks.core.errors import LockedError


class RunLock:
    """Held from `with` to its end. Raises LockedError, naming the holder, when somebody else has it for `wait_s`."""

    def __init__(self, path: Path, *, wait_s: float = 0.0) -> None:
        self._path = path
        self._wait_s = wait_s
        self._fd: int | None = None

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline = time.monotonic() + self._wait_s
        while not _try_lock(fd):
            if time.monotonic() >= deadline:
                os.close(fd)
                raise LockedError(f"{self._path.parent.name} is already being worked on by {holder(self._path)}")
            time.sleep(0.05)
        os.ftruncate(fd, 0)
        os.write(fd, json.dumps(_myself()).encode())
        self._fd = fd
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None


def is_locked(path: Path) -> bool:
    """Whether a live process holds the lock now."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(fd)
    finally:
        os.close(fd)


def holder(path: Path) -> str:
    """Who holds the lock, as text for people: process id, machine, start time."""
    try:
        who: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return "another process"
    return f"process {who.get('pid')} on {who.get('host')} (since {who.get('since')})"


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _myself() -> dict[str, object]:
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S%z")}
