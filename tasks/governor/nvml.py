"""NVIDIA's cards behind Device, through NVML: the one module that imports its binding.

Cards are known by UUID. Nothing is written unless one of the three setters is called; whether they may be is read from what
this process is. Invariant: nothing but CardLostError and CardError comes through, and no implausible value.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pynvml

from tasks.governor.describe import describe
from tasks.governor.device import CardError, CardLostError, RefusedError
from tasks.governor.driver import Code, Driver
from tasks.governor.gpm import Activities
from tasks.governor.plausible import Plausible
from tasks.governor.readings import Field, Readings
from tasks.governor.rights import Rights, read_rights
from tasks.governor.sample import Card, Sample

_READ_BACK_W = 0.5
"""Drivers keep a limit in mW; one that is further away than rounding is another's."""

_MAX_CARDS = 256
"""More than any computer has slots for; drivers have said garbage with success."""

_NO_DRIVER = {
    9: "the NVIDIA driver is not loaded: modprobe nvidia, or look at the kernel's log",
    12: "no NVIDIA driver here (libnvidia-ml.so.1 is not installed)",
    18: "the NVIDIA driver was updated while it is loaded: reboot",
}
"""What NVML's return codes mean when it cannot even begin: driver not loaded, library not found, version mismatch."""


@dataclass(frozen=True, slots=True)
class Found:
    """The cards of this computer; where one is missing, or all, `reason` says why."""

    cards: tuple[Card, ...] = ()
    reason: str | None = None


def cards(rights: Rights | None = None) -> Found:
    """All cards that answer. No driver, no card and a broken driver are values, not errors."""
    driver = Driver(pynvml)
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Found(reason=_NO_DRIVER.get(error.value, str(driver.error(error.value, "nvmlInit"))))
    try:
        return _all_cards(driver, read_rights() if rights is None else rights)
    except (CardError, CardLostError) as error:
        return Found(reason=str(error))
    finally:
        pynvml.nvmlShutdown()


class NvmlDevice:
    """The card with that UUID, until it is closed. Raises CardLostError, CardError.

    After a reading, `reasons` says by Sample's names why which value is None. One thread may read while another sets.
    """

    def __init__(self, uuid: str, *, rights: Rights | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._driver = clock, Driver(pynvml, uuid)
        self._driver.call("nvmlInit")
        self._is_open = True
        try:
            self._begin(uuid, read_rights() if rights is None else rights)
        except BaseException:
            self._is_open = False
            pynvml.nvmlShutdown()
            raise

    def _begin(self, uuid: str, rights: Rights) -> None:
        try:
            self._handle = self._driver.call("nvmlDeviceGetHandleByUUID", uuid)
        except CardError as error:
            raise CardLostError(f"there is no card {uuid} (any more): {error}") from None
        index = self._driver.call("nvmlDeviceGetIndex", self._handle)
        self._card = describe(self._driver, self._handle, index, rights)
        self._driver.name = f"card {index} ({self._card.name}, {uuid})"
        self._readings = Readings(self._driver, self._handle)
        self._readings.watch()
        self._activities = Activities(self._driver, self._handle)
        self._plausible = Plausible(self._card)
        self._last = Sample(self._clock())

    @property
    def card(self) -> Card:
        return self._card

    @property
    def reasons(self) -> dict[str, str]:
        """Why a value of the last reading is None, by its name in Sample."""
        told = self._driver.reasons | self._plausible.reasons
        return {name: why for name, why in told.items() if getattr(self._last, name, "") is None}

    def read(self) -> Sample:
        now_s, of = self._clock(), self._readings
        fields, temperature = of.fields(), of.temperature()
        memory = fields.get(Field.MEMORY_TEMPERATURE)
        limit = self._card.memory_max_c
        rates = of.number("utilization", "nvmlDeviceGetUtilizationRates")
        used = of.number("memory_used_bytes", "nvmlDeviceGetMemoryInfo")
        sample = Sample(
            time_s=now_s,
            temperature_c=temperature,
            memory_temperature_c=None if memory is None else float(memory),
            margin_c=of.margin(),
            memory_margin_c=None if limit is None or memory is None else limit - memory,
            power_w=of.power(fields),
            energy_j=of.energy(fields),
            sm_clock_mhz=of.number("sm_clock_mhz", "nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM),
            memory_clock_mhz=of.number("memory_clock_mhz", "nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM),
            requested_w=of.requested(fields),
            enforced_w=of.enforced(fields),
            utilization=None if rates is None else rates.gpu / 100,
            memory_used_bytes=None if used is None else used.used,
            throttle=of.throttle(),
            thermal_ns=of.thermal_ns(fields),
            power_cap_ns=fields.get(Field.POWER_CAP_NS),
            xid=of.xid(),
            **self._activities.read(now_s),
            **of.links(now_s),
        )
        self._last = self._plausible(sample)
        return self._last

    def requested_w(self) -> float | None:
        return self._readings.requested(self._readings.fields((Field.REQUESTED_LIMIT,)))

    def set_power_limit(self, watts: float) -> None:
        self._set("nvmlDeviceSetPowerManagementLimit", f"a power limit of {watts:g} W", round(watts * 1000))
        now = self.requested_w()
        if now is not None and abs(now - watts) > _READ_BACK_W:
            raise CardError(f"{self._driver.name} was asked for a power limit of {watts:g} W, and has {now:g} W")

    def lock_clock(self, max_mhz: int) -> None:
        clocks = self._card.clocks_mhz
        highest = max((clock for clock in clocks if clock <= max_mhz), default=None)
        if highest is None:
            least = f"its lowest is {clocks[0]} MHz" if clocks else "it lists none"
            raise RefusedError(f"{self._driver.name} has no clock of {max_mhz} MHz or less: {least}")
        self._set("nvmlDeviceSetGpuLockedClocks", f"at most {max_mhz} MHz", clocks[0], highest)

    def unlock_clock(self) -> None:
        self._set("nvmlDeviceResetGpuLockedClocks", "any clock")

    def close(self) -> None:
        """Leave the driver; what was set stays set. A driver that does not let go is left with what it holds."""
        if not self._is_open:
            return
        self._is_open = False
        for leave in (self._activities.close, self._readings.close, pynvml.nvmlShutdown):
            with suppress(CardError, CardLostError, pynvml.NVMLError):
                leave()

    def _set(self, function: str, wanted: str, *arguments: Any) -> None:
        try:
            getattr(pynvml, function)(self._handle, *arguments)
        except pynvml.NVMLError as error:
            raise self._refusal(error.value, function, wanted) from None

    def _refusal(self, code: int, function: str, wanted: str) -> CardError | CardLostError:
        """What a setter's error means."""
        card = self._card
        if code == Code.NO_PERMISSION:
            return RefusedError(f"{self._driver.name} refuses {wanted}: it needs CAP_SYS_ADMIN (NVML: NoPermission)")
        if code == Code.INVALID_ARGUMENT:
            limits = f"its power limits are {card.min_w or 0:g} to {card.max_w or 0:g} W"
            return RefusedError(f"{self._driver.name} cannot have {wanted}: {limits} (NVML: InvalidArgument)")
        if code == Code.NOT_SUPPORTED:
            return RefusedError(str(self._driver.error(code, function)))
        return self._driver.error(code, function)


def _all_cards(driver: Driver, rights: Rights) -> Found:
    count = driver.call("nvmlDeviceGetCount")
    if count > _MAX_CARDS:
        return Found(reason=f"the NVIDIA driver says that it has {count} cards, which cannot be")
    found, reasons = [], []
    for index in range(count):
        one = Driver(pynvml, f"card {index}")
        try:
            found.append(describe(one, one.call("nvmlDeviceGetHandleByIndex", index), index, rights))
        except (CardError, CardLostError) as error:
            reasons.append(str(error))
    if not found and not reasons:
        reasons.append("the NVIDIA driver is loaded, and has no card")
    return Found(tuple(found), "; ".join(reasons) or None)
