"""A look at the cards, in a process of its own: `python -m tasks.doctor.look` prints what NVML says of them as JSON.

A call to the driver may block for good and cannot be interrupted; the doctor waits for so long and no longer.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from typing import Any

from tasks.doctor.gpu import Cards
from tasks.governor.device import CardError, CardLostError
from tasks.governor.sample import Card, Sample, Throttle

_COMMAND = (sys.executable, "-P", "-m", "tasks.doctor.look")
_TIMEOUT_S = 10.0
"""Without persistence mode the driver wakes the cards first, which takes seconds."""
_END_S = 0.2


def look_at_cards(command: Sequence[str] = _COMMAND, timeout_s: float = _TIMEOUT_S) -> Cards:
    """All cards with a reading of each; what went wrong is the reason."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        said, complaint = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        child.kill()
        with suppress(subprocess.TimeoutExpired):  # without effect before the driver lets go of it: nobody waits for that
            child.communicate(timeout=_END_S)
        return Cards(reason=f"the driver did not answer within {timeout_s:g} s", is_ill=True)
    if child.returncode:
        words = complaint.strip().splitlines() or [f"exit code {child.returncode}"]
        return Cards(reason=f"the look at the driver failed: {words[-1]}", is_ill=True)
    told = json.loads(said)
    found = tuple((_card(one["card"]), _sample(one["sample"])) for one in told["cards"])
    return Cards(found, told["reason"] or "")


def _card(values: dict[str, Any]) -> Card:
    return Card(**values | {"clocks_mhz": tuple(values["clocks_mhz"])})


def _sample(values: dict[str, Any] | None) -> Sample | None:
    if values is None:
        return None
    throttle = values["throttle"]
    return Sample(**values | {"throttle": None if throttle is None else Throttle(throttle)})


def main() -> None:
    """Say what there is."""
    from tasks.governor.nvml import NvmlDevice, cards

    def read(card: Card) -> dict[str, Any] | None:
        try:
            with closing(NvmlDevice(card.uuid)) as device:
                return asdict(device.read())
        except (CardError, CardLostError):
            return None

    found = cards()
    told = [{"card": asdict(card), "sample": read(card)} for card in found.cards]
    json.dump({"cards": told, "reason": found.reason}, sys.stdout)


if __name__ == "__main__":
    main()
