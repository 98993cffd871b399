"""The guard of one card: puts it back when its owner dies, however that happens, or hangs.

A process in a session of its own at the other end of the owner's socket. It opens the card and says that it is armed before
the owner makes the first change; from then on it ignores the signals that end a group of processes together. The socket's
end, or no heartbeat for `stale_s`, is the owner's end. It shares the owner's lock of the card, so nobody else is there
before it is done. After a clean end there is no lease, and so nothing to do.

`python -m tasks.governor.guard FD LEASE TOKEN FACTORY STALE_S [LIMIT]`; FACTORY is `module:function`, from a card's UUID to
its Device. Imports little: the owner waits for it, and it must be there when memory is not.
"""

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from tasks.core.errors import ConfigError, NightbatchError, in_words
from tasks.governor.device import Device
from tasks.governor.lease import read_lease
from tasks.governor.restore import OpenDevice, settle
from tasks.storage.limit import write_limit

ARMED = b"a"
ACTING = b"t"
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# A driver that does not answer may do so later; after about a minute the lease is left to the next start.
_PAUSES_S = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 20.0)


@dataclass
class Cards:
    """Opens a card; the first time it is the one that was opened in advance, as in an emergency opening may fail."""

    open_device: OpenDevice
    opened: Device | None = None

    def __call__(self, uuid: str) -> "closing[Device]":
        device, self.opened = self.opened or self.open_device(uuid), None
        return closing(device)


def guard(
    owner: socket.socket,
    path: Path,
    token: str,
    cards: Cards,
    stale_s: float,
    sleep: Callable[[float], None] = time.sleep,
    limit: Path | None = None,
) -> int:
    """From being armed to the end; the exit code is 1 when the lease stays. Before the card has its full power again the
    engine is paused, as nobody governs it then: until another governor speaks."""
    with suppress(OSError):  # it died meanwhile, which the next line finds as well
        owner.sendall(ARMED)
    reason = wait_for_end(owner, stale_s)
    with suppress(OSError):  # it is gone, or was
        owner.sendall(ACTING)
    for pause_s in (*_PAUSES_S, None):
        try:
            lease = read_lease(path)
            if lease is None or lease.token != token:
                return 0
            _pause(limit)
            _say(f"{lease.owner} {reason}; {settle(path, cards)}")
            return 0
        except (NightbatchError, OSError) as error:
            _say(in_words(error) if isinstance(error, OSError) else str(error))
            if pause_s is None:
                return 1
        sleep(pause_s)
    raise AssertionError("unreachable")


def _pause(limit: Path | None) -> None:
    """Nothing may run any more. A disk that refuses does not keep the guard from the card; the limit ends by itself soon."""
    with suppress(OSError):
        if limit is not None and limit.exists():
            write_limit(limit, 0, fallback=0, holds_s=0.0, now_s=time.monotonic())


def wait_for_end(owner: socket.socket, stale_s: float) -> str:
    """Until the owner is dead or hangs; which of them. Silence does not count while this process did not run either, as when
    the whole machine stood still."""
    while True:
        asked = time.monotonic()
        ready, _, _ = select.select([owner], [], [], stale_s)
        if ready:
            with suppress(ConnectionError):
                if owner.recv(4096):
                    continue
            return "has ended"
        if time.monotonic() - asked < 1.5 * stale_s:
            return f"has shown no life for {stale_s:g} s"


def factory(spec: str) -> OpenDevice:
    """The function that `module:function` names. Raises ConfigError."""
    module, _, name = spec.partition(":")
    try:
        made: OpenDevice = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"no function {spec!r} to open a card with: {error}") from error
    return made


def main(arguments: list[str]) -> int:
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    fd, path, token, spec, stale_s = int(arguments[0]), Path(arguments[1]), arguments[2], arguments[3], float(arguments[4])
    with suppress(OSError):  # only root may; it saves the guard from the fate of an engine that takes all memory
        Path("/proc/self/oom_score_adj").write_text("-999", encoding="ascii")
    try:
        lease = read_lease(path)
        if lease is None or lease.token != token:
            return 0
        cards = Cards(factory(spec))
        cards.opened = cards.open_device(lease.uuid)
    except (NightbatchError, OSError) as error:
        _say(in_words(error) if isinstance(error, OSError) else str(error))
        return 1
    os.chdir("/")
    with socket.socket(fileno=fd) as owner:
        return guard(owner, path, token, cards, stale_s, limit=Path(arguments[5]) if len(arguments) > 5 else None)


def _say(text: str) -> None:
    """A line in the log beside the lease; a full disk does not keep the guard from its work."""
    with suppress(OSError):
        os.write(sys.stdout.fileno(), f"{time.strftime('%Y-%m-%d %H:%M:%S%z')} {text}\n".encode())


def log_path(path: Path) -> Path:
    """Where the guard of this lease says what it did."""
    return path.with_suffix(".log")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
