"""The supervisor with real children: done, stopped, dead, hung, and gone with its parent."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.core.config import EngineConfig
from tasks.core.errors import EngineError, Stopped
from tasks.engine.supervisor import Report, Supervisor
from tasks.engine.triage import Orders

SAY = "import json, os, sys, time\ndef say(**report): os.write(int(sys.argv[2]), json.dumps(report).encode() + b'\\n')\n"

Supervise = Callable[..., tuple[Supervisor, list[Report]]]


@pytest.fixture
def supervise(tmp_path: Path) -> Supervise:
    """A supervisor of a child that runs the given code, and the list of reports heard."""

    def make(code: str, **settings: Any) -> tuple[Supervisor, list[Report]]:
        heard: list[Report] = []
        command = [sys.executable, "-c", SAY + code]
        config = EngineConfig(**settings)
        return Supervisor(command, dict(os.environ), tmp_path / "engine.log", config, heard.append), heard

    return make


def test_done_child_gives_its_last_report(supervise: Supervise) -> None:
    """All reports are passed on in order, and the last one is returned."""
    supervisor, heard = supervise("say(phase='loading'); say(phase='running', generated_tokens=1); say(phase='done', n=2)")
    assert supervisor.run() == {"phase": "done", "n": 2}
    assert [report["phase"] for report in heard] == ["loading", "running", "done"]


def test_child_that_was_put_down_is_stopped(supervise: Supervise) -> None:
    """Exit code 75 is no death."""
    with pytest.raises(Stopped):
        supervise("sys.exit(75)")[0].run()


def test_dead_child_is_restarted_and_given_up_with_its_last_words(supervise: Supervise, tmp_path: Path) -> None:
    """A child that dies without progress is started max_restarts times more; the error quotes its log."""
    supervisor, heard = supervise("print('out of luck', flush=True); os.kill(os.getpid(), 9)", max_restarts=2)
    with pytest.raises(EngineError, match=r"died 3 times in a row \(killed by SIGKILL\): out of luck \(all of it: "):
        supervisor.run()
    assert [report["phase"] for report in heard] == ["restarting", "restarting"]


def test_unfit_child_is_not_tried_again(supervise: Supervise) -> None:
    """A child that says why it cannot run ends the run with that reason, at once."""
    supervisor, heard = supervise("say(phase='failed', reason='No space left on device: /x'); sys.exit(3)")
    with pytest.raises(EngineError, match="No space left on device: /x"):
        supervisor.run()
    assert [report["phase"] for report in heard] == ["failed"]


def test_progress_renews_patience(supervise: Supervise, tmp_path: Path) -> None:
    """Deaths with new tokens in between do not add up: the work gets done in the end."""
    state = tmp_path / "state"
    code = (
        f"p = {str(state)!r}; n = int(open(p).read()) if os.path.exists(p) else 0; open(p, 'w').write(str(n + 1))\n"
        "say(phase='running', generated_tokens=6 - n)\n"
        "sys.exit(0 if n == 5 else 1)"
    )
    supervisor, _ = supervise(code, max_restarts=1)
    assert supervisor.run()["generated_tokens"] == 1


def test_hung_child_is_killed_and_restarted(supervise: Supervise, tmp_path: Path) -> None:
    """A child that is alive but makes no step is found out, named, killed and started again."""
    flag = tmp_path / "flag"
    code = (
        f"p = {str(flag)!r}\nif os.path.exists(p): say(phase='done'); sys.exit(0)\n"
        "open(p, 'w'); say(phase='running', generated_tokens=1); os.kill(os.getpid(), 19)"
    )
    supervisor, heard = supervise(code, stall_timeout_s=0.6)
    supervisor.run()
    assert [report["phase"] for report in heard] == ["running", "hung", "restarting", "done"]
    assert heard[2]["reason"] == "made no step for 1 s, killed by SIGKILL"


def test_what_is_in_flight_at_two_deaths_is_held_back_and_told_apart(supervise: Supervise, tmp_path: Path) -> None:
    """The orders follow the children's word on what was admitted and what ended, up to the verdict that is written down."""
    lives = tmp_path / "lives"
    code = (
        f"p = {str(lives)!r}; n = int(open(p).read()) if os.path.exists(p) else 0; open(p, 'w').write(str(n + 1))\n"
        "admitted = [[7, 8, 9], [8, 9], [], [8], [9], []][n]\n"
        "say(phase='admitted', keys=admitted); say(phase='ended', keys=[7])\n"
        "if n in (0, 1, 3): os.kill(os.getpid(), 11)\n"
        "say(phase='done', generated_tokens=int(n < 5))"
    )
    supervisor, heard = supervise(code)
    given: list[Orders] = []
    supervisor._give_orders = given.append
    supervisor.run()
    reason = (
        "the engine died 3 times while this request was running, the last time alone: "
        "killed by SIGSEGV; its last words: it said nothing"
    )
    assert given == [
        Orders(),
        Orders(),
        Orders(held=(8, 9)),
        Orders(held=(9,)),
        Orders(held=(8,)),
        Orders(condemned={8: reason}),
    ]
    told = [report for report in heard if report["phase"] not in ("restarting", "done")]
    assert [report["phase"] for report in told] == ["suspects", "trial", "isolated", "pool"]
    assert (told[0]["keys"], told[2]["key"], told[2]["reason"]) == ((8, 9), 8, reason)


def test_last_words_are_those_of_the_child_that_died(supervise: Supervise, tmp_path: Path) -> None:
    """What an earlier child wrote to the same log is not laid in the mouth of a silent one."""
    (tmp_path / "engine.log").write_text("all is well\n")
    with pytest.raises(EngineError, match="it said nothing"):
        supervise("os.kill(os.getpid(), 9)", max_restarts=0)[0].run()


def test_interrupted_supervisor_puts_its_child_down(supervise: Supervise) -> None:
    """When the supervisor is interrupted, the child gets SIGTERM, ends its step, and is waited for."""
    code = "import signal\nsignal.signal(15, lambda *a: sys.exit(75)); say(phase='running', pid=os.getpid())\ntime.sleep(60)"
    supervisor, heard = supervise(code)

    def interrupt(report: Report) -> None:
        heard.append(report)
        raise KeyboardInterrupt

    supervisor._on_report = interrupt
    with pytest.raises(KeyboardInterrupt):
        supervisor.run()
    with pytest.raises(ProcessLookupError):
        os.kill(heard[0]["pid"], 0)


def test_child_dies_with_a_killed_supervisor(tmp_path: Path) -> None:
    """After SIGKILL of the supervisor the kernel kills the child at once."""
    child_code = (
        SAY + "from tasks.engine.child import die_with\ndie_with(int(sys.argv[1])); say(pid=os.getpid()); time.sleep(60)"
    )
    parent_code = (
        "import os, subprocess, sys\nr, w = os.pipe()\n"
        f"subprocess.Popen([sys.executable, '-c', {child_code!r}, str(os.getpid()), str(w)], pass_fds=(w,))\n"
        "print(os.read(r, 1000).decode(), flush=True)\nsys.stdin.read()"
    )
    parent = subprocess.Popen([sys.executable, "-c", parent_code], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert parent.stdout is not None and parent.stdin is not None
    child = json.loads(parent.stdout.readline())["pid"]
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    parent.stdin.close()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{child}").exists() and _state(child) != "Z" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{child}").exists() or _state(child) == "Z"


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]
    except FileNotFoundError:
        return "Z"
