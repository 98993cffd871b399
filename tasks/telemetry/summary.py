"""What a run's telemetry says in sums: of each card its heat, power, clock and energy, of each engine its tokens and queue.

None is "nobody said so". Rows of a run in progress become readable about a minute after they were measured.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from tasks.core.config import PowerConfig
from tasks.core.errors import ConfigError
from tasks.governor.record import take_in_telemetry
from tasks.query.views import quoted, run_query
from tasks.status import find_run
from tasks.storage.layout import Layout

LINE_C = PowerConfig().max_temperature_c

_CARDS = """
WITH cards AS (
    SELECT session, card_uuid, any_value(card_index) AS index, any_value(card_name) AS name, count(*) AS readings,
           sum(seconds) AS seconds, max(temperature_c) AS max_c, sum(temperature_c * seconds) AS c_s,
           sum(seconds) FILTER (temperature_c IS NOT NULL) AS known_c_s,
           max(memory_temperature_c) AS max_memory_c, sum(seconds) FILTER (temperature_c > {line}) AS above_s,
           max(power_w) AS max_w, sum(power_w * seconds) AS joules, sum(seconds) FILTER (power_w IS NOT NULL) AS known_w_s,
           max(energy_j) - min(energy_j) AS counted_j, sum(sm_clock_mhz * seconds) AS mhz_s,
           sum(seconds) FILTER (sm_clock_mhz IS NOT NULL) AS known_mhz_s, min(sm_clock_mhz) AS min_mhz
    FROM telemetry WHERE run_id = {run} AND card_uuid IS NOT NULL GROUP BY session, card_uuid)
SELECT card_uuid AS uuid, any_value(name) AS name, any_value(index) AS index, sum(readings)::BIGINT AS readings,
       coalesce(sum(seconds), 0) AS seconds, max(max_c) AS max_c, sum(c_s) / nullif(sum(known_c_s), 0) AS mean_c,
       max(max_memory_c) AS max_memory_c, CASE WHEN max(max_c) IS NOT NULL THEN coalesce(sum(above_s), 0) END AS above_s,
       max(max_w) AS max_w, sum(joules) / nullif(sum(known_w_s), 0) AS mean_w,
       sum(counted_j) AS counted_j, sum(joules) AS integrated_j, sum(coalesce(counted_j, joules)) AS best_j,
       sum(mhz_s) / nullif(sum(known_mhz_s), 0) AS mean_mhz, min(min_mhz) AS min_mhz
FROM cards GROUP BY card_uuid ORDER BY index, uuid
"""

_THROTTLE = """
SELECT card_uuid, reason, sum(seconds) AS seconds
FROM (SELECT card_uuid, seconds, unnest(throttle) AS reason FROM telemetry WHERE run_id = {run})
GROUP BY ALL HAVING sum(seconds) > 0 ORDER BY seconds DESC, reason
"""

_CHANGES = """
WITH changes AS (
    SELECT card_uuid FROM telemetry WHERE run_id = {run} AND card_uuid IS NOT NULL
    QUALIFY (set_clock_mhz, set_power_w, set_max_num_seqs) IS DISTINCT FROM
        lag((set_clock_mhz, set_power_w, set_max_num_seqs), 1, (set_clock_mhz, set_power_w, set_max_num_seqs))
            OVER (PARTITION BY session, engine, card_uuid ORDER BY time_s))
SELECT card_uuid, count(*) AS changes FROM changes GROUP BY card_uuid
"""

_ENGINES = """
WITH one AS (
    SELECT DISTINCT ON (session, engine, time) * FROM telemetry WHERE run_id = {run} AND steps IS NOT NULL
    ORDER BY session, engine, time, card_index),
lives AS (
    SELECT engine, max(steps) AS steps, max(generated_tokens) AS generated, max(prefilled_tokens) AS prefilled,
           max(prefix_hits) AS hits, max(prefix_queries) AS queries, max(preemptions) AS preemptions,
           sum(seconds) AS seconds, sum(running * seconds) AS running_s, sum(waiting * seconds) AS waiting_s,
           max(running) AS max_running, max(kv_use) AS max_kv_use,
           max(coalesce(counted_s, time_s)) - min(coalesce(counted_s, time_s)) AS life_s,
           max(generated_tokens) - min(generated_tokens) AS generated_seen
    FROM one GROUP BY session, engine, life)
SELECT engine, count(*) AS lives, sum(steps)::BIGINT AS steps, sum(generated)::BIGINT AS generated_tokens,
       sum(prefilled)::BIGINT AS prefilled_tokens, sum(hits) / nullif(sum(queries), 0) AS hit_rate,
       sum(preemptions)::BIGINT AS preemptions, sum(running_s) / nullif(sum(seconds), 0) AS mean_running,
       sum(waiting_s) / nullif(sum(seconds), 0) AS mean_waiting, max(max_running) AS max_running,
       max(max_kv_use) AS max_kv_use, sum(generated_seen) / nullif(sum(life_s), 0) AS tokens_per_s
FROM lives GROUP BY engine ORDER BY engine
"""


@dataclass(frozen=True, slots=True)
class CardSums:
    """One card over all sessions. `seconds` are those that readings stand for, `above_s` those above the line; energy by
    the card's own counter and by its power over time; `throttle_s` has the seconds of each reason for a lower clock;
    `changes` is how often the governor set something else."""

    uuid: str
    name: str | None
    index: int | None
    readings: int
    seconds: float
    max_c: float | None
    mean_c: float | None
    max_memory_c: float | None
    above_s: float | None
    max_w: float | None
    mean_w: float | None
    counted_j: float | None
    integrated_j: float | None
    best_j: float | None
    mean_mhz: float | None
    min_mhz: int | None
    throttle_s: Mapping[str, float] = field(default_factory=dict)
    changes: int = 0


@dataclass(frozen=True, slots=True)
class EngineSums:
    """One engine over all its lives; means are over time, and tokens a second over the time that was recorded."""

    engine: int
    lives: int
    steps: int | None
    generated_tokens: int | None
    prefilled_tokens: int | None
    hit_rate: float | None
    preemptions: int | None
    mean_running: float | None
    mean_waiting: float | None
    max_running: int | None
    max_kv_use: float | None
    tokens_per_s: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """A run's telemetry in sums; `line_c` is the temperature that `above_s` is counted from."""

    run_id: str
    began: datetime
    ended: datetime
    sessions: int
    readings: int
    line_c: float
    cards: tuple[CardSums, ...]
    engines: tuple[EngineSums, ...]

    @property
    def energy_j(self) -> float | None:
        """Of all cards, by their counters where they have them."""
        known = [card.best_j for card in self.cards if card.best_j is not None]
        return sum(known) if known else None

    @property
    def j_per_token(self) -> float | None:
        """Energy over tokens generated."""
        tokens = sum(engine.generated_tokens or 0 for engine in self.engines)
        return self.energy_j / tokens if self.energy_j is not None and tokens else None

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        times = {"began": self.began.isoformat(), "ended": self.ended.isoformat()}
        return asdict(self) | times | {"energy_j": self.energy_j, "j_per_token": self.j_per_token}


def summarize(layout: Layout, prefix: str, line_c: float = LINE_C) -> Summary:
    """The sums of the run whose id begins so, with what a killed session left. Raises ConfigError when there is no such run,
    or it has no telemetry."""
    run = find_run(layout, prefix)
    with suppress(OSError):  # where nothing can be written, the table says what it has
        take_in_telemetry(run)
    ours = {"run": quoted(run.run_id), "line": float(line_c)}

    def rows(sql: str) -> list[dict[str, Any]]:
        columns, found = run_query(layout, sql.format(**ours))
        return [dict(zip(columns, row, strict=True)) for row in found]

    whole = "SELECT min(time) AS began, max(time) AS ended, count(DISTINCT session) AS sessions, count(*) AS readings"
    (all_,) = rows(f"{whole} FROM telemetry WHERE run_id = {{run}}")
    if not all_["readings"]:
        reason = "it has just begun, or has done its work already when telemetry was turned on"
        raise ConfigError(f"run {run.run_id} has no telemetry in {run.telemetry}: {reason}")
    throttle: dict[str, dict[str, float]] = {}
    for row in rows(_THROTTLE):
        throttle.setdefault(row["card_uuid"], {})[row["reason"]] = row["seconds"]
    changes = {row["card_uuid"]: row["changes"] for row in rows(_CHANGES)}
    cards = [
        CardSums(**row, throttle_s=throttle.get(card, {}), changes=changes.get(card, 0))
        for row in rows(_CARDS)
        for card in [row["uuid"]]
    ]
    engines = [EngineSums(**row) for row in rows(_ENGINES)]
    return Summary(run.run_id, **all_, line_c=line_c, cards=tuple(cards), engines=tuple(engines))
