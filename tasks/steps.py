"""The six stages as Prefect tasks. What passes through Prefect is references, counts and small frozen values.

No result is persisted or cached by Prefect: the files are the truth, and each stage looks there first.
"""

import logging
from functools import partial
from typing import cast

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.context import FlowRunContext

from tasks import steps, wiring
from tasks.core.config import Config
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
    return run_night(config, cast("Stages", steps), LogDisplay())  # mypy takes a task's call for its async overload
