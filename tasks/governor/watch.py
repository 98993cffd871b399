"""The owner's end of its guard: starts it, waits until it is armed, beats the heart, and hears whether it has acted."""

import select
import socket
import subprocess
import sys
from contextlib import suppress
from enum import Enum
from pathlib import Path

from tasks.governor.device import CardError
from tasks.governor.guard import ACTING, ARMED, log_path

_COMMAND = (sys.executable, "-P", "-m", "tasks.governor.guard")
_START_S = 15.0
_MAX_LOG_BYTES = 1 << 16


class Sight(Enum):
    """What can be seen of a guard."""

    ON_WATCH = "on watch"
    ACTING = "has put the card back, or is about to"
    GONE = "has ended, and not by itself"


class Watch:
    """One guard, armed when the constructor returns. It shares the lock with the descriptor `lock_fd`, and pauses the engine
    whose `limit` that is. Raises CardError when it cannot be had."""

    def __init__(
        self, path: Path, token: str, lock_fd: int, factory: str, stale_s: float, limit: Path | None = None
    ) -> None:
        self._sight = Sight.ON_WATCH
        self._socket, theirs = socket.socketpair()
        arguments = (str(path), token, factory, repr(stale_s), *([str(limit)] if limit else []))
        try:
            self._process = _start(theirs, lock_fd, arguments, log_path(path))
        except OSError as error:
            self._socket.close()
            raise CardError(f"no guard could be started, so the card is left alone: {error}") from error
        finally:
            theirs.close()
        try:
            self._wait_until_armed(log_path(path))
        except BaseException:
            self._process.kill()
            self.release(_START_S)
            raise
        self._socket.setblocking(False)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def beat(self) -> None:
        """A sign of life; where the guard does not take it, sight() says why."""
        with suppress(OSError):
            self._socket.send(b".")

    def sight(self) -> Sight:
        """What the guard does, now."""
        if self._sight is Sight.ON_WATCH:
            with suppress(BlockingIOError):
                self._sight = Sight.ACTING if self._hear() == ACTING else Sight.GONE
        return self._sight

    def release(self, wait_s: float) -> bool:
        """Let it go: it puts back what a lease still says, and ends. Whether it has within `wait_s`; may be asked again."""
        self._sight = Sight.ACTING
        self._socket.close()
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _wait_until_armed(self, log: Path) -> None:
        ready, _, _ = select.select([self._socket], [], [], _START_S)
        if not ready:
            raise CardError(f"the guard was not armed within {_START_S:g} s, so the card is left alone (log: {log})")
        if self._hear() != ARMED:
            raise CardError(f"the guard could not be armed, so the card is left alone: {_last_line(log)}")

    def _hear(self) -> bytes:
        with suppress(ConnectionError):
            return self._socket.recv(1)
        return b""


def _start(theirs: socket.socket, lock_fd: int, arguments: tuple[str, ...], log_path: Path) -> "subprocess.Popen[bytes]":
    mode = "ab" if log_path.exists() and log_path.stat().st_size < _MAX_LOG_BYTES else "wb"
    with log_path.open(mode) as log:
        return subprocess.Popen(
            [*_COMMAND, str(theirs.fileno()), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(theirs.fileno(), lock_fd),
            start_new_session=True,
        )


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
