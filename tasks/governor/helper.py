"""Setting a card through a command that has the right to, so that neither this process nor the engine needs it.

The command (deploy/nightbatch-power, or one that keeps its contract) is named by NIGHTBATCH_POWER_HELPER; reading needs no
rights and stays NVML's. `open_card` is the factory of owners and guards: with the command where there is one.
"""

import os
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import replace

from tasks.governor.device import CardError, CardLostError, Device, RefusedError
from tasks.governor.lease import same_limit
from tasks.governor.sample import Card, Sample

FACTORY = "tasks.governor.helper:open_card"
# sudo's own no, the helper's, and the shell's two for a command that is not to be run; then a lost card.
_REFUSED, _LOST = (1, 2, 126, 127), 15
_TIMEOUT_S = 20.0


class HelpedDevice:
    """A device whose setters are the helper's. `command` is called as `limit UUID MILLIWATTS` and `clock UUID MHZ`."""

    def __init__(self, device: Device, command: Sequence[str]) -> None:
        self._device = device
        self._command = tuple(command)

    @property
    def card(self) -> Card:
        """May be set, as far as can be known without trying."""
        return replace(self._device.card, no_clock=None, no_power=None)

    def read(self) -> Sample:
        return self._device.read()

    def requested_w(self) -> float | None:
        return self._device.requested_w()

    def set_power_limit(self, watts: float) -> None:
        self._call("limit", round(watts * 1000))
        now_w = self.requested_w()
        if now_w is not None and not same_limit(now_w, watts):
            raise CardError(f"{self.card.uuid} was asked for a power limit of {watts:g} W, and has {now_w:g} W")

    def lock_clock(self, max_mhz: int) -> None:
        if max_mhz <= 0:
            raise RefusedError(f"no card has a clock of {max_mhz} MHz")
        self._call("clock", max_mhz)

    def unlock_clock(self) -> None:
        self._call("clock", 0)

    def close(self) -> None:
        self._device.close()

    def _call(self, verb: str, value: int) -> None:
        command = [*self._command, verb, self.card.uuid, str(value)]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S
            )
        except subprocess.TimeoutExpired as error:
            raise CardError(f"{shlex.join(command)} did not end within {_TIMEOUT_S:g} s") from error
        except OSError as error:
            raise RefusedError(f"{shlex.join(command)} cannot be run: {error}") from error
        if done.returncode:
            words = " ".join(done.stderr.split()) or "it said nothing"
            kind = {_LOST: CardLostError, **dict.fromkeys(_REFUSED, RefusedError)}.get(done.returncode, CardError)
            raise kind(f"{shlex.join(command)} ended with {done.returncode}: {words}")


def open_card(uuid: str) -> Device:
    """The card with this UUID; its setters are the helper's where NIGHTBATCH_POWER_HELPER names one. Raises CardLostError
    and CardError."""
    from tasks.governor.nvml import NvmlDevice  # only here: NVML's binding is not needed to name this module

    device = NvmlDevice(uuid)
    helper = shlex.split(os.environ.get("NIGHTBATCH_POWER_HELPER", ""))
    return HelpedDevice(device, helper) if helper else device
