"""Supervisor: runs an engine child, watches its reports, restarts it when it dies or hangs.

A child that ends with 0 is done, with STOPPED it was put down, with UNFIT it has reported why trying again is of no use;
anything else is a death. Deaths in a row without a new token in between are counted; past `max_restarts` of them the run
fails. Everything journaled is kept.
"""

import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.core.config import EngineConfig
from tasks.core.errors import EngineError, Stopped

STOPPED = 75
UNFIT = 3
_GRACE_S = 20.0
_MAX_PIPE_READ = 65_536

Report = Mapping[str, Any]


class Supervisor:
    """`command` gets two more arguments: this process's id and the descriptor to report on."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        config: EngineConfig,
        on_report: Callable[[Report], None],
    ) -> None:
        self._command = command
        self._environment = environment
        self._log = log
        self._config = config
        self._on_report = on_report
        self._last: Report = {}

    def run(self) -> Report:
        """Until the work is done; the child's last report. Raises EngineError when the engine cannot be kept alive, and
        Stopped when the child was put down by somebody else."""
        deaths = 0
        while True:
            self._last = {}
            code = self._run_once()
            if code == 0:
                return self._last
            if code == STOPPED:
                raise Stopped("the engine was asked to stop; everything generated so far is kept")
            if code == UNFIT:
                raise EngineError(f"{self._last.get('reason', 'the engine cannot run')} (log: {self._log})")
            deaths = 1 if self._last.get("generated_tokens") else deaths + 1
            if deaths > self._config.max_restarts:
                raise EngineError(f"the engine died {deaths} times in a row ({_how(code)}): {self._last_words()}")
            self._on_report({"phase": "restarting", "reason": _how(code), "last_words": self._last_words()})

    def _run_once(self) -> int:
        """One child from start to end; its exit code, negative for a signal as in subprocess."""
        read_end, write_end = os.pipe()
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            child = subprocess.Popen(
                [*self._command, str(os.getpid()), str(write_end)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(self._environment),
                pass_fds=(write_end,),
            )
        os.close(write_end)
        try:
            return self._watch(child, read_end)
        finally:
            os.close(read_end)
            _put_down(child)

    def _watch(self, child: "subprocess.Popen[bytes]", read_end: int) -> int:
        pending, heard, patience = b"", time.monotonic(), self._config.start_timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(read_end, selectors.EVENT_READ)
            while True:
                if selector.select(timeout=0.5):
                    data = os.read(read_end, _MAX_PIPE_READ)
                    if not data:
                        return child.wait()
                    *lines, pending = (pending + data).split(b"\n")
                    for line in lines:
                        patience = self._hear(json.loads(line))
                    heard = time.monotonic()
                elif time.monotonic() - heard > patience:
                    self._on_report({"phase": "hung", "reason": f"no step for {patience:.0f} s"})
                    child.kill()
                    return child.wait()

    def _hear(self, report: Report) -> float:
        """Pass a report on; how long the next one may take, in seconds."""
        if report["phase"] in ("running", "done", "failed"):
            self._last = report
        self._on_report(report)
        return self._config.stall_timeout_s if report["phase"] == "running" else self._config.start_timeout_s

    def _last_words(self) -> str:
        """The end of the child's log, which a person can start from."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return f"{lines[-1] if lines else 'it said nothing'} (all of it: {self._log})"


def _put_down(child: "subprocess.Popen[bytes]") -> None:
    """End a child that may still live: ask, wait for the step in flight, then insist."""
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _how(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
