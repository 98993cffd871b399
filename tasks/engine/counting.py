"""What vLLM's scheduler has done since its start, in sums, and what it holds now: for telemetry, at any time and for next
to nothing.

vLLM publishes such numbers through a registry of metrics, which takes longer to read than a short step lasts. This reaches
for the scheduler itself (vLLM 0.32, in-process) and adds up what passes by: a few integers a step.
"""

from typing import Any

from tasks.core.counters import EngineCounters


class StepCounts:
    """Stands between an engine core and its scheduler's `schedule` and `make_stats`; with the scheduler's statistics off,
    there is nothing known of the prefix cache."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._schedule, self._make_stats = scheduler.schedule, scheduler.make_stats
        scheduler.schedule, scheduler.make_stats = self._scheduled, self._made_stats
        self._steps = self._prefilled = self._preemptions = 0
        self._queries: int | None = None
        self._hits: int | None = None

    def counters(self) -> EngineCounters:
        """All but tokens generated, which the loop counts, and the engine's life, which its supervisor knows."""
        running, waiting = self._scheduler.get_request_counts()
        return EngineCounters(
            steps=self._steps,
            running=running,
            waiting=waiting,
            kv_use=float(self._scheduler.kv_cache_manager.usage),
            prefix_queries=self._queries,
            prefix_hits=self._hits,
            preemptions=self._preemptions,
            prefilled_tokens=self._prefilled,
        )

    def _scheduled(self, *arguments: Any, **named: Any) -> Any:
        output = self._schedule(*arguments, **named)
        if output.total_num_scheduled_tokens:
            self._steps += 1
            self._prefilled += output.total_num_scheduled_tokens - _num_decodes(output)
            self._preemptions += len(output.preempted_req_ids or ())
        return output

    def _made_stats(self, *arguments: Any, **named: Any) -> Any:
        stats = self._make_stats(*arguments, **named)
        if stats is not None:
            self._queries = (self._queries or 0) + stats.prefix_cache_stats.queries
            self._hits = (self._hits or 0) + stats.prefix_cache_stats.hits
        return stats


def _num_decodes(output: Any) -> int:
    """Known sequences with one token, as in load.py; new ones with one token are the end of a cached prompt."""
    scheduled = output.num_scheduled_tokens
    ones: int = list(scheduled.values()).count(1)
    return ones - sum(bool(scheduled[new.req_id] == 1) for new in output.scheduled_new_reqs)
