"""A run's telemetry as lines over time, thinned to what a picture can show.

The time axis is that of work: hours since the first reading, without the time between sessions. Of each stretch of time the
hottest temperature, the lowest clock's limit and means of the rest are kept, so that no peak is thinned away.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.query.views import quoted, run_query
from tasks.storage.layout import Layout

_MAX_POINTS = 1500
_UNSEEN_S = 60.0
"""Between readings that are further apart the line is broken, and the time is left out."""

Floats = NDArray[np.float64]

_CARDS = """
SELECT card_uuid AS name, any_value(card_index || ': ' || card_name) AS label, avg(epoch(time)) AS moment,
       max(temperature_c) AS temperature_c, max(memory_temperature_c) AS memory_temperature_c, avg(power_w) AS power_w,
       min(enforced_w) AS enforced_w, avg(sm_clock_mhz) AS sm_clock_mhz, min(set_clock_mhz) AS set_clock_mhz
FROM telemetry WHERE run_id = {run} AND card_uuid IS NOT NULL
GROUP BY card_uuid, session, floor(epoch(time) / {width}) ORDER BY any_value(card_index), name, moment
"""

_ENGINES = """
WITH one AS (
    SELECT DISTINCT ON (session, engine, time) * FROM telemetry WHERE run_id = {run} AND steps IS NOT NULL
    ORDER BY session, engine, time, card_index),
steps AS (
    SELECT *, generated_tokens - lag(generated_tokens) OVER life AS generated,
           prefilled_tokens - lag(prefilled_tokens) OVER life AS prefilled, coalesce(counted_s, time_s) AS at_s,
           at_s - lag(at_s) OVER life AS passed_s
    FROM one WINDOW life AS (PARTITION BY session, engine, life ORDER BY time_s))
SELECT engine::VARCHAR AS name, 'engine ' || engine AS label, avg(epoch(time)) AS moment,
       sum(generated) / nullif(sum(passed_s), 0) AS generated_per_s,
       sum(prefilled) / nullif(sum(passed_s), 0) AS prefilled_per_s,
       avg(running) AS running, avg(waiting) AS waiting, min(set_max_num_seqs) AS set_max_num_seqs
FROM steps GROUP BY engine, session, floor(epoch(time) / {width}) ORDER BY engine, moment
"""


@dataclass(frozen=True, slots=True)
class Lines:
    """One card's or engine's lines: `hours` of work, shape (n,), and each quantity beside them, NaN where it is not known
    and between sessions."""

    label: str
    hours: Floats
    values: Mapping[str, Floats]

    def known(self, name: str) -> bool:
        """Whether there is anything to draw."""
        return bool(np.isfinite(self.values[name]).any())


@dataclass(frozen=True, slots=True)
class Drawn:
    """All lines of a run, and where on the time axis a new stretch of work begins."""

    cards: tuple[Lines, ...]
    engines: tuple[Lines, ...]
    borders: tuple[float, ...]


def lines_of(layout: Layout, run_id: str) -> Drawn:
    """The lines of a run, which has telemetry."""
    ours = quoted(run_id)
    spans = f"SELECT min(epoch(time)), max(epoch(time)) FROM telemetry WHERE run_id = {ours} GROUP BY session"
    work = _Work(run_query(layout, spans)[1])
    width = max(1.0, work.seconds / _MAX_POINTS)

    def lines(sql: str) -> tuple[Lines, ...]:
        columns, rows = run_query(layout, sql.format(run=ours, width=width))
        found = (dict(zip(columns, row, strict=True)) for row in rows)
        return tuple(_lines(list(of), work) for _, of in groupby(found, key=lambda row: row["name"]))

    return Drawn(lines(_CARDS), lines(_ENGINES), work.borders)


class _Work:
    """Stretches of time in which sessions ran, in order, and where they lie on an axis without what is between them."""

    def __init__(self, spans: Iterable[Sequence[float]]) -> None:
        self._begins: list[float] = []
        self._ends: list[float] = []
        for begin, end in sorted((float(begin), float(end)) for begin, end in spans):
            if self._ends and begin - self._ends[-1] <= _UNSEEN_S:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._begins.append(begin)
                self._ends.append(end)
        lengths = [end - begin for begin, end in zip(self._begins, self._ends, strict=True)]
        self._offsets: list[float] = [0.0, *accumulate(lengths)]

    @property
    def seconds(self) -> float:
        return self._offsets[-1]

    @property
    def borders(self) -> tuple[float, ...]:
        return tuple(offset / 3600 for offset in self._offsets[1:-1])

    def hours(self, at: float) -> float:
        """Hours of work until then."""
        stretch = bisect_right(self._begins, at) - 1
        return (self._offsets[stretch] + at - self._begins[stretch]) / 3600


def _lines(rows: Sequence[Mapping[str, Any]], work: _Work) -> Lines:
    names = [name for name in rows[0] if name not in ("name", "label", "moment")]
    hours: list[float] = []
    values: dict[str, list[float]] = {name: [] for name in names}
    before = rows[0]["moment"]
    for row in rows:
        if row["moment"] - before > _UNSEEN_S:
            hours.append(work.hours(before))
            for name in names:
                values[name].append(np.nan)
        before = row["moment"]
        hours.append(work.hours(before))
        for name in names:
            values[name].append(np.nan if row[name] is None else float(row[name]))
    return Lines(rows[0]["label"], np.array(hours), {name: np.array(column) for name, column in values.items()})
