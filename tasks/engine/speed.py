"""How fast a model's steps were on a device, kept from session to session: one JSON file a model and device.

It is an estimate for plans, no truth about any run: what cannot be read is begun anew.
"""

import re
from dataclasses import asdict, dataclass
from pathlib import Path

from tasks.core.errors import DamageError
from tasks.engine.step_time import StepSums, StepTime
from tasks.storage.atomic import read_json, write_json


@dataclass(frozen=True, slots=True)
class Identity:
    """What the time of a step depends on; `model` is the name of its folder. With other software it begins anew."""

    model: str
    dtype: str
    software: str
    device: str

    @property
    def file_name(self) -> str:
        return re.sub(r"[^\w.@+-]+", "_", f"{self.model}-{self.dtype}-{self.device}") + ".json"


def add_speed(folder: Path, identity: Identity, sums: StepSums) -> None:
    """Add a session's steps to what is known of that model and device."""
    if not sums.num_steps:
        return
    path = folder / identity.file_name
    known = _read(path)
    total = known[1].plus(sums) if known is not None and known[0] == identity else sums
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, {"identity": asdict(identity), "sums": asdict(total)})


def read_speed(folder: Path, model: str, device: str | None = None) -> tuple[Identity, StepTime] | None:
    """The newest that is known of a model, on a device where one is given; None when nothing is."""
    files = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for found in map(_read, files):
        is_it = found is not None and found[0].model == model and device in (None, found[0].device)
        if found is not None and is_it and (time := found[1].fit()) is not None:
            return found[0], time
    return None


def _read(path: Path) -> tuple[Identity, StepSums] | None:
    try:
        values = read_json(path)
        return (Identity(**values["identity"]), StepSums(**values["sums"])) if values else None
    except (DamageError, ValueError, KeyError, TypeError):
        return None


def cpu_name(num_threads: int) -> str:
    """The processor and how many threads compute on it."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "CPU")
    return f"{num_threads} x {name}"
