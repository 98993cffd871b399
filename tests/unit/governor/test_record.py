"""Telemetry rows: everything that is known of a moment under its own name, and no waiting for a disk."""

import threading
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tasks.core.counters import EngineCounters
from tasks.governor import record
from tasks.governor.record import Recorder, row_of, session_name, take_in_telemetry, throttle_names
from tasks.governor.sample import Card, Sample, Throttle
from tasks.governor.setting import Setting
from tasks.storage.layout import Run
from tasks.storage.parquet import TELEMETRY, Row, read_rows

NOW = datetime(2026, 11, 30, 23, 0, tzinfo=UTC)
CARD = Card("GPU-1", "H100", 0, "550.1", 80 << 30)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run("r1", tmp_path / "data" / "runs" / "r1", tmp_path / "checkpoints" / "r1")


def rows_of(run: Run) -> list[Row]:
    return list(read_rows(sorted(run.telemetry.glob("*.parquet"))))


def test_every_field_has_its_column() -> None:
    """Whatever a sample, an engine or a setting says has a column, and a row has exactly the table's columns."""
    assert {field.name for of in (Sample, EngineCounters) for field in fields(of)} <= {*TELEMETRY.names}
    row = row_of(NOW, 1.0, CARD, Sample(1.0), Setting(), "nominal", EngineCounters())
    assert {*row, "run_id", "session", "engine"} == {*TELEMETRY.names}
    assert row_of(NOW, 1.0, None, None, None, None, None).keys() == row.keys()


def test_rows_come_back(run: Run) -> None:
    """A hot card, and a machine without one: what was told is in the table, and what nobody said is NULL."""
    recorder = Recorder(run, 2, "s")
    sample = Sample(11.5, temperature_c=79, power_w=300.5, throttle=Throttle.SW_THERMAL | Throttle.SW_POWER_CAP)
    counters = EngineCounters(1, steps=10, running=3, kv_use=0.5, generated_tokens=30)
    recorder.record(
        NOW, 12.0, card=CARD, sample=sample, setting=Setting(1200, None, 8, "hot"), state="managed", counters=counters
    )
    recorder.record(NOW + timedelta(seconds=1), 13.0, counters=counters)
    recorder.close()
    hot, bare = rows_of(run)
    assert (hot["run_id"], hot["session"], hot["engine"], hot["time"], hot["time_s"]) == ("r1", "s", 2, NOW, 11.5)
    assert (hot["card_uuid"], hot["card_index"], hot["card_name"]) == ("GPU-1", 0, "H100")
    assert (hot["temperature_c"], hot["power_w"], hot["margin_c"]) == (79, 300.5, None)
    assert hot["throttle"] == ["sw_power_cap", "sw_thermal"]
    assert (hot["set_clock_mhz"], hot["set_power_w"], hot["set_max_num_seqs"]) == (1200, None, 8)
    assert (hot["state"], hot["reason"]) == ("managed", "hot")
    assert (bare["card_uuid"], bare["temperature_c"], bare["throttle"], bare["time_s"]) == (None, None, None, 13.0)
    for row in (hot, bare):
        found = {name: row[name] for name in ("life", "steps", "running", "waiting", "kv_use", "generated_tokens")}
        assert found == {"life": 1, "steps": 10, "running": 3, "waiting": None, "kv_use": 0.5, "generated_tokens": 30}


def test_no_throttling_is_not_unknown() -> None:
    """A card that is not slowed down has an empty list; bits that have no name are kept as a number."""
    assert row_of(NOW, 0.0, CARD, Sample(0.0, throttle=Throttle(0)), None, None, None)["throttle"] == []
    assert throttle_names(Throttle.GPU_IDLE | Throttle(0x300)) == ["gpu_idle", "0x300"]


def test_what_is_no_number_is_no_reading() -> None:
    """Garbage that a driver gives for a number is NULL in the table, and its neighbours stay."""
    row = row_of(NOW, 0.0, CARD, Sample(0.0, power_w=float("nan"), temperature_c=70.0), None, None, None)
    assert (row["power_w"], row["temperature_c"]) == (None, 70)


def test_sessions_are_told_apart(run: Run) -> None:
    """Several sessions and engines of a run write side by side, and their names sort by time."""
    names = [session_name(NOW + timedelta(seconds=after), engine, 77) for after in (0, 1) for engine in (0, 1)]
    assert sorted(names) == names
    recorders = [Recorder(run, 0, name) for name in names]
    for recorder in recorders:
        recorder.record(NOW, 0.0)
    for recorder in recorders:
        recorder.close()
    assert [row["session"] for row in rows_of(run)] == names
    assert take_in_telemetry(run).rows == 0


def test_a_slow_disk_holds_nobody_up(run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """While the disk hangs, rows wait up to a bound; those beyond it are dropped, counted, and said at the end."""
    monkeypatch.setattr(record, "_MAX_WAITING", 3)
    gate, waits = threading.Event(), threading.Event()
    recorder = Recorder(run, 0, "s")
    real = recorder._writer.append

    def append(row: Row, now_s: float) -> None:
        waits.set()
        gate.wait(60)
        real(row, now_s)

    monkeypatch.setattr(recorder._writer, "append", append)
    recorder.record(NOW, 0.0)
    assert waits.wait(60)
    for number in range(1, 6):
        recorder.record(NOW, float(number))
    assert recorder.num_dropped == 2
    gate.set()
    recorder.close()
    assert [row["time_s"] for row in rows_of(run)] == [0, 1, 2, 3]
    assert "2 rows of telemetry were dropped" in caplog.text


def test_a_hanging_disk_is_not_waited_for_at_the_end(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A close that gets nowhere ends all the same, and says so."""
    gate = threading.Event()
    recorder = Recorder(run, 0, "s")
    monkeypatch.setattr(recorder._writer, "append", lambda row, now_s: gate.wait(60))
    recorder.record(NOW, 0.0)
    recorder.close(timeout_s=0.01)
    assert "the disk does not take the last rows of telemetry" in caplog.text
    gate.set()
    recorder._thread.join(60)


def test_a_value_that_cannot_be_written_costs_its_row_alone(run: Run) -> None:
    """Something that is no number where one belongs does not end the recording."""
    recorder = Recorder(run, 0, "s")
    for number, value in enumerate((1.0, object(), 3.0)):
        recorder.record(NOW, float(number), card=CARD, sample=Sample(float(number), power_w=value))  # type: ignore[arg-type]
    recorder.close()
    assert [row["power_w"] for row in rows_of(run)] == [1, 3]


def test_a_refusing_disk_ends_no_run(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """Where nothing can be written, that is said once, and nothing is raised."""
    run.home.parent.mkdir(parents=True)
    run.home.write_text("no folder")
    run.journals.parent.mkdir(parents=True)
    run.journals.write_text("no folder")
    recorder = Recorder(run, 0, "s")
    for number in range(5):
        recorder.record(NOW, float(number))
    recorder.close()
    assert caplog.text.count("telemetry cannot be written, and the run goes on") == 1
