"""How an engine child died, in words; and whether the kernel's out-of-memory killer did it."""

import signal
from pathlib import Path

_VMSTAT = Path("/proc/vmstat")


def how_it_died(code: int, *, out_of_memory: bool = False, stalled_s: float | None = None) -> str:
    """An exit code as subprocess has it, negative for a signal; `stalled_s` is how long a hung child made no step."""
    words = f"killed by {_signal_name(-code)}" if code < 0 else f"exit code {code}"
    if stalled_s is not None:
        return f"made no step for {stalled_s:.0f} s, {words}"
    return f"{words} (the kernel was out of memory)" if out_of_memory and code == -signal.SIGKILL else words


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def parse_oom_kills(vmstat: str) -> int | None:
    """How many processes the kernel has killed for want of memory, from the text of /proc/vmstat; None if it says not."""
    for line in vmstat.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.strip().isdigit():
            return int(value)
    return None


def oom_kills() -> int | None:
    """The kernel's count now, of all processes on the machine; None where there is none (old kernels, not Linux)."""
    try:
        return parse_oom_kills(_VMSTAT.read_text())
    except OSError:
        return None
