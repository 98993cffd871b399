"""Goal 22: a card's settings after the sudden death of whoever changed them, on the stub driver, with real processes.

An owner writes limits and clocks at random moments and is ended at a random moment: its process group killed, or stopped,
or killed together with its guard. Measured is the time from the signal until limit and clock are what they were before, and
for comparison that of a process which restores in `atexit`, which SIGKILL prevents. Not a timed test: run by hand.
"""

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.rig import Interval, interval, record, result
from tests.gpu.machine import BEFORE_MW, Machine
from tests.gpu.stub import Stub

NAME = "restore"
_PERIOD_S = 1.0
_ATEXIT = """
import atexit, pynvml as n, time
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
atexit.register(n.nvmlDeviceSetPowerManagementLimit, h, n.nvmlDeviceGetPowerManagementLimit(h))
n.nvmlDeviceSetPowerManagementLimit(h, 300000)
time.sleep(60)
"""


def changed(machine: Machine, dice: random.Random, period_s: float = _PERIOD_S) -> "subprocess.Popen[str]":
    """An owner that has changed the card, at a random moment after."""
    while True:
        owner = machine.own(seed=dice.randrange(1 << 30), period_s=period_s)
        machine.wait_until(lambda: not machine.is_as_before)
        time.sleep(dice.uniform(0, 0.1))
        if not machine.is_as_before:
            return owner
        machine.kill(owner)
        machine.wait_until_restored()


def killed(machine: Machine, dice: random.Random) -> float:
    """SIGKILL of the owner's process group; ms until the card is as before."""
    at = machine.kill(changed(machine, dice))
    return 1e3 * (machine.wait_until_restored() - at)


def stopped(machine: Machine, dice: random.Random) -> float:
    """SIGSTOP of the group; s until the card is as before, and it must still be when the owner has gone on."""
    owner = changed(machine, dice)
    at = time.monotonic()
    os.killpg(owner.pid, signal.SIGSTOP)
    restored = machine.wait_until_restored()
    os.killpg(owner.pid, signal.SIGCONT)
    owner.communicate()
    assert machine.is_as_before
    return restored - at


def killed_with_guard(machine: Machine, dice: random.Random) -> bool:
    """Owner and guard at once; whether the command to restore puts the card back."""
    machine.kill_with_guard(changed(machine, dice))
    assert not machine.is_as_before
    return machine.restore()[0] == 0 and machine.is_as_before


def killed_with_atexit(machine: Machine) -> bool:
    """The usual way; whether the card is as before half a second after SIGKILL."""
    environment = os.environ | machine.stub.environment
    process = subprocess.Popen([sys.executable, "-c", _ATEXIT], env=environment)
    machine.wait_until(lambda: not machine.is_as_before)
    process.kill()
    process.wait()
    time.sleep(0.5)
    found, machine.stub.card.requested_mw = machine.is_as_before, BEFORE_MW
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    dice = random.Random(22)
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Stub(Path(folder)), Path(folder) / "leases")
        kills = [killed(machine, dice) for _ in range(given.kills)]
        stops = [stopped(machine, dice) for _ in range(given.kills // 5)]
        both = [killed_with_guard(machine, dice) for _ in range(given.kills // 5)]
        atexit = [killed_with_atexit(machine) for _ in range(5)]
        machine.close()
    told = f"killed: {summary(kills)} ms; stopped: {summary(stops)} s; with guard {sum(both)}/{len(both)}; atexit {atexit}"
    sys.stdout.write(f"{told}\n")
    if given.record:
        write_down(kills, stops, both, atexit)


def summary(values: list[float]) -> str:
    return f"{interval(values)}, at most {max(values):.3f} (n={len(values)})"


def write_down(kills: list[float], stops: list[float], both: list[bool], atexit: list[bool]) -> None:
    late_s = 2 * _PERIOD_S + 0.05
    record(
        [
            result(
                NAME, "22", "ms from SIGKILL of the owner's group to the old limits, worst", _worst(kills),
                f"all {len(kills)} restored within 2 periods", max(kills) < 2e3 * _PERIOD_S,
                median_ms=statistics.median(kills), n=len(kills), restored_by_atexit=f"{sum(atexit)} of {len(atexit)}",
            ),
            result(
                NAME, "22", "s from SIGSTOP of the owner's group to the old limits, worst", _worst(stops),
                f"2 periods of {_PERIOD_S:g} s, and 50 ms", max(stops) < late_s,
                median_s=statistics.median(stops), n=len(stops),
            ),
            result(
                NAME, "22", "share restored by the command, owner and guard killed", sum(both) / len(both), "1", all(both),
                n=len(both),
            ),
        ]
    )  # fmt: skip


def _worst(values: list[float]) -> Interval:
    return Interval(max(values), min(values), max(values))


if __name__ == "__main__":
    main()
