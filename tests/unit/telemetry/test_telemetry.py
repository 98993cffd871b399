"""What is said and drawn of a run's telemetry, beside a night that is made up second by second."""

import math
import os
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from tasks.core.errors import ConfigError
from tasks.storage.atomic import write_json
from tasks.storage.layout import Layout
from tasks.storage.parquet import TELEMETRY, writing_table
from tasks.storage.series import SeriesWriter
from tasks.telemetry.lines import lines_of
from tasks.telemetry.plot import drawn, plot_telemetry
from tasks.telemetry.report import rendered
from tasks.telemetry.summary import summarize

BEGAN = datetime(2026, 11, 30, 23, 0, tzinfo=UTC)
RUN = "2026-11-30-abc"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    found = Layout(tmp_path / "data", tmp_path / "checkpoints")
    write_json(found.run(RUN).manifest, {"run_id": RUN})
    return found


def engine(second: int) -> dict[str, Any]:
    return {
        "engine": 0,
        "life": 0,
        "steps": 20 * second,
        "running": 60,
        "waiting": max(0, 100 - second),
        "kv_use": 0.75,
        "prefix_queries": 1000 * second,
        "prefix_hits": 800 * second,
        "preemptions": 0,
        "prefilled_tokens": 200 * second,
        "generated_tokens": 1200 * second,
    }


def card(second: int, index: int) -> dict[str, Any]:
    warm = 50 + 20 * (1 - math.exp(-second / 60)) + 4 * index
    return {
        "card_uuid": f"GPU-{index}",
        "card_index": index,
        "card_name": "NVIDIA H100 80GB HBM3",
        "temperature_c": float(int(warm + 12 * (second == 150))),
        "power_w": 400.0,
        "energy_j": 5e6 + 410.0 * second,
        "sm_clock_mhz": 1980 if second < 200 else 1500,
        "enforced_w": 700.0,
        "set_clock_mhz": 1500 if second >= 200 else None,
        "set_max_num_seqs": 64,
        "throttle": ["sw_thermal"] if 150 <= second < 160 else [],
    }


def write(layout: Layout, seconds: range, cards: int, session: str = "s", after_s: float = 0.0) -> None:
    """A session that begins `after_s` after the first one."""
    with writing_table(layout.run(RUN).telemetry / f"{session}-00000.parquet", TELEMETRY) as table:
        for second in seconds:
            when = {"time": BEGAN + timedelta(seconds=second + after_s), "time_s": second + after_s}
            for index in range(cards):
                table.append({"run_id": RUN, "session": session, **when, **engine(second), **card(second, index)})
            if not cards:
                table.append({"run_id": RUN, "session": session, **when, **engine(second)})


def words(layout: Layout) -> str:
    console = Console(width=160, record=True, file=StringIO())
    console.print(rendered(summarize(layout, RUN)))
    return " ".join(console.export_text().replace("│", " ").split())


def test_the_sums_of_two_cards(layout: Layout) -> None:
    """Heat, power, energy and throttling are those of each card; the engine's tokens count once."""
    write(layout, range(301), cards=2)
    found = summarize(layout, "2026", line_c=80)
    one, two = found.cards
    assert (found.readings, found.sessions, one.index, one.name) == (602, 1, 0, "NVIDIA H100 80GB HBM3")
    assert (one.seconds, one.max_w, one.mean_w) == (300, 400, 400)
    assert (one.max_c, one.above_s, two.max_c, two.above_s) == (80, 0, 84, 1)
    assert (one.counted_j, one.integrated_j, found.energy_j) == (410 * 300, 400 * 300, 2 * 410 * 300)
    assert one.mean_mhz == pytest.approx((200 * 1980 + 100 * 1500) / 300)
    assert (one.throttle_s, one.changes, one.max_memory_c) == ({"sw_thermal": 10}, 1, None)
    (of_engine,) = found.engines
    assert (of_engine.lives, of_engine.generated_tokens, of_engine.tokens_per_s) == (1, 1200 * 300, 1200)
    assert (of_engine.hit_rate, of_engine.mean_running, of_engine.max_kv_use) == (0.8, 60, 0.75)
    assert found.j_per_token == pytest.approx(2 * 410 / 1200)
    for phrase in (
        "0: NVIDIA H100",
        "84 °C at most",
        "sw_thermal 10 s",
        "1,200.0",
        "settings changed 1 time ",
        "J for each",
    ):
        assert phrase in words(layout), phrase


def test_a_machine_without_a_card(layout: Layout) -> None:
    """The engine's part is there, and a note says that no GPU was measured."""
    write(layout, range(61), cards=0)
    found = summarize(layout, RUN)
    assert (found.cards, found.energy_j, found.j_per_token, found.engines[0].tokens_per_s) == ((), None, None, 1200)
    assert "no GPU was measured" in words(layout)
    assert found.to_dict()["engines"][0]["steps"] == 1200


def test_two_sessions_add_up(layout: Layout) -> None:
    """Counters that begin anew with a session are added; the night between two sessions counts for nothing."""
    write(layout, range(101), cards=1)
    write(layout, range(101), cards=1, session="t", after_s=86_400)
    found = summarize(layout, RUN)
    assert (found.sessions, found.cards[0].seconds, found.engines[0].lives) == (2, 200, 2)
    assert (found.engines[0].generated_tokens, found.cards[0].counted_j) == (2 * 1200 * 100, 2 * 410 * 100)


def test_what_a_killed_session_left_counts(layout: Layout) -> None:
    """A spool that nobody writes any more is taken in before anything is said; where that cannot be, the rest is said."""
    write(layout, range(101), cards=1)
    run, row = layout.run(RUN), {"run_id": RUN, "session": "t", "engine": 0, **card(0, 0)}
    writer = SeriesWriter(run.telemetry_spool, run.telemetry, TELEMETRY, "t")
    for second in range(31):
        writer.append(row | {"time": BEGAN + timedelta(seconds=500 + second), "time_s": 500.0 + second}, 0.0)
    assert summarize(layout, RUN).cards[0].seconds == 100  # it lives
    os.close(writer._file or 0)
    assert summarize(layout, RUN).cards[0].seconds == 130
    run.telemetry_spool.joinpath("u-00000.jsonl").mkdir()
    assert summarize(layout, RUN).cards[0].seconds == 130


def test_a_run_without_telemetry(layout: Layout) -> None:
    """It is said, with its folder; so is a run that there is not."""
    with pytest.raises(ConfigError, match=f"run {RUN} has no telemetry in .*{RUN}/telemetry"):
        summarize(layout, RUN)
    with pytest.raises(ConfigError, match="no run 'other'"):
        summarize(layout, "other")


def test_lines_keep_peaks_and_leave_out_the_time_between_sessions(layout: Layout) -> None:
    """Thinned to some hundred points the hottest second is still there; sessions follow each other, the line is broken."""
    write(layout, range(6000), cards=1)
    write(layout, range(600), cards=1, session="t", after_s=90_000)
    lines = lines_of(layout, RUN)
    (of,) = lines.cards
    assert 1000 < len(of.hours) < 1700
    assert np.nanmax(of.values["temperature_c"]) == 80
    assert np.all(np.diff(of.hours) >= 0)
    assert lines.borders == pytest.approx((5999 / 3600,))
    assert of.hours[-1] * 3600 == pytest.approx(5999 + 599, abs=5)
    assert np.isnan(of.values["power_w"]).sum() == 1
    assert not of.known("memory_temperature_c")
    (of_engine,) = lines.engines
    assert np.nanmin(of_engine.values["generated_per_s"]) == pytest.approx(1200)


def test_rates_do_not_beat_with_the_reports(layout: Layout) -> None:
    """A steady engine whose reports come a little off the readings is drawn as a steady line."""
    with writing_table(layout.run(RUN).telemetry / "s-00000.parquet", TELEMETRY) as table:
        for second in range(60):
            counted_s = second - 0.2 * (second % 6) / 5
            when = {"time": BEGAN + timedelta(seconds=second), "time_s": float(second), "counted_s": counted_s}
            told = engine(second) | {"generated_tokens": round(1200 * counted_s)}
            table.append({"run_id": RUN, "session": "s", **told, **when})
    (of,) = lines_of(layout, RUN).engines
    rates = of.values["generated_per_s"][1:]
    assert (np.min(rates), np.max(rates)) == pytest.approx((1200, 1200))
    assert summarize(layout, RUN).engines[0].tokens_per_s == pytest.approx(1200)


def test_panels_are_those_of_which_something_is_known(layout: Layout) -> None:
    """A machine with a card has five, one without has the engine's two."""
    write(layout, range(61), cards=0)
    labels = [axes.get_ylabel() for axes in drawn(lines_of(layout, RUN), RUN, 80.0).axes]
    assert labels == ["tokens/s", "sequences"]
    write(layout, range(61), cards=2, session="t", after_s=100)
    figure = drawn(lines_of(layout, RUN), RUN, 80.0)
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels == ["temperature, °C", "power, W", "SM clock, MHz", "tokens/s", "sequences"]
    assert np.max(np.asarray(figure.axes[0].lines[1].get_ydata(), dtype=float)) == 66


@pytest.mark.parametrize(("name", "magic"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.PDF", b"%PDF")])
def test_pictures(layout: Layout, tmp_path: Path, name: str, magic: bytes) -> None:
    """The picture is of the kind that its name says; of another kind it is refused."""
    write(layout, range(301), cards=2)
    plot_telemetry(layout, RUN, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(magic)
    with pytest.raises(ConfigError, match="must end in one of"):
        plot_telemetry(layout, RUN, tmp_path / "a.gif")
