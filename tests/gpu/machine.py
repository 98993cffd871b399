"""A stub card with an operator's settings, and processes that own it: to kill, to stop and to look at afterwards."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tasks.governor.lease import lease_path, read_lease
from tests.gpu.stub import Stub

BEFORE_MW = 650_000
"""An operator's limit, and not the default."""
_FACTORY = "tasks.governor.helper:open_card"
_OWNER = """
import random, sys, time
from pathlib import Path
from tasks.core.errors import NightbatchError
from tasks.governor.nvml import NvmlDevice
from tasks.governor.owned import OwnedDevice
uuid, directory, factory, how, seed, period_s = sys.argv[1:]
dice = random.Random(int(seed))
try:
    with OwnedDevice(NvmlDevice(uuid), Path(directory), factory, period_s=float(period_s), wait_s=0.5) as card:
        print(card.found or "free", flush=True)
        if how == "hold":
            card.set_power_limit(400.0), card.lock_clock(1200), print("held", flush=True)
        while how in ("write", "hold"):
            card.beat(), card.read()
            if how == "write":
                (card.set_power_limit if dice.random() < 0.5 else card.lock_clock)(dice.randrange(400, 640))
            time.sleep(dice.uniform(0, 0.01))
        if how != "start":
            card.set_power_limit(400.0), card.lock_clock(1200)
        if how == "raise":
            raise KeyError("a mistake of ours")
except NightbatchError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""
_RESTORE = """
import sys
from pathlib import Path
from tasks.governor.nvml import NvmlDevice
from tasks.governor.restore import restore_all
done = restore_all(Path(sys.argv[1]), NvmlDevice)
print("\\n".join(f"{one.outcome}: {one}" for one in done))
sys.exit(any(one.failed for one in done))
"""


@dataclass
class Machine:
    """A stub card with an operator's limit, a state directory, and processes that own the card."""

    stub: Stub
    state: Path
    started: "list[subprocess.Popen[str]]" = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stub.card.requested_mw = BEFORE_MW

    @property
    def uuid(self) -> str:
        return bytes(self.stub.card.uuid).decode()

    @property
    def lease(self) -> Path:
        return lease_path(self.state, self.uuid)

    @property
    def settings(self) -> tuple[int, int]:
        """Power limit in mW, highest clock in MHz or 0."""
        return self.stub.card.requested_mw, self.stub.card.lock_max_mhz

    @property
    def is_as_before(self) -> bool:
        return self.settings == (BEFORE_MW, 0)

    def own(
        self, how: str = "write", *, seed: int = 0, period_s: float = 1.0, env: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[str]":
        """A process that owns the card: it may write at random, hold one setting, end, raise, or only start."""
        arguments = (self.uuid, str(self.state), _FACTORY, how, str(seed), str(period_s))
        return self._python(_OWNER, *arguments, env=env)

    def hold(self, **given: Any) -> "subprocess.Popen[str]":
        """An owner that has set limit and clock."""
        owner = self.own("hold", **given)
        assert owner.stdout is not None
        assert [owner.stdout.readline() for _ in range(2)] == ["free\n", "held\n"]
        assert self.settings == (400_000, 1200)
        return owner

    def restore(self) -> tuple[int, str]:
        """What `nightbatch power restore` does; its exit code and words."""
        process = self._python(_RESTORE, str(self.state))
        out, err = process.communicate(timeout=30)
        assert err == ""
        return process.returncode, out

    def guard_of(self, owner: "subprocess.Popen[str]") -> psutil.Process:
        (guard,) = [child for child in psutil.Process(owner.pid).children() if "tasks.governor.guard" in child.cmdline()]
        return guard

    def kill_with_guard(self, owner: "subprocess.Popen[str]") -> None:
        """Both at once, as when a container ends; the owner must not find the time for another guard."""
        os.killpg(owner.pid, signal.SIGSTOP)
        self.guard_of(owner).kill()
        self.kill(owner)

    def kill(self, owner: "subprocess.Popen[str]") -> float:
        """SIGKILL of the whole process group; when that was."""
        os.killpg(owner.pid, signal.SIGKILL)
        when = time.monotonic()
        owner.wait()
        return when

    def wait_until(self, condition: Callable[[], object], timeout_s: float = 10.0) -> float:
        """When the condition held."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, (self.settings, self.started[-1].poll())
            time.sleep(0.0002)
        return time.monotonic()

    def wait_until_restored(self) -> float:
        """When the card was as before. A lease under which nothing was changed yet may stay: there was no guard yet."""
        when = self.wait_until(lambda: self.is_as_before)
        self.wait_until(lambda: (lease := read_lease(self.lease)) is None or lease.is_untouched)
        return when

    def close(self) -> None:
        """Kill what still lives of the processes, and take the card away."""
        for process in self.started:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        self.stub.close()

    def _python(self, code: str, *arguments: str, env: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
        environment = os.environ | self.stub.environment | dict(env or {})
        command = [sys.executable, "-P", "-c", code, *arguments]
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.started.append(subprocess.Popen(command, env=environment, text=True, start_new_session=True, **pipes))
        return self.started[-1]
