"""The ad hoc flow: the files somebody names, now."""

from pathlib import Path

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
    PowerParameter,
    Rows,
    SamplingParameter,
)
from tasks.steps import perform
from tasks.storage.remote import redacted


def _run_name() -> str:
    given = runtime.flow_run.parameters
    names = [given.get("source")] if given.get("source") else [Path(redacted(path)).name for path in given["inputs"]]
    return f"adhoc-{'-'.join(names[:3])}"


@flow(name="adhoc", flow_run_name=_run_name, persist_result=False)
def adhoc(
    inputs: list[str],
    source: str | None = None,
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
    """Answer these files; run again with the same files and settings it resumes or does nothing.

    Args:
        inputs: Files, folders, patterns or URLs that the worker can read.
        source: Business source of all rows; by default each file's or folder's name.
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
            input=InputConfig(paths=tuple(inputs), source=source, max_reject_rate=rows.max_reject_rate, rows=rows.config),
            data=Path(data),
            checkpoints=Path(checkpoints),
            model=model,
            sampling=sampling,
            group=group,
            engine=engine,
            journal=journal,
            power=power,
        )
    )
