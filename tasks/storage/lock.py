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

_NAMING_S = 0.5


class RunLock:
    """Held from `with` to its end. Raises LockedError, naming the holder, when somebody else has it for `wait_s`."""

    def __init__(self, path: Path, *, wait_s: float = 0.0) -> None:
        self._path = path
        self._wait_s = wait_s
        self._fd: int | None = None

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        deadline = time.monotonic() + self._wait_s
        while not _try_lock(fd):
            if time.monotonic() >= deadline:
                os.close(fd)
                raise LockedError(f"{self._path.parent.name} is already being worked on by {_new_holder(self._path)}")
            time.sleep(0.05)
        try:
            os.ftruncate(fd, 0)
            os.write(fd, json.dumps(_myself()).encode())
        except OSError as error:
            os.close(fd)
            raise OSError(error.errno, os.strerror(error.errno or 0), str(self._path)) from error
        self._fd = fd
        return self

    def fileno(self) -> int:
        """The descriptor that holds the lock: a child that inherits it holds the lock too, until both have ended."""
        assert self._fd is not None, "the lock is not held"
        return self._fd

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
    who = _read(path)
    return f"process {who.get('pid')} on {who.get('host')} (since {who.get('since')})" if who else "another process"


def _new_holder(path: Path) -> str:
    """The holder of a lock that was taken this instant, perhaps: until it has written its name, nobody's is in the file, or
    that of a dead process."""
    deadline = time.monotonic() + _NAMING_S
    while not _is_alive(_read(path)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return holder(path)


def _read(path: Path) -> dict[str, Any]:
    try:
        who: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return who


def _is_alive(who: dict[str, Any]) -> bool:
    """Whether this process can hold a lock; of another machine's nothing is known."""
    return lives(int(who["pid"])) if who.get("host") == socket.gethostname() else bool(who)


def lives(pid: int) -> bool:
    """Whether there is such a process on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _myself() -> dict[str, object]:
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S%z")}
