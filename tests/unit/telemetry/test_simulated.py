"""A simulated card recorded second by second: what the queries say is what the plant did."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tasks.core.counters import EngineCounters
from tasks.governor.cards import H100
from tasks.governor.record import Recorder
from tasks.governor.setting import Setting
from tasks.governor.simulated import MachineRoom, SimulatedDevice
from tasks.query.views import named_queries, run_query
from tasks.storage.atomic import write_json
from tasks.storage.layout import Layout
from tasks.telemetry.lines import lines_of
from tasks.telemetry.summary import summarize

BEGAN = datetime(2026, 11, 30, 23, 0, tzinfo=UTC)
_SECONDS = 240


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A run on one card: two minutes of decode, then two of prefill at a locked clock."""
    found = Layout(tmp_path / "data", tmp_path / "checkpoints")
    run, room = found.run("r1"), MachineRoom([H100])
    write_json(run.manifest, {"run_id": "r1"})
    device = SimulatedDevice(room)
    room.plant.sequences[0], room.plant.prefill[0] = 128, 0.0
    recorder, setting = Recorder(run, 0, "s"), Setting(reason="as found")
    for second in range(_SECONDS + 1):
        if second == _SECONDS // 2:
            room.plant.prefill[0], setting = 1.0, Setting(1410, None, 128, "prefill is coming")
            device.lock_clock(1410)
        counters = EngineCounters(0, steps=10 * second, running=128, generated_tokens=1000 * second)
        now = BEGAN + timedelta(seconds=second)
        sample = device.read()
        recorder.record(now, sample.time_s, card=device.card, sample=sample, setting=setting, state="ok", counters=counters)
        room.advance(1.0)
    recorder.close()
    device.close()
    return found


def test_a_night_in_small(layout: Layout) -> None:
    """Energy by the counter and from power agree within some percent, as sensors lag; the lock shows in clock and settings;
    energy a token is the one over the other."""
    found = summarize(layout, "r1")
    (card,), (engine,) = found.cards, found.engines
    assert card.name == f"simulated {H100.name}"
    assert card.seconds == pytest.approx(_SECONDS)
    assert card.counted_j is not None and card.integrated_j is not None
    assert card.integrated_j == pytest.approx(card.counted_j, rel=0.05)
    assert H100.idle_w < (card.mean_w or 0) < (card.max_w or 0) <= H100.default_w * 1.05
    assert (card.min_mhz or 0) <= 1410 < (card.mean_mhz or 0)
    assert (card.changes, engine.generated_tokens) == (1, 1000 * _SECONDS)
    assert found.j_per_token == pytest.approx(card.counted_j / (1000 * _SECONDS))
    columns, rows = run_query(layout, named_queries()["governor"])
    assert [row[columns.index("reason")] for row in rows] == ["as found", "prefill is coming"]
    (lines,) = lines_of(layout, "r1").cards
    assert len(lines.hours) == _SECONDS + 1
    assert max(lines.values["temperature_c"]) == card.max_c
