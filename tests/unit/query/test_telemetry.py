"""Telemetry under queries: each named query beside what is counted by hand."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tasks.query.views import named_queries, run_query
from tasks.storage.layout import Layout
from tasks.storage.parquet import TELEMETRY, writing_table

BEGAN = datetime(2026, 11, 30, 23, 0, tzinfo=UTC)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "da'ta", tmp_path / "checkpoints")


def reading(second: float, session: str = "s", **given: Any) -> dict[str, Any]:
    row = {"run_id": "r", "session": session, "engine": 0, "card_uuid": "GPU-0", "card_index": 0, "card_name": "H100"}
    return row | {"time": BEGAN + timedelta(seconds=second), "time_s": second, **given}


def write(layout: Layout, rows: list[dict[str, Any]], run_id: str = "r", name: str = "s-00000") -> None:
    with writing_table(layout.run(run_id).telemetry / f"{name}.parquet", TELEMETRY) as table:
        for row in rows:
            table.append(row | {"run_id": run_id})


def named(layout: Layout, name: str) -> list[dict[str, Any]]:
    columns, rows = run_query(layout, named_queries()[name])
    return [dict(zip(columns, row, strict=True)) for row in rows]


def test_a_reading_stands_for_the_time_until_the_next(layout: Layout) -> None:
    """Of the same card and session, over the borders of parts; the last one, and one before a gap, stand for none."""
    write(layout, [reading(0), reading(1), reading(1, card_uuid="GPU-1"), reading(2.5, "other")])
    write(layout, [reading(3), reading(99), reading(100)], name="s-00001")
    found = run_query(layout, "SELECT session, card_uuid, time_s, seconds FROM telemetry ORDER BY ALL")[1]
    assert [(time_s, seconds) for *_, time_s, seconds in found] == [
        (2.5, None),
        (0, 1),
        (1, 2),
        (3, None),
        (99, 1),
        (100, None),
        (1, None),
    ]


def test_columns_are_the_same_before_and_after(layout: Layout) -> None:
    """The first reading changes no column's name or type."""
    describe = "SELECT column_name, column_type FROM (DESCRIBE telemetry)"
    before = run_query(layout, describe)
    write(layout, [reading(0)])
    assert run_query(layout, describe) == before


def test_energy(layout: Layout) -> None:
    """The counter's difference and the integral of power, of all cards and sessions; tokens of an engine count once, and
    those of each of its lives."""
    pairs = [
        reading(second, power_w=360.0, energy_j=1e6 + 400 * second, card_uuid=f"GPU-{card}", life=0, generated_tokens=tokens)
        for second, tokens in ((0, 0), (10, 500), (20, 1000))
        for card in (0, 1)
    ]
    again = [reading(second, "t", power_w=100.0, life=second // 10, generated_tokens=300) for second in (0, 10)]
    write(layout, pairs + again)
    (found,) = named(layout, "energy")
    counted, integrated = 2 * 20 * 400, 2 * 20 * 360 + 10 * 100
    assert (found["cards"], found["sessions"], found["card_seconds"]) == (2, 2, 50)
    assert found["counted_kwh"] == pytest.approx(counted / 3.6e6, abs=1e-4)
    assert found["integrated_kwh"] == pytest.approx(integrated / 3.6e6, abs=1e-4)
    assert found["mean_w"] == pytest.approx(integrated / 50)
    assert (found["generated_tokens"], found["prefilled_tokens"]) == (1600, None)
    assert found["j_per_token"] == pytest.approx((counted + 1000) / 1600, abs=1e-3)


def test_hottest_minutes(layout: Layout) -> None:
    """The hottest comes first, with its reasons; a card that does not tell its temperature is in no line."""
    rows = [
        reading(second, temperature_c=60 + second // 60, throttle=["sw_thermal"] * (second >= 60)) for second in range(90)
    ]
    write(layout, [*rows, reading(0, card_uuid="GPU-1")])
    hot, cool = named(layout, "hottest_minutes")
    assert (hot["max_c"], hot["minute"], hot["throttle"]) == (61, BEGAN + timedelta(minutes=1), ["sw_thermal"])
    assert (cool["max_c"], cool["seconds"], cool["throttle"]) == (60, 60, [])


def test_seconds_above(layout: Layout) -> None:
    """Time counts, and not readings."""
    hot = ((0, 80.0), (1, 81.0), (3, 86.0), (3.5, 79.0), (4.5, 79.0))
    write(layout, [reading(second, temperature_c=degrees) for second, degrees in hot])
    (found,) = named(layout, "seconds_above")
    assert [found[f"above_{line}_c"] for line in (70, 75, 80, 85, 90)] == [4.5, 4.5, 2.5, 0.5, 0]
    assert (found["max_c"], found["seconds"]) == (86, 4.5)


def test_throttling(layout: Layout) -> None:
    """Each reason has the time for which it was given; no reason is no line."""
    reasons: tuple[list[str] | None, ...] = (["sw_power_cap"], ["sw_power_cap", "sw_thermal"], [], None, [])
    write(layout, [reading(second, throttle=given) for second, given in enumerate(reasons)])
    assert [(row["reason"], row["seconds"]) for row in named(layout, "throttling")] == [
        ("sw_power_cap", 2),
        ("sw_thermal", 1),
    ]


def test_what_the_governor_did(layout: Layout) -> None:
    """One line a change of what is set, with its reason and the reading that it followed."""
    settings = ((1980, "warm"), (1980, "as before"), (1200, "hot"), (1200, ""), (None, "cool"))
    rows = [reading(i, state="Nominal", set_clock_mhz=clock, reason=why) for i, (clock, why) in enumerate(settings)]
    write(layout, [*rows, reading(9, card_uuid=None)])
    found = [(row["set_clock_mhz"], row["reason"]) for row in named(layout, "governor")]
    assert found == [(1980, "warm"), (1200, "hot"), (None, "cool")]


def test_rates_are_by_the_time_of_counting(layout: Layout) -> None:
    """Counters that were heard of a little before the reading, now more and now less, give the engine's own rate."""
    heard = [second - (0.2 if second % 2 else 0.0) for second in range(50)]
    rows = [reading(i, life=0, steps=i, counted_s=at, generated_tokens=int(1000 * at)) for i, at in enumerate(heard)]
    write(layout, rows[:40])
    (found,) = named(layout, "engine_minutes")
    assert found["tokens_per_s"] == 1000


def test_minutes_of_an_engine(layout: Layout) -> None:
    """Rates within a life of the engine, counted once for all its cards; a machine without cards has them as well."""
    two = [
        reading(second, card_uuid=f"GPU-{card}", life=0, steps=second, running=4, generated_tokens=40 * second, kv_use=0.5)
        | {"prefix_hits": 30 * second, "prefix_queries": 40 * second, "preemptions": second // 20}
        for second in range(0, 40, 10)
        for card in (0, 1)
    ]
    bare = [
        reading(60 + second, "t", card_uuid=None, life=life, steps=second, running=2, generated_tokens=second * 10)
        for life, second in ((0, 1), (0, 2), (1, 0), (1, 1))
    ]
    write(layout, two + bare)
    first, second = named(layout, "engine_minutes")
    assert (first["tokens_per_s"], first["hit_percent"], first["max_kv_percent"]) == (40, 75, 50)
    assert (first["running"], first["preemptions"]) == (4, 1)
    assert (second["tokens_per_s"], second["running"], second["hit_percent"]) == (10, 2, None)
