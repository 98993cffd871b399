"""Asks tasks/ingest/shapes/grammar.py in a process of its own, which may use up its time, take all memory or crash.

A schema of 300 optional properties with `minProperties` 100 keeps xgrammar busy for hours. The process is started for the
first question, answers one JSON value a line, and is given up and started anew when one is too much for it.
"""

import json
import os
import resource
import select
import signal
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from threading import Lock

from tasks.core.errors import NightbatchError

MAX_CPU_S = 5
"""vLLM's own patience with a pattern."""
_MAX_MORE_BYTES = 2 << 30
_MAX_SILENCE_S = 300.0
_COMMAND = [sys.executable, "-P", "-m", "tasks.ingest.shapes.checker"]

_lock = Lock()
_process: "subprocess.Popen[str] | None" = None


@lru_cache(maxsize=256)
def problem(kind: str, spec: str) -> str | None:
    """As tasks.ingest.shapes.grammar.problem; what the compiler cannot cope with is a problem too.

    Raises NightbatchError when the process cannot be started at all, which is no row's fault.
    """
    global _process
    with _lock:
        if _process is None:
            _process = _started()
        answer = _answer(_process, json.dumps([kind, spec]))
        if answer:
            found: str | None = json.loads(answer)
            return found
        code = _put_down(_process)
        _process = None
        if code == -signal.SIGXCPU:
            return f"takes the grammar compiler more than {MAX_CPU_S} s"
        return "is more than the grammar compiler can bear"


def close() -> None:
    """End the process; the next question starts another."""
    global _process
    with _lock:
        if _process is not None:
            _put_down(_process)
        _process = None


def _started() -> "subprocess.Popen[str]":
    """A process that has answered its first question."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(_COMMAND, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
    if not _answer(process, json.dumps(["regex", "a"])):
        code = _put_down(process)
        command = " ".join(_COMMAND)
        raise NightbatchError(f"the check of structured outputs does not start (exit code {code}): see {command} </dev/null")
    return process


def _answer(process: "subprocess.Popen[str]", question: str) -> str:
    """The line that it says; empty when it died or has hung."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        print(question, file=process.stdin, flush=True)
    except BrokenPipeError:
        return ""
    is_there, _, _ = select.select([process.stdout], [], [], _MAX_SILENCE_S)
    return process.stdout.readline() if is_there else ""


def _put_down(process: "subprocess.Popen[str]") -> int:
    """End it, unless it did so itself; its exit code, negative for a signal."""
    process.kill()
    process.communicate()
    return process.returncode


def _allow_a_little_more() -> None:
    """Let the kernel end this process when it takes much more time or memory than it had until now."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + 1 + MAX_CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    if pages:
        most = pages * resource.getpagesize() + _MAX_MORE_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


def main() -> None:
    """One question a line in, one answer a line out, until there are no more."""
    for number in (signal.SIGINT, signal.SIGTERM):  # that whoever asks has heard too: it ends the questions
        signal.signal(number, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    from tasks.ingest.shapes import grammar

    grammar.problem("regex", "a")  # so that the libraries' start is not counted
    for line in sys.stdin:
        kind, spec = json.loads(line)
        _allow_a_little_more()
        print(json.dumps(grammar.problem(kind, spec)), file=answers, flush=True)


if __name__ == "__main__":
    main()
