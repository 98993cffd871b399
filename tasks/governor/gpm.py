"""What the units of a card did between two readings: SMs, memory, tensor cores (NVML's GPM, Hopper and later).

Shares of one, means over the time since the reading before. Cards without it, and cards cut up by MIG, have none: nothing is
made up from the older utilisation, which says only that something ran.
"""

from typing import Any

from tasks.governor.driver import Driver

METRICS = {"sm_activity": 2, "tensor_activity": 5, "dram_activity": 10}
"""nvmlGpmMetricId_t: SM_UTIL, ANY_TENSOR_UTIL, DRAM_BW_UTIL, in percent."""

MIN_INTERVAL_S = 0.1
"""Two samples must be further apart than that (nvml.h)."""

_WHAT = "sm_activity"


class Activities:
    """Keeps the sample of the reading before. `read` at most as often as its answers are wanted."""

    def __init__(self, driver: Driver, handle: Any) -> None:
        self._driver, self._handle = driver, handle
        self._samples: list[Any] = []
        self._at_s: float | None = None
        self._last: dict[str, Any] = {}
        is_offered = driver.ask(_WHAT, "nvmlGpmQueryDeviceSupport", handle, of=lambda answer: answer.isSupportedDevice)
        if is_offered:
            self._allocate()
        elif is_offered is not None:
            driver.reasons[_WHAT] = "this card does not offer it (GPM is for Hopper and later)"
        if not self._samples:
            driver.reasons.update(dict.fromkeys(METRICS, driver.reasons[_WHAT]))

    def read(self, now_s: float) -> dict[str, Any]:
        """The activities since the reading before, by their names in Sample: nothing the first time, and those of the
        reading before if it is too soon for new ones."""
        if not self._samples or (self._at_s is not None and now_s - self._at_s < MIN_INTERVAL_S):
            return self._last
        before, now = self._samples
        if self._driver.ask(_WHAT, "nvmlGpmSampleGet", self._handle, now) is None:
            return {}
        self._samples = [now, before]
        self._last = {} if self._at_s is None else self._between(before, now)
        self._at_s = now_s
        return self._last

    def close(self) -> None:
        for sample in self._samples:
            self._driver.call("nvmlGpmSampleFree", sample)
        self._samples = []

    def _allocate(self) -> None:
        for _ in range(2):
            sample = self._driver.ask(_WHAT, "nvmlGpmSampleAlloc")
            if sample is None:
                self.close()
                return
            self._samples.append(sample)

    def _between(self, before: Any, now: Any) -> dict[str, Any]:
        asked = self._driver.nvml.c_nvmlGpmMetricsGet_t(version=1, numMetrics=len(METRICS), sample1=before, sample2=now)
        for slot, metric in zip(asked.metrics, METRICS.values(), strict=False):
            slot.metricId = metric
        if self._driver.ask(_WHAT, "nvmlGpmMetricsGet", asked) is None:
            return {}
        found = {}
        for slot, name in zip(asked.metrics, METRICS, strict=False):
            if slot.nvmlReturn == 0:
                found[name] = slot.value / 100
            else:
                self._driver.missing(name, slot.nvmlReturn, "nvmlGpmMetricsGet")
        return found
