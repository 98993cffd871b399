"""What power earlier runs took: the mean over the time in which sequences ran, of one model."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tasks.forecast.energy import MeasuredPower, measured_power
from tasks.storage.atomic import write_json
from tasks.storage.layout import Layout
from tasks.storage.parquet import TELEMETRY, writing_table

BEGAN = datetime(2026, 11, 30, 23, 0, tzinfo=UTC)


def write(layout: Layout, run_id: str, model: str, watts: list[float | None], running: int = 8) -> None:
    """A run with a reading a second."""
    run = layout.run(run_id)
    write_json(run.manifest, {"run_id": run_id, "model": model})
    with writing_table(run.telemetry / "s-00000.parquet", TELEMETRY) as table:
        for second, power in enumerate(watts):
            row = {"run_id": run_id, "session": "s", "engine": 0, "card_uuid": "GPU-1", "running": running, "power_w": power}
            table.append({**row, "time": BEGAN + timedelta(seconds=second), "time_s": float(second)})


def test_power_of_the_same_model_at_work(tmp_path: Path) -> None:
    """Other models, idle cards and readings without power do not count; the last reading stands for no time."""
    layout = Layout(tmp_path / "data", tmp_path / "checkpoints")
    assert measured_power(layout, "smol") is None
    write(layout, "a", "smol", [300.0, 500.0, None, 400.0, 400.0])
    write(layout, "b", "large", [700.0] * 9)
    write(layout, "c", "smol", [60.0] * 9, running=0)
    found = measured_power(layout, "smol")
    assert found is not None
    assert found.watts == pytest.approx(400.0)
    assert found.seconds == pytest.approx(3.0)
    assert measured_power(layout, "it's another") is None


def test_energy_is_power_times_time() -> None:
    """In kWh: 500 W for two hours are one."""
    assert MeasuredPower(500.0, 10.0).kwh(7200.0) == pytest.approx(1.0)
