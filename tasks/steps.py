"""The six stages as Prefect tasks. What passes through Prefect is references, counts and small frozen values.

No result is persisted or cached by Prefect: the files are the truth, and each stage looks there first.
"""

import logging
from functools import partial
from typing import cast

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.context import FlowRunContext
from prefect.exceptions import ParameterTypeError
from prefect.states import Completed

from tasks import steps, wiring
from tasks.core.config import Config
from tasks.core.errors import NightbatchError
from tasks.night import Night, Stages, run_night
from tasks.progress import LogDisplay, terminal_display

_step = partial(task, cache_policy=NO_CACHE, persist_result=False)

ingest = _step(name="ingest")(wiring.ingest)
group = _step(name="group")(wiring.group)
plan = _step(name="plan")(wiring.plan)
generate = _step(name="generate")(wiring.generate)
collect = _step(name="collect")(wiring.collect)
query = _step(name="query")(wiring.query)


def perform(config: Config) -> Night:
    """The night as Prefect tasks inside a flow run; called outside one, the same functions without Prefect's API."""
    if FlowRunContext.get() is None:
        return run_night(config, wiring, terminal_display())
    logging.getLogger("tasks").setLevel(logging.INFO)
    night = run_night(config, cast("Stages", steps), LogDisplay())  # mypy takes a task's call for its async overload
    return cast("Night", Completed(message=_outcome(night), data=night))  # the flow's caller gets the night


def _outcome(night: Night) -> str:
    manifest = night.manifest
    counts = f"{manifest.results:,} answered, {manifest.failures:,} failed, {manifest.rejects:,} rejected"
    return f"{'nothing left to do: ' if night.was_done else ''}{counts}; {night.results}"


def _one_line(record: logging.LogRecord) -> bool:
    """An error that we raise on purpose says all in its message; Prefect would log its traceback three times."""
    if record.exc_info and isinstance(record.exc_info[1], NightbatchError | ParameterTypeError):
        record.exc_info = None
    return True


for _name in ("prefect.flow_runs", "prefect.task_runs", "prefect.engine"):
    logging.getLogger(_name).addFilter(_one_line)
