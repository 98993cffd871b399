"""The governor's process as its parent sees it: told of the engine, heard, and started again when it dies.

While none runs, the engine's limit falls back to a pause by itself, where there is a card.
"""

import json
import logging
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_log = logging.getLogger(__name__)

MAX_DEATHS = 3
_ENDS_S = 20.0
"""For putting the card back and writing the last rows."""

News = Mapping[str, Any]


class Beside:
    """Runs the command while the block lasts. `on_news` hears each line that it says, from a thread; `on_broken` once, when
    it has died too often and the card is no longer governed."""

    def __init__(
        self, command: Sequence[str], log: Path, on_news: Callable[[News], None], on_broken: Callable[[str], None]
    ) -> None:
        self._command, self._log_path = command, log
        self._on_news, self._on_broken = on_news, on_broken
        self._child: subprocess.Popen[bytes] | None = None
        self._listener: threading.Thread | None = None
        self._deaths = 0
        self._is_ending = False
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def tell(self, report: Mapping[str, Any]) -> None:
        """Pass a report of the engine on. A governor that does not read loses it, and a dead one too."""
        line = json.dumps(report).encode() + b"\n"
        with self._lock:
            if self._child is None or self._child.stdin is None or len(line) > 4096:
                return
            try:
                os.write(self._child.stdin.fileno(), line)  # the pipe is not blocking, and takes 4 kB whole or not at all
            except (BlockingIOError, BrokenPipeError):
                return

    def close(self) -> None:
        """End it: it puts the card back. One that hangs is killed, and its guard does it."""
        with self._lock:
            self._is_ending, child = True, self._child
            if child is None:
                return
            if child.stdin is not None:
                child.stdin.close()
        try:
            child.wait(_ENDS_S)
            if self._listener is not None:
                self._listener.join(_ENDS_S)
        except subprocess.TimeoutExpired:
            _log.warning("the governor did not end within %.0f s and is killed", _ENDS_S)
            child.kill()
            child.wait()

    def _start(self) -> None:
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        with self._log_path.open("ab") as log:
            child = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        if child.stdin is not None:
            os.set_blocking(child.stdin.fileno(), False)
        self._child = child
        self._listener = threading.Thread(target=self._listen, args=(child,), name="governor", daemon=True)
        self._listener.start()

    def _listen(self, child: "subprocess.Popen[bytes]") -> None:
        """Until its stdout ends; then begin another, unless this is the end."""
        with child.stdout or nullcontext(()) as lines:
            for line in lines:
                try:
                    self._on_news(json.loads(line))
                except ValueError:
                    _log.warning("the governor said: %s", line.decode(errors="replace").strip())
        code = child.wait()
        with self._lock:
            if self._is_ending:
                return
            if child.stdin is not None:
                child.stdin.close()
            self._deaths += 1
            if self._deaths < MAX_DEATHS:
                _log.warning("the governor died (%d) and is started again; its log: %s", code, self._log_path)
                time.sleep(0.1 * self._deaths)
                self._start()
                return
            self._child = None
        self._on_broken(f"the governor died {self._deaths} times (log: {self._log_path})")
