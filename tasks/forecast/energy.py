"""What power cards took while they worked in earlier runs of a model: what energy a night of it will take."""

from dataclasses import dataclass

from tasks.query.views import quoted, run_query
from tasks.storage.layout import Layout

_POWER = """
SELECT sum(power_w * seconds) / sum(seconds), sum(seconds)
FROM telemetry JOIN runs USING (run_id)
WHERE model = {model} AND power_w IS NOT NULL AND running > 0 AND seconds > 0
"""


@dataclass(frozen=True, slots=True)
class MeasuredPower:
    """The mean power of one card, in W, over so many seconds of work."""

    watts: float
    seconds: float

    def kwh(self, seconds: float) -> float:
        """The energy of so much time."""
        return self.watts * seconds / 3.6e6


def measured_power(layout: Layout, model: str) -> MeasuredPower | None:
    """None where no run of the model has told any."""
    _, ((watts, seconds),) = run_query(layout, _POWER.format(model=quoted(model)))
    return None if watts is None else MeasuredPower(float(watts), float(seconds))
