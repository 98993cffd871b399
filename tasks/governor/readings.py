"""What is read of a card, one question after another: the numbers of Card and Sample as NVML has them.

Field values, where there are any, come with one call; what changes seldom is read seldom. NVML takes a lock of the driver
that all processes share, and polling at 40 Hz has stalled others (MangoHud #2104).
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from tasks.governor.driver import Driver
from tasks.governor.sample import Throttle

LINKS_EVERY_S = 10.0
"""How often links and error counts are read: some twenty calls, for what changes by the hour."""

MAX_XIDS = 16
"""So many errors are fetched at a reading; the last one is told."""

_MAX_NVLINKS = 36


class Field(IntEnum):
    """Field values that are asked for (nvml.h, NVML_FI_DEV_*)."""

    POWER_CAP_NS = 74
    THERMAL_NS = 75
    MEMORY_TEMPERATURE = 82
    ENERGY = 83
    POWER_AVERAGE = 185
    ENFORCED_LIMIT = 190
    REQUESTED_LIMIT = 192
    SHUTDOWN_MARGIN = 193
    SLOWDOWN_MARGIN = 194
    MAX_MARGIN = 196
    SW_THERMAL_NS = 269
    HW_THERMAL_NS = 270


MARGINS = (Field.SHUTDOWN_MARGIN, Field.SLOWDOWN_MARGIN, Field.MAX_MARGIN)
_NAMES = {
    Field.POWER_CAP_NS: "power_cap_ns",
    Field.MEMORY_TEMPERATURE: "memory_temperature_c",
    Field.SW_THERMAL_NS: "thermal_ns",
}
"""What Sample has from no other call."""

_RUNNING = tuple(one for one in Field if one not in MARGINS)
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


class Readings:
    """One card's numbers, in NVML's units where no unit is said. What it does not offer is None, and asked for once; why,
    the driver's `reasons` say. All raise CardLostError and CardError."""

    def __init__(self, driver: Driver, handle: Any) -> None:
        self._driver, self._handle = driver, handle
        self._unknown: set[int] = set()
        self._links: dict[str, Any] = {}
        self._links_at_s: float | None = None
        self._num_nvlinks = _MAX_NVLINKS
        self._events: Any = None

    def number(self, what: str, function: str, *arguments: Any) -> Any:
        """An answer that needs no more than the card."""
        return self._driver.ask(what, function, self._handle, *arguments)

    def fields(self, wanted: Sequence[Field] = _RUNNING) -> dict[Field, int]:
        """The fields that the card has, of those wanted."""
        asked = [int(one) for one in wanted if one not in self._unknown]
        values = self._driver.ask("fields", "nvmlDeviceGetFieldValues", self._handle, asked) if asked else None
        found = {}
        for value in values or ():
            if value.nvmlReturn == 0:
                member = "siVal" if value.fieldId in MARGINS else _MEMBERS[value.valueType]
                found[Field(value.fieldId)] = int(getattr(value.value, member))
            elif self._missing(Field(value.fieldId), value.nvmlReturn):
                self._unknown.add(value.fieldId)
        return found

    def temperature(self) -> float:
        """°C of the GPU; it is not worth going on without. The older call goes with CUDA 14."""
        found = self.number("temperature_c", "nvmlDeviceGetTemperatureV", self._driver.nvml.NVML_TEMPERATURE_GPU)
        if found is None:
            gpu = self._driver.nvml.NVML_TEMPERATURE_GPU
            found = self._driver.call("nvmlDeviceGetTemperature", self._handle, gpu)
        return float(found)

    def margin(self) -> float | None:
        """°C to where it slows itself down (Ada and later)."""
        found = self.number("margin_c", "nvmlDeviceGetMarginTemperature")
        return None if found is None else float(found)

    def power(self, fields: dict[Field, int]) -> float | None:
        """W, the mean over about a second."""
        milliwatts = fields.get(Field.POWER_AVERAGE)
        return _thousandth(self.number("power_w", "nvmlDeviceGetPowerUsage") if milliwatts is None else milliwatts)

    def energy(self, fields: dict[Field, int]) -> float | None:
        """J since the driver was loaded."""
        millijoules = fields.get(Field.ENERGY)
        if millijoules is None:
            millijoules = self.number("energy_j", "nvmlDeviceGetTotalEnergyConsumption")
        return _thousandth(millijoules)

    def requested(self, fields: dict[Field, int]) -> float | None:
        """The power limit in W that somebody has asked for."""
        milliwatts = fields.get(Field.REQUESTED_LIMIT)
        if milliwatts is None:
            milliwatts = self.number("requested_w", "nvmlDeviceGetPowerManagementLimit")
        return _thousandth(milliwatts)

    def enforced(self, fields: dict[Field, int]) -> float | None:
        """The power limit in W that holds; one from outside the system may be lower than what was requested."""
        milliwatts = fields.get(Field.ENFORCED_LIMIT)
        if milliwatts is None:
            milliwatts = self.number("enforced_w", "nvmlDeviceGetEnforcedPowerLimit")
        return _thousandth(milliwatts)

    def throttle(self) -> Throttle | None:
        bits = self.number("throttle", "nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # drivers before 535 have it by its older name
            bits = self.number("throttle", "nvmlDeviceGetCurrentClocksThrottleReasons")
        return None if bits is None else Throttle(bits)

    def thermal_ns(self, fields: dict[Field, int]) -> int | None:
        """Slowed down by heat, by software or by hardware; older drivers have one number for both."""
        told = [fields[one] for one in (Field.SW_THERMAL_NS, Field.HW_THERMAL_NS) if one in fields]
        return sum(told) if told else fields.get(Field.THERMAL_NS)

    def links(self, now_s: float) -> dict[str, Any]:
        """PCIe, NVLink and memory errors, by their names in Sample, at most `LINKS_EVERY_S` old."""
        if self._links_at_s is None or now_s - self._links_at_s >= LINKS_EVERY_S:
            self._links_at_s = now_s
            self._links = {
                "pcie_generation": self.number("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
                "pcie_width": self.number("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),
                "pcie_replays": self.number("pcie_replays", "nvmlDeviceGetPcieReplayCounter"),
                "nvlinks_active": self._nvlinks(),
                "ecc_errors": self._ecc_errors(),
            }
        return self._links

    def watch(self) -> None:
        """From now on the driver keeps this card's errors for `xid`, if it tells them."""
        nvml = self._driver.nvml
        events = self._driver.ask("xid", "nvmlEventSetCreate")
        if events is None:
            return
        types = nvml.nvmlEventTypeXidCriticalError + nvml.nvmlEventTypeDoubleBitEccError
        try:
            nvml.nvmlDeviceRegisterEvents(self._handle, types, events)
        except nvml.NVMLError as error:
            self._driver.call("nvmlEventSetFree", events)
            self._driver.missing("xid", error.value, "nvmlDeviceRegisterEvents")
        else:
            self._events = events

    def xid(self) -> int | None:
        """The last error that the driver has reported since the reading before."""
        last = None
        if self._events is not None:
            self._driver.reasons.pop("xid", None)
        for _ in range(MAX_XIDS if self._events is not None else 0):
            try:
                event = self._driver.nvml.nvmlEventSetWait_v2(self._events, 0)
            except self._driver.nvml.NVMLError_Timeout:
                break
            except self._driver.nvml.NVMLError as error:
                self._driver.missing("xid", error.value, "nvmlEventSetWait_v2")
                break
            if event.eventType == self._driver.nvml.nvmlEventTypeXidCriticalError:
                last = int(event.eventData)
        return last

    def close(self) -> None:
        if self._events is not None:
            self._driver.call("nvmlEventSetFree", self._events)
            self._events = None

    def _missing(self, field: Field, code: int) -> bool:
        what = _NAMES.get(field, field.name.lower())
        return self._driver.missing(what, code, f"field {int(field)} of nvmlDeviceGetFieldValues")

    def _nvlinks(self) -> int | None:
        """How many are up. A card says "invalid argument" to the number of a link that it has not."""
        states: list[int] = []
        for link in range(self._num_nvlinks):
            try:
                states.append(self._driver.nvml.nvmlDeviceGetNvLinkState(self._handle, link))
            except self._driver.nvml.NVMLError as error:
                self._driver.missing("nvlinks_active", error.value, "nvmlDeviceGetNvLinkState")
                self._num_nvlinks = link
                break
        return sum(states) if states else None

    def _ecc_errors(self) -> int | None:
        """Memory errors since the driver was loaded that could not be corrected."""
        nvml = self._driver.nvml
        kind, counter = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        found: int | None = self.number("ecc_errors", "nvmlDeviceGetTotalEccErrors", kind, counter)
        return found


def _thousandth(number: int | None) -> float | None:
    """W of mW, J of mJ."""
    return None if number is None else number / 1000
