"""A card that is a file, for several processes: what it is set to, and who set what. `open_card` makes the guard find it.

Keys: requested_w, locked_mhz (null: free), driver, energy_j, fails and refuses (calls that raise CardError and
RefusedError), lost, log ([pid, call]).
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tasks.governor.device import CardError, CardLostError, RefusedError
from tasks.governor.sample import Card, Sample

UUID = "GPU-0"
FACTORY = "filecard:open_card"
FRESH: dict[str, Any] = {
    "requested_w": 350.0, "locked_mhz": None, "driver": "570.1",
    "energy_j": 1000.0, "fails": [], "refuses": [], "lost": False, "log": []
}  # fmt: skip


class FileCard:
    """`before` is called with each call's name before it is made, `after` after it."""

    def __init__(
        self,
        path: Path,
        before: Callable[[str], None] = lambda call: None,
        after: Callable[[str], None] = lambda call: None,
    ) -> None:
        self.path = path
        self.before = before
        self.after = after
        self.closed = False
        if not path.exists():
            path.write_text(json.dumps(FRESH))

    @property
    def state(self) -> dict[str, Any]:
        with self.changing() as state:
            return state

    @contextmanager
    def changing(self) -> Iterator[dict[str, Any]]:
        with self.path.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            state = json.loads(file.read())
            yield state
            file.seek(0)
            file.truncate()
            file.write(json.dumps(state))

    def set(self, **values: Any) -> None:
        """As somebody else does it."""
        with self.changing() as state:
            state.update(values)

    @property
    def card(self) -> Card:
        return Card(UUID, "file", 0, self.state["driver"], 1 << 30, clocks_mhz=(300, 1000, 2000), default_w=400.0)

    def read(self) -> Sample:
        return Sample(time.monotonic(), energy_j=self._call("read")["energy_j"], requested_w=self.state["requested_w"])

    def requested_w(self) -> float | None:
        watts: float | None = self._call("requested_w")["requested_w"]
        return watts

    def set_power_limit(self, watts: float) -> None:
        self._call(f"limit {watts:g}", requested_w=watts)

    def lock_clock(self, max_mhz: int) -> None:
        self._call(f"clock {max_mhz}", locked_mhz=max_mhz)

    def unlock_clock(self) -> None:
        self._call("unlock", locked_mhz=None)

    def close(self) -> None:
        self.closed = True

    def _call(self, name: str, **values: Any) -> dict[str, Any]:
        self.before(name)
        with self.changing() as state:
            if state["lost"]:
                raise CardLostError("the card is gone")
            if name.split()[0] in state["fails"]:
                raise CardError(f"no answer to {name}")
            if name.split()[0] in state["refuses"]:
                raise RefusedError(f"no permission for {name}")
            state.update(values)
            if values:
                state["log"].append([os.getpid(), name])
        self.after(name)
        return state


def open_card(uuid: str) -> FileCard:
    assert uuid == UUID
    return FileCard(Path(os.environ["FILECARD"]))
