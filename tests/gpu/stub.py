"""The stub driver from the outside: builds its library, owns the mapped state, breaks what a test wants broken.

    with Stub(folder) as stub:                      # one card, as an H100 at rest
        subprocess.run(command, env=os.environ | stub.environment)
        stub.calls                                  # who has set what, oldest first

A process sees the cards if `environment` was set before its interpreter started. layout.py says what the state holds.
"""

import mmap
import shutil
import subprocess
from collections.abc import Sequence
from ctypes import sizeof
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.gpu.layout import MAGIC, NUM_CALLS, VERSION, Call, Card, State, header

SOURCE = Path(__file__).with_name("stub.c")
NAME = "libnvidia-ml.so.1"
LOST, RESET_REQUIRED = 15, 16
_SIZE = sizeof(State)

H100 = {
    "name": b"NVIDIA H100 80GB HBM3",
    "memory_bytes": 80 << 30,
    "memory_clock_mhz": 2619,
    "clocks_mhz": tuple(range(345, 1981, 15)),
    "default_mw": 700_000,
    "min_mw": 200_000,
    "max_mw": 700_000,
    "threshold_shutdown_c": 95,
    "threshold_slowdown_c": 89,
    "threshold_memory_c": 95,
    "threshold_gpu_c": 87,
    "tlimit": 1,
    "gpm": 1,
    "persistence": 1,
    "links": 18,
    "temperature_c": 36,
    "memory_temperature_c": 45,
    "margin_c": 51,
    "power_mw": 71_000,
    "instant_mw": 70_000,
    "energy_mj": 1_000_000,
    "sm_clock_mhz": 345,
    "memory_clock_now_mhz": 2619,
    "memory_used_bytes": 600 << 20,
    "reasons": 1,
    "pcie_generation": 5,
    "pcie_width": 16,
    "links_active": 18,
}
"""A card at rest: limits of a public dump of nvidia-smi on driver 545, 36 °C at 71 W of another (gpu-power-notes 4)."""


@dataclass(frozen=True)
class SetCall:
    """A call that set something, or tried to: `code` 0 is that it did. Times in seconds of the monotonic clock."""

    name: str
    card: int
    arguments: tuple[int, int]
    code: int
    process: int
    time_s: float


class CompilerMissingError(Exception):
    """There is no C compiler (cc) to build the stub driver with."""


def build(folder: Path, without: Sequence[str] = ()) -> Path:
    """The library in the folder; an old driver's has not the functions `without`. It has no SONAME: a process that has
    loaded it by its path can still find a real one by its name. Raises CompilerMissingError."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise CompilerMissingError("no C compiler (cc) to build the stub driver with")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "layout.h").write_text(header())
    hidden = "".join(f"{name}; " for name in without)
    (folder / "symbols").write_text("{ global: nvml*; local: " + hidden + "*; };\n")
    command = [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{folder}"]
    command += [f"-Wl,--version-script={folder / 'symbols'}", "-o", str(folder / NAME), str(SOURCE)]
    subprocess.run(command, check=True)
    return folder / NAME


class Stub:
    """Cards of a driver that is not there, in a folder. Each of `cards` says in what it differs from H100."""

    def __init__(self, folder: Path, cards: Sequence[dict[str, Any]] = ({},), *, library: Path | None = None) -> None:
        self.library = build(folder) if library is None else library
        self.path = folder / "state"
        self.path.write_bytes(b"")
        with self.path.open("r+b") as file:
            file.truncate(_SIZE)
            self.state = State.from_buffer(mmap.mmap(file.fileno(), _SIZE))
        self.state.version, self.state.size = VERSION, _SIZE
        self.state.loaded = self.state.root = 1
        self.state.driver = b"570.00.stub"
        self.state.num_cards = len(cards)
        for i, given in enumerate(cards):
            uuid = f"GPU-57ab0000-0000-4000-8000-{i:012x}".encode()
            _fill(self.state.cards[i], {"uuid": uuid, **H100, **given})
        self.load()
        self.state.magic = MAGIC

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs around it to see the cards."""
        return {"LD_LIBRARY_PATH": str(self.library.parent), "NVML_STUB_STATE": str(self.path)}

    @property
    def card(self) -> Card:
        return self.cards[0]

    @property
    def cards(self) -> list[Card]:
        return [self.state.cards[i] for i in range(self.state.num_cards)]

    @property
    def calls(self) -> list[SetCall]:
        """All calls that set something, also those refused, oldest first. Raises OverflowError when the ring lost some."""
        if self.state.num_calls > NUM_CALLS:
            raise OverflowError(f"{self.state.num_calls} calls set something; the ring holds {NUM_CALLS}")
        done = (self.state.calls[i] for i in range(self.state.num_calls))
        return [_set_call(call) for call in done if call.number]

    def load(self) -> None:
        """Load the driver (again): it knows nothing of what was set, and its counters start anew."""
        self.state.loads += 1
        for card in self.cards:
            card.requested_mw, card.lock_min_mhz, card.lock_max_mhz, card.error = card.default_mw, 0, 0, 0
            card.power_cap_ns = card.sw_thermal_ns = card.hw_thermal_ns = card.brake_ns = 0
            if self.state.loads > 1:
                card.energy_mj = 0

    def fault(
        self, name: str, code: int = -1, *, value: int = 0, times: int = -1, delay_s: float = 0.0, card: int = -1
    ) -> None:
        """From now on `name` (without nvml) returns `code`, or succeeds with `value`; so many times, -1 for good. It takes
        `delay_s` longer; infinity is until it is mended."""
        self.mend(name)
        fault = next(fault for fault in self.state.faults if fault.times == 0)
        fault.name, fault.card, fault.code, fault.value = name.encode(), card, code, value
        fault.delay_ns = -1 if delay_s == float("inf") else int(delay_s * 1e9)
        fault.times = times

    def mend(self, name: str) -> None:
        for fault in self.state.faults:
            if fault.name == name.encode():
                fault.times = 0

    def xid(self, number: int, card: int = 0) -> None:
        """The driver reports an error of the card."""
        at = self.state.cards[card]
        at.xids[at.num_xids % len(at.xids)] = number
        at.num_xids += 1

    def close(self) -> None:
        """Let go on what hangs; the cards stay as they are, as real ones do."""
        for fault in self.state.faults:
            fault.times = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _fill(card: Card, values: dict[str, Any]) -> None:
    for name, value in values.items():
        if name == "clocks_mhz":
            card.num_clocks = len(value)
            card.clocks_mhz[: len(value)] = value
        elif hasattr(card, name):
            setattr(card, name, value)
        else:
            raise AttributeError(f"a card of the stub has no {name}")


def _set_call(call: Call) -> SetCall:
    return SetCall(call.name.decode(), call.card, (call.first, call.second), call.code, call.process, call.time_ns / 1e9)
