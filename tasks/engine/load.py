"""What vLLM's scheduler put into each step, read from its own output.

vLLM tells nobody how many prompt tokens a step computed, so this reaches for the scheduler (vLLM 0.32, in-process) and keeps
what it last returned: no copy, and the sums are made when somebody asks. Where batches overlap (asynchronous scheduling), a
call of `step` waits for the batch that was scheduled `lag` calls before.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from tasks.core.step import StepLoad


class ScheduleWatch:
    """Stands between an engine core and its scheduler's `schedule`."""

    def __init__(self, scheduler: Any, lag: int = 0) -> None:
        self._recent: deque[Any] = deque(maxlen=lag + 1)
        self._lag = lag
        self._schedule: Callable[..., Any] = scheduler.schedule
        scheduler.schedule = self._scheduled

    def _scheduled(self, *arguments: Any, **named: Any) -> Any:
        output = self._schedule(*arguments, **named)
        self._recent.append(output)
        return output

    def last(self) -> StepLoad:
        """The load of the batch that the last `step` waited for; an empty one where there was none."""
        return load_of(self._recent[0]) if len(self._recent) > self._lag else StepLoad()


def load_of(output: Any) -> StepLoad:
    """The sums over a `SchedulerOutput`: a known sequence with one token decodes, all else is prefill."""
    scheduled, cached = output.num_scheduled_tokens, output.scheduled_cached_reqs
    decodes = context = 0
    for request_id, computed in zip(cached.req_ids, cached.num_computed_tokens, strict=True):
        number = scheduled[request_id]
        decodes += number == 1
        context += _attended(number, computed)
    context += sum(_attended(scheduled[new.req_id], new.num_computed_tokens) for new in output.scheduled_new_reqs)
    return StepLoad(output.total_num_scheduled_tokens - decodes, decodes, context)


def _attended(number: int, computed: int) -> int:
    """How many tokens these tokens attend to, themselves among them."""
    return number * computed + number * (number + 1) // 2
