"""The nightly flow: every source of the inbox, once for each night.

As a flow each stage is a Prefect task; `nightly.fn(...)` runs the same functions plainly, with no API and no server.
"""

from datetime import date, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from prefect import flow, runtime

from tasks.core.config import (
    Config,
    EngineConfig,
    GroupConfig,
    InputConfig,
    JournalConfig,
    ModelConfig,
    PowerConfig,
    SamplingDefaults,
)
from tasks.night import Night
from tasks.parameters import (
    EngineParameter,
    GroupParameter,
    JournalParameter,
    ModelParameter,
    OptionalDate,
    PowerParameter,
    Rows,
    SamplingParameter,
    Timezone,
)
from tasks.steps import perform


def _night_of(logical_date: date | None, timezone: str) -> date | None:
    """The given date, else the local date on which this run was to start; None outside a deployment."""
    if logical_date is not None or runtime.deployment.id is None:
        return logical_date
    scheduled: datetime = runtime.flow_run.scheduled_start_time
    return scheduled.astimezone(ZoneInfo(timezone)).date()


def _run_name() -> str:
    given = runtime.flow_run.parameters
    night = _night_of(given.get("logical_date"), given.get("timezone", "UTC"))
    return f"nightly-{night or 'undated'}"


@flow(name="nightly", flow_run_name=_run_name, persist_result=False)
def nightly(
    inbox: str = "data/inbox",
    logical_date: OptionalDate = None,
    timezone: Timezone = "America/New_York",
    data: str = "data",
    checkpoints: str = "checkpoints",
    rows: Rows = Rows(),  # noqa: B008  frozen, like the next six
    model: ModelParameter = ModelConfig(),  # noqa: B008
    sampling: SamplingParameter = SamplingDefaults(),  # noqa: B008
    group: GroupParameter = GroupConfig(),  # noqa: B008
    engine: EngineParameter = EngineConfig(),  # noqa: B008
    journal: JournalParameter = JournalConfig(),  # noqa: B008
    power: PowerParameter = PowerConfig(),  # noqa: B008
) -> Night:
    """Answer everything in the inbox, one sub-folder a source; run again for the same night it resumes or does nothing.

    Args:
        inbox: Folder with one sub-folder of input files for each source.
        logical_date: The night that is meant; by default the local date on which the run was scheduled to start.
        timezone: Where "local" is, as an IANA name.
        data: Root of requests, results and the DuckDB database.
        checkpoints: Root of the token journals.
        rows: How plain rows become requests.
        model: Which model answers, its dtype and context.
        sampling: What a request gets that does not say otherwise.
        group: How requests are brought together, and whether near-duplicates share an answer.
        engine: vLLM's settings and the supervisor's patience.
        journal: What a generated token survives.
        power: What is done about heat and power of a GPU.
    """
    return perform(
        Config(
            input=InputConfig((inbox,), max_reject_rate=rows.max_reject_rate, rows=rows.config),
            data=Path(data),
            checkpoints=Path(checkpoints),
            logical_date=_night_of(logical_date, timezone),
            model=model,
            sampling=sampling,
            group=group,
            engine=engine,
            journal=journal,
            power=power,
        )
    )
