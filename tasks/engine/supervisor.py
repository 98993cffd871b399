"""Supervisor: runs an engine child, watches its reports, restarts it when it dies or hangs.

A child that ends with 0 has done all that its orders allow, with STOPPED it was put down, with UNFIT it has reported why
trying again is of no use; anything else is a death. What the next child may run after one, and when to give up, is decided
in triage.py from what was in flight. Everything journaled is kept.
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
from tasks.engine.death import how_it_died, oom_kills
from tasks.engine.triage import Orders, Phase, Triage

STOPPED = 75
UNFIT = 3
_GRACE_S = 20.0
_LOOK_EVERY_S = 0.5
_MAX_PIPE_READ = 65_536

Report = Mapping[str, Any]


class Supervisor:
    """`command` gets two more arguments: this process's id and the descriptor to report on. `give_orders` is called before
    each start of a child with what this one is to do. When `reason_to_stop` gives one, the child is put down for it."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        config: EngineConfig,
        on_report: Callable[[Report], None],
        give_orders: Callable[[Orders], None] = lambda orders: None,
        reason_to_stop: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._command = command
        self._environment = environment
        self._log = log
        self._config = config
        self._on_report = on_report
        self._give_orders = give_orders
        self._reason_to_stop = reason_to_stop
        self._last: Report = {}
        self._in_flight: dict[int, None] = {}
        self._stalled_s: float | None = None
        self._log_start = 0
        self._obituary = ""
        self._oom_kills: int | None = None

    def run(self) -> Report:
        """Until the work is done; the child's last report. Raises EngineError when the engine cannot be kept alive, and
        Stopped when the child was put down by somebody else."""
        triage = Triage(self._config.max_restarts)
        while triage.phase is not Phase.DONE:
            if triage.phase is Phase.BROKEN:
                raise EngineError(f"the engine died {triage.deaths} times in a row {self._obituary}")
            self._announce_phase(triage)
            self._give_orders(triage.orders)
            code = self._run_once()
            if code == STOPPED:
                raise Stopped("the engine was asked to stop; everything generated so far is kept")
            if code == UNFIT:
                raise EngineError(f"{self._last.get('reason', 'the engine cannot run')} (log: {self._log})")
            if code == 0:
                triage = triage.after_end(new_tokens=self._has_new_tokens)
            else:
                triage = self._after_death(triage, self._how(code))
        return self._last

    @property
    def _has_new_tokens(self) -> bool:
        return bool(self._last.get("generated_tokens"))

    def _after_death(self, before: Triage, how: str) -> Triage:
        words = self._last_words()
        after = before.after_death(
            list(self._in_flight), new_tokens=self._has_new_tokens, how=f"{how}; its last words: {words}"
        )
        words += f" (all of it: {self._log})"
        self._obituary = f"({how}): {words}"
        if after.phase is not Phase.BROKEN:
            self._on_report({"phase": "restarting", "reason": how, "last_words": words})
        if before.phase is Phase.REST and (named := after.suspects[len(before.suspects) :]):
            self._on_report({"phase": "suspects", "reason": how, "keys": named})
        for key in after.pending.keys() - before.pending.keys():
            self._on_report({"phase": "isolated", "key": key, "reason": after.pending[key]})
        return after

    def _announce_phase(self, triage: Triage) -> None:
        if triage.running:
            self._on_report({"phase": triage.phase.value, "keys": triage.running, "held": triage.orders.held})
        elif triage.phase is Phase.PROBE:
            self._on_report({"phase": triage.phase.value})

    def _run_once(self) -> int:
        """One child from start to end; its exit code, negative for a signal as in subprocess."""
        self._last, self._in_flight, self._stalled_s, self._oom_kills = {}, {}, None, oom_kills()
        read_end, write_end = os.pipe()
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._log_start = log.tell()
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
        pending, patience = b"", self._config.start_timeout_s
        heard = looked = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(read_end, selectors.EVENT_READ)
            while True:
                ready = selector.select(timeout=_LOOK_EVERY_S if self._stalled_s is None else 0)
                before, looked = looked, time.monotonic()
                if (reason := self._reason_to_stop()) is not None:
                    raise EngineError(f"{reason}; everything generated so far is kept")
                if looked - before > 2 * _LOOK_EVERY_S:  # suspended, and the child with us: its silence means nothing
                    heard = looked
                if ready:
                    data = os.read(read_end, _MAX_PIPE_READ)
                    if not data:
                        return child.wait()
                    *lines, pending = (pending + data).split(b"\n")
                    for line in lines:
                        patience = self._hear(json.loads(line))
                    heard = looked
                elif self._stalled_s is not None:
                    return child.wait()
                elif looked - heard > patience:
                    self._on_report({"phase": "hung", "reason": f"no step for {patience:.0f} s"})
                    self._stalled_s = patience
                    child.kill()
                    child.wait()

    def _hear(self, report: Report) -> float:
        """Take a report in or pass it on; how long the next one may take, in seconds."""
        match report["phase"]:
            case "admitted":
                self._in_flight |= dict.fromkeys(report["keys"])
                return self._config.stall_timeout_s
            case "ended":
                for key in report["keys"]:
                    self._in_flight.pop(key, None)
                return self._config.stall_timeout_s
            case "paused":  # all in flight is kept; its report before that counts
                self._on_report(report)
                return self._config.stall_timeout_s
            case "running" | "done" | "failed":
                self._last, self._oom_kills = report, oom_kills()
        self._on_report(report)
        return self._config.stall_timeout_s if report["phase"] == "running" else self._config.start_timeout_s

    def _how(self, code: int) -> str:
        """How the child died; the kernel's count is compared with that at the child's last step."""
        before, now = self._oom_kills, oom_kills()
        return how_it_died(code, out_of_memory=(now or 0) > (before or 0), stalled_s=self._stalled_s)

    def _last_words(self) -> str:
        """The last line that this child wrote to its log, which a person can start from."""
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


def _put_down(child: "subprocess.Popen[bytes]") -> None:
    """End a child that may still live: ask, wait for the step in flight, then insist."""
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
