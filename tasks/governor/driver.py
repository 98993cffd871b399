"""Questions to the NVIDIA driver: an answer, None for what this card or driver does not say, or one of two errors.

NVML's errors end here. What a card does not support is asked once and remembered; `reasons` says by the name of what was
asked for why the last question without an answer had none. Codes and their meanings are those of nvml.h.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Any

from tasks.governor.device import CardError, CardLostError


class Code(IntEnum):
    """Return codes that matter here (nvmlReturn_t)."""

    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    TIMEOUT = 10
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    NO_DATA = 21
    ARGUMENT_VERSION_MISMATCH = 25
    DEPRECATED = 26
    NOT_READY = 27
    GPU_NOT_FOUND = 28
    UNKNOWN = 999


_LOST = {
    Code.GPU_IS_LOST: "has fallen off the bus (NVML: GpuIsLost); reboot, and look at the kernel's log for an Xid",
    Code.RESET_REQUIRED: "needs a reset (NVML: ResetRequired): nvidia-smi --gpu-reset with nothing running on it",
    Code.GPU_NOT_FOUND: "is not there any more (NVML: GpuNotFound)",
}

_NEVER: dict[int, str] = {
    Code.NOT_SUPPORTED: "this card does not offer it",
    Code.FUNCTION_NOT_FOUND: "this driver does not know it yet",
    Code.DEPRECATED: "this driver does not know it any more",
    Code.ARGUMENT_VERSION_MISMATCH: "this driver knows it in another version",
    Code.INVALID_ARGUMENT: "this driver does not know it",
    Code.NO_PERMISSION: "this user may not see it",
}

_NOT_NOW: dict[int, str] = {
    Code.NO_DATA: "no data yet",
    Code.NOT_FOUND: "nothing found",
    Code.NOT_READY: "not ready",
    Code.UNKNOWN: "an unknown error of the driver",
}


class Driver:
    """The binding `nvml` (the module pynvml), for one card; `name` is the card's in messages."""

    def __init__(self, nvml: Any, name: str = "the NVIDIA driver") -> None:
        self.nvml, self.name = nvml, name
        self.reasons: dict[str, str] = {}
        self._never: set[tuple[str, str]] = set()

    def call(self, function: str, *arguments: Any) -> Any:
        """What NVML's function returns. Raises CardLostError, CardError."""
        try:
            return getattr(self.nvml, function)(*arguments)
        except self.nvml.NVMLError as error:
            raise self.error(error.value, function) from None
        except UnicodeError:
            raise CardError(f"{self.name}: {function} answered with no text") from None

    def ask(self, what: str, function: str, *arguments: Any, of: Callable[[Any], Any] = lambda answer: answer) -> Any:
        """The answer, `of` it what is wanted, or None. Raises CardLostError, and CardError where a driver that is well does
        not come to: a time-out, say."""
        if (what, function) in self._never:
            return None
        try:
            return of(getattr(self.nvml, function)(*arguments))
        except self.nvml.NVMLError as error:
            self.missing(what, error.value, function)
            return None

    def missing(self, what: str, code: int, function: str) -> bool:
        """Note that there is no answer, and why; whether there never will be. Raises as `ask`."""
        reason = _NEVER.get(code) or _NOT_NOW.get(code)
        if reason is None:
            raise self.error(code, function)
        self.reasons[what] = f"{reason} ({self._named(code)} from {function})"
        if code in _NEVER:
            self._never.add((what, function))
        return code in _NEVER

    def error(self, code: int, function: str) -> CardError | CardLostError:
        """The error that this code means where an answer is needed."""
        if code in _LOST:
            return CardLostError(f"{self.name} {_LOST[Code(code)]}")
        return CardError(f"{self.name}: {function} failed (NVML: {self._named(code)})")

    def _named(self, code: int) -> str:
        """GpuIsLost, as the binding's exceptions are called."""
        try:
            name: str = self.nvml.nvmlExceptionClass(code).__name__
        except ValueError:
            return f"code {code}"
        return name.removeprefix("NVMLError_")
