"""What we changed on a card, and what was there before: one JSON file a card, on disk before the first change is made.

NVML cannot be asked what a card was set to before us, and a limit outlives the process that set it. So the lease says all
that somebody who comes after a sudden death needs in order to put it back. Whoever writes a lease, or acts on one, holds
the card's lock; a guard holds it together with its owner, so it is free only when both have ended.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from math import isfinite
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tasks.core.errors import DamageError, LockedError
from tasks.governor.sample import Card
from tasks.storage.atomic import read_json, write_json
from tasks.storage.lock import RunLock, holder

# Drivers may round a limit to whole watts (an estimate): nearer than half of one is the same limit.
_SAME_W = 0.5
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Lease:
    """`before_w` is the limit that was asked for before us, None as long as we asked for none. `written_w` are the limits of
    ours that may stand: the newest, and the one before it, as a death may have come between the record and the call. Of
    clocks nothing is known from before (NVML has no getter): they were free, or are ours alone. `energy_j` counts from the
    driver's start and tells a reload of it. `token` tells this lease from any other of the same card.
    """

    uuid: str
    driver: str
    boot_id: str
    pid: int
    started: int
    since: str
    token: str
    energy_j: float | None = None
    before_w: float | None = None
    written_w: tuple[float, ...] = ()
    clocks_touched: bool = False

    @property
    def owner(self) -> str:
        return f"process {self.pid} (since {self.since})"

    @property
    def is_untouched(self) -> bool:
        """Whether nothing was changed under it, or even about to be."""
        return not self.written_w and not self.clocks_touched

    def owner_lives(self) -> bool:
        """Whether the process that took it still runs; its number alone may be another's by now."""
        return self.boot_id == boot_id() and started(self.pid) == self.started

    def wrote(self, watts: float) -> bool:
        """Whether this limit is one of ours."""
        return any(same_limit(watts, ours) for ours in self.written_w)


def same_limit(one_w: float, other_w: float) -> bool:
    return abs(one_w - other_w) <= _SAME_W


def new_lease(card: Card, energy_j: float | None) -> Lease:
    """A lease of ours on this card, with nothing changed yet."""
    pid, now = os.getpid(), time.strftime("%Y-%m-%d %H:%M:%S%z")
    return Lease(card.uuid, card.driver, boot_id(), pid, started(pid) or 0, now, os.urandom(8).hex(), energy_j)


def boot_id() -> str:
    """Of the running kernel, a new one with each boot; the same in all containers."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def started(pid: int) -> int | None:
    """When a process started, in clock ticks since boot (proc(5): field 22 of stat); None where it runs no more."""
    try:
        state, *others = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in "ZX" else int(others[18])


def state_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """Where leases lie: the machine's folder for root, who may write to cards, and the user's own for others."""
    if given := environment.get("NIGHTBATCH_STATE_DIR"):
        return Path(given).absolute()
    if os.geteuid() == 0:
        return Path("/run/nightbatch") if os.access("/run", os.W_OK) else Path("/var/lib/nightbatch")
    home = Path(environment.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return home.absolute() / "nightbatch"


def lease_path(directory: Path, uuid: str) -> Path:
    return directory / f"{quote(uuid, safe='')}.lease"


@contextmanager
def card_lock(path: Path, *, wait_s: float) -> Iterator[RunLock]:
    """The lock of the card with this lease. Raises LockedError, naming the holder, when another keeps it for `wait_s`."""
    with ExitStack() as held:
        try:
            lock = held.enter_context(RunLock(path.with_suffix(".lock"), wait_s=wait_s))
        except LockedError as error:
            raise LockedError(f"{path.stem}: its clock and power limit are in the hands of {_in_hands_of(path)}") from error
        yield lock


def _in_hands_of(path: Path) -> str:
    with suppress(DamageError, OSError):
        lease = read_lease(path)
        if lease is not None and not lease.owner_lives():
            return f"the guard of {lease.owner}, which has ended: it is being put back"
    return holder(path.with_suffix(".lock"))


def write_lease(path: Path, lease: Lease) -> None:
    """Durable when it returns. Raises OSError, with the old lease in place."""
    write_json(path, {"version": _VERSION} | asdict(lease))


def read_lease(path: Path) -> Lease | None:
    """None where there is none. Raises DamageError, naming the file and what to do, when it is not what we write."""
    try:
        value = read_json(path)
        return None if value is None else _parse(value)
    except (DamageError, KeyError, TypeError, ValueError) as error:
        reason = str(error).removeprefix(f"{path} is damaged: ")
        raise DamageError(
            f"{path} is damaged ({reason}), so what to put back on {path.stem} is not known: see what is set with"
            f" nvidia-smi -q -d POWER,CLOCK, set it right with nvidia-smi -pl and -rgc, and remove the file"
        ) from error


def _parse(value: Any) -> Lease:
    names = [field.name for field in fields(Lease)]
    if not isinstance(value, dict) or value.get("version") != _VERSION:
        raise ValueError(f"no lease of version {_VERSION}")
    if set(value) != {"version", *names}:
        raise ValueError(f"keys {', '.join(sorted(set(value) ^ {'version', *names}))} missing or unknown")
    texts = ("uuid", "driver", "boot_id", "since", "token")
    watts = [*value["written_w"], *(w for w in (value["before_w"], value["energy_j"]) if w is not None)]
    if not all(isinstance(value[name], str) for name in texts) or not isinstance(value["clocks_touched"], bool):
        raise ValueError("a value of the wrong type")
    if not all(type(number) in (int, float) and isfinite(number) and number >= 0 for number in watts):
        raise ValueError("a limit that is no number")
    if value["written_w"] and value["before_w"] is None:
        raise ValueError("limits written, and none from before")
    own = {name: value[name] for name in names} | {"written_w": tuple(map(float, value["written_w"]))}
    return Lease(**own | {name: int(value[name]) for name in ("pid", "started")})
