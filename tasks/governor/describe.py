"""What a card is: its limits, its clocks, and whether this process may set them. Everything is read, nothing tried."""

from typing import Any

from tasks.governor.driver import Driver
from tasks.governor.readings import MARGINS, Field, Readings
from tasks.governor.rights import Rights
from tasks.governor.sample import Card

_MAX_LIMIT_C = 150.0
_THRESHOLDS = {"shutdown_c": 0, "slowdown_c": 1, "memory_max_c": 2, "max_c": 3}
"""nvmlTemperatureThresholds_t, by their names in Card."""

_MIG = "MIG is on: clocks and power belong to the whole board, and others may be on it"


def describe(driver: Driver, handle: Any, index: int, rights: Rights) -> Card:
    """The card behind a handle. Raises CardLostError, CardError."""
    ask, readings = driver.ask, Readings(driver, handle)
    range_w = ask("max_w", "nvmlDeviceGetPowerManagementLimitConstraints", handle, of=_in_watts)
    default_w = ask("default_w", "nvmlDeviceGetPowerManagementDefaultLimit", handle, of=lambda mw: mw / 1000)
    clocks, refusal = _clocks(driver, handle), _refusal(driver, handle, rights)
    can_limit = range_w is not None and range_w[0] < range_w[1]
    return Card(
        uuid=driver.call("nvmlDeviceGetUUID", handle),
        name=driver.call("nvmlDeviceGetName", handle),
        index=index,
        driver=driver.call("nvmlSystemGetDriverVersion"),
        memory_bytes=ask("memory_bytes", "nvmlDeviceGetMemoryInfo", handle, of=lambda memory: memory.total) or 0,
        clocks_mhz=clocks,
        default_w=default_w,
        min_w=None if range_w is None else range_w[0],
        max_w=None if range_w is None else range_w[1],
        **_temperature_limits(driver, handle, readings),
        no_clock=refusal or (None if clocks else "the card lists no clocks that may be asked for"),
        no_power=refusal or (None if can_limit else "the card's power limit cannot be changed"),
    )


def _in_watts(range_mw: list[int]) -> tuple[float, float]:
    return range_mw[0] / 1000, range_mw[1] / 1000


def _clocks(driver: Driver, handle: Any) -> tuple[int, ...]:
    """SM clocks in MHz at the highest memory clock, ascending."""
    memory = driver.ask("clocks_mhz", "nvmlDeviceGetSupportedMemoryClocks", handle)
    if not memory:
        return ()
    return tuple(sorted(set(driver.ask("clocks_mhz", "nvmlDeviceGetSupportedGraphicsClocks", handle, max(memory)) or ())))


def _refusal(driver: Driver, handle: Any, rights: Rights) -> str | None:
    """Why nothing may be set."""
    mode = driver.ask("mig", "nvmlDeviceGetMigMode", handle, of=lambda modes: modes[0])
    return _MIG if mode else rights.why_not


def _temperature_limits(driver: Driver, handle: Any, readings: Readings) -> dict[str, float | None]:
    """°C by Card's names. Ada and later cards say how far they are from the limit (T.Limit), and where slowdown and shutdown
    are on that scale: -2 is 2 °C hotter. Both are whole degrees, so that the limits are right within one."""
    margin = readings.margin()
    if margin is None:
        function = "nvmlDeviceGetTemperatureThreshold"
        return {what: _plausible(driver.ask(what, function, handle, which)) for what, which in _THRESHOLDS.items()}
    zero_c, fields = readings.temperature() + margin, readings.fields(MARGINS)
    below = {"shutdown_c": Field.SHUTDOWN_MARGIN, "slowdown_c": Field.SLOWDOWN_MARGIN}
    limits = {what: _plausible(zero_c - fields[one]) for what, one in below.items() if one in fields}
    return limits | {"max_c": _plausible(zero_c - fields.get(Field.MAX_MARGIN, 0))}


def _plausible(celsius: float | None) -> float | None:
    """Some drivers say 0 for what they do not know."""
    return float(celsius) if celsius is not None and 0 < celsius < _MAX_LIMIT_C else None
