"""EngineCounters beside a scheduler that is made up: sums of what passes by."""

from types import SimpleNamespace
from typing import Any

from tasks.core.counters import EngineCounters
from tasks.engine.counting import StepCounts
from tasks.engine.echo import EchoEngine


class Scheduler:
    """Gives the outputs and statistics that it was told."""

    def __init__(self, *, has_stats: bool = True) -> None:
        self.outputs: list[Any] = []
        self.has_stats = has_stats
        self.kv_cache_manager = SimpleNamespace(usage=0.25)

    def schedule(self) -> Any:
        return self.outputs.pop(0)

    def make_stats(self, queries: int, hits: int) -> Any:
        return SimpleNamespace(prefix_cache_stats=SimpleNamespace(queries=queries, hits=hits)) if self.has_stats else None

    def get_request_counts(self) -> tuple[int, int]:
        return 3, 7


def output(scheduled: dict[str, int], new: tuple[str, ...] = (), preempted: set[str] | None = None) -> Any:
    reqs = [SimpleNamespace(req_id=name) for name in new]
    total = sum(scheduled.values())
    return SimpleNamespace(
        num_scheduled_tokens=scheduled,
        total_num_scheduled_tokens=total,
        scheduled_new_reqs=reqs,
        preempted_req_ids=preempted,
    )


def test_sums() -> None:
    """One token of a known sequence is a decode, of a new one the end of its prompt; an empty step is none."""
    scheduler = Scheduler()
    counts = StepCounts(scheduler)
    scheduler.outputs = [output({"a": 50, "b": 1}, ("a", "b")), output({"a": 1, "b": 1, "c": 20}, ("c",), {"d"}), output({})]
    for _ in range(3):
        scheduler.schedule()
    scheduler.make_stats(70, 10)
    scheduler.make_stats(30, 20)
    assert counts.counters() == EngineCounters(
        steps=2, running=3, waiting=7, kv_use=0.25, prefix_queries=100, prefix_hits=30, preemptions=1, prefilled_tokens=71
    )


def test_without_statistics() -> None:
    """What the scheduler does not count is not known, and not 0."""
    scheduler = Scheduler(has_stats=False)
    counts = StepCounts(scheduler)
    assert scheduler.make_stats(1, 1) is None
    assert (counts.counters().prefix_queries, counts.counters().prefix_hits, counts.counters().steps) == (None, None, 0)


def test_the_echo_engine_has_some(make_sequence: Any) -> None:
    """Its steps and what runs and waits in it; of a cache it knows nothing."""
    engine = EchoEngine(max_num_seqs=2)
    for name in "abc":
        engine.add_request(make_sequence(name), ())
    assert engine.counters() == EngineCounters(steps=0, running=2, waiting=1)
    engine.step()
    assert engine.counters().steps == 1
