"""The nightly flow under Prefect's test harness, with the echo engine."""

import logging
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from prefect import runtime
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State

from flows.nightly import nightly
from tasks import steps
from tasks.core.config import ModelConfig
from tasks.core.errors import InputError
from tasks.core.manifest import DONE
from tasks.night import Night

pytestmark = pytest.mark.prefect


@pytest.fixture
def night_of(tmp_path: Path, prefect_api: None) -> dict[str, Any]:
    """The parameters that all these runs share."""
    roots = {"data": str(tmp_path / "data"), "checkpoints": str(tmp_path / "checkpoints")}
    return {**roots, "inbox": str(tmp_path / "inbox"), "model": ModelConfig("echo")}


def name_of(state: State[Night]) -> str:
    run_id = state.state_details.flow_run_id
    assert run_id is not None
    with get_client(sync_client=True) as client:
        return client.read_flow_run(run_id).name


def test_night_completes_and_a_second_one_has_nothing_to_do(night_of: dict[str, Any], inbox: Path) -> None:
    """The first run makes all tables, the second finds them; both are Completed and say what came of it."""
    first = nightly(logical_date=date(2026, 12, 1), **night_of, return_state=True)
    night = first.result()
    assert first.is_completed() and first.message is not None and first.message.startswith("3 answered, 0 failed")
    assert (night.manifest.state, night.manifest.results, night.was_done) == (DONE, 3, False)
    run = night.results.parent
    made = {path.relative_to(run).parts[0] for path in run.rglob("*.parquet")}
    assert {"groups", "plan", "results"} <= made and night.database.exists()
    assert name_of(first) == "nightly-2026-12-01"

    second = nightly(logical_date=date(2026, 12, 1), **night_of, return_state=True)
    assert second.is_completed() and second.message is not None and second.message.startswith("nothing left to do")
    assert second.result().manifest == night.manifest


def test_retry_goes_on_from_the_journal(night_of: dict[str, Any], inbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flow that Prefect retries finds all tokens of its first attempt and generates none of them again."""
    collect: Any = steps.collect
    attempts: list[Any] = []

    def fails_once(*arguments: Any) -> Any:
        attempts.append(arguments)
        if len(attempts) == 1:
            raise OSError("the disk went away")
        return collect(*arguments)

    monkeypatch.setattr(steps, "collect", fails_once)
    night = nightly.with_options(retries=1)(**night_of, return_state=True).result()
    assert len(attempts) == 2
    assert night.manifest.resumed_tokens == night.manifest.output_tokens > 0


def test_flow_and_plain_functions_name_the_same_run(night_of: dict[str, Any], inbox: Path) -> None:
    """What ran as a flow is done for the command line, which needs no server."""
    as_flow = nightly(**{**night_of, "model": {"name": "echo"}, "sampling": {"temperature": 0}})
    plain = nightly.fn(**night_of)
    assert plain.was_done and plain.manifest == as_flow.manifest


def test_night_is_the_local_date_of_the_scheduled_start(
    night_of: dict[str, Any], inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """03:30 UTC is still the evening before in New York. The hour at which the run really starts plays no part."""
    monkeypatch.setenv("PREFECT__RUNTIME__DEPLOYMENT__ID", "a-deployment")
    due = datetime(2026, 12, 2, 3, 30, tzinfo=UTC)
    monkeypatch.setitem(runtime.flow_run.FIELDS, "scheduled_start_time", lambda: due)
    eastern = nightly(**night_of, return_state=True)
    assert (name_of(eastern), eastern.result().manifest.logical_date) == ("nightly-2026-12-01", "2026-12-01")
    utc = nightly(timezone="UTC", **night_of, return_state=True)
    assert (name_of(utc), utc.result().manifest.logical_date) == ("nightly-2026-12-02", "2026-12-02")


def test_missing_inbox_fails_with_one_line(night_of: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """The state's message names the folder, and no traceback is logged for it."""
    with caplog.at_level(logging.INFO):
        state = nightly(**night_of, return_state=True)
    assert state.is_failed()
    assert state.message == f"Flow run encountered an exception: InputError: no such file or folder: {night_of['inbox']}"
    assert [record.exc_info for record in caplog.records if record.levelno >= logging.ERROR] == [None]
    with pytest.raises(InputError, match="no such file or folder"):
        nightly(**night_of)
