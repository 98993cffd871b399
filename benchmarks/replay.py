"""The same sequences through the real engine and the simulated one, and what each of them counts."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tasks.core.plan import PlannedSequence
from tasks.core.protocols import Engine
from tasks.core.request import StepOutput
from tasks.core.step import KVShape
from tasks.engine.scheduling import CacheCounters, EngineShape
from tasks.engine.simulated import SimulatedEngine, StepRecord
from tasks.generate.admission import KVAdmission
from tasks.generate.loop import generate
from tasks.generate.resume import Work

if TYPE_CHECKING:
    from tasks.engine.vllm import VLLMEngine


@dataclass(frozen=True, slots=True)
class Replay:
    """What a run did: counters under the names of tasks.engine.scheduling, cached tokens by key in the order of the ends,
    and the seconds that it took."""

    queried: int
    hit: int
    preemptions: int
    steps: int
    cached: dict[int, int]
    seconds: float

    @property
    def counts(self) -> tuple[int, int, int, int]:
        return self.queried, self.hit, self.preemptions, self.steps

    def error_of(self, other: "Replay") -> float:
        """The largest relative difference of a counter; preemptions are few, and one too many counts as one in a hundred."""
        pairs = zip(self.counts, other.counts, strict=True)
        return max(abs(ours - theirs) / max(ours, 100) for ours, theirs in pairs)


class SmallerCache:
    """The real engine with fewer KV blocks: the others are taken out of vLLM's pool, so that one engine shows many sizes.

    Uses the private block pool of an engine in this process.
    """

    def __init__(self, engine: "VLLMEngine") -> None:
        core: Any = engine._engine.engine_core
        self._pool = core.engine_core.scheduler.kv_cache_manager.block_pool
        self._engine = engine
        self._held: list[Any] = []

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds."""
        return int(self._pool.get_num_free_blocks())

    def resize(self, num_blocks: int) -> None:
        """Forget all that is cached, and have so many blocks from now on. Raises ValueError if the engine has fewer."""
        self._pool.free_blocks(reversed(self._held))
        self._held = []
        self._engine.reset_prefix_cache()
        self._held = self._pool.get_new_blocks(self._engine.shape.num_blocks - num_blocks)


def replay_real(engine: "VLLMEngine", sequences: Sequence[PlannedSequence]) -> Replay:
    """All sequences given to vLLM at once, with what it has cached."""
    before = engine.cache_counters()
    start = time.perf_counter()
    steps, cached = _drain(engine, sequences)
    seconds = time.perf_counter() - start
    after = engine.cache_counters()
    queried, hit = after.queried - before.queried, after.hit - before.hit
    return Replay(queried, hit, after.preemptions - before.preemptions, steps, cached, seconds)


def replay_simulated(
    shape: EngineShape, sequences: Sequence[PlannedSequence], on_steps: Callable[[StepRecord], None] | None = None
) -> Replay:
    """The same without vLLM, with nothing cached before."""
    engine = SimulatedEngine(shape, max_steps_per_call=1 << 30, final_only=True, on_steps=on_steps)
    start = time.perf_counter()
    _, cached = _drain(engine, sequences)
    counters = engine.counters
    seconds = time.perf_counter() - start
    return Replay(counters.queried, counters.hit, counters.preemptions, counters.steps, cached, seconds)


def replay_fed(
    engine: Engine, sequences: Sequence[PlannedSequence], shape: EngineShape, counters: Callable[[], CacheCounters]
) -> Replay:
    """Through the product's loop, which admits by the KV that it predicts."""
    room, heard, before = KVAdmission(KVShape(shape.usable_blocks, shape.block_size)), _Heard(), counters()
    start = time.perf_counter()
    tally = generate(
        map(Work, sequences),
        engine,
        heard,
        max_num_seqs=shape.max_num_seqs,
        should_stop=lambda: False,
        on_step=lambda tally: None,
        room=room,
    )
    seconds, after = time.perf_counter() - start, counters()
    queried, hit = after.queried - before.queried, after.hit - before.hit
    return Replay(queried, hit, after.preemptions - before.preemptions, tally.steps, heard.cached, seconds)


class _Heard:
    """A journal that keeps the cached tokens of each sequence alone."""

    def __init__(self) -> None:
        self.cached: dict[int, int] = {}

    def begin(self, key: int, saved_token_ids: Sequence[int] = ()) -> None:
        return

    def append(self, outputs: Sequence[StepOutput]) -> None:
        self.cached.update((output.key, output.cached_tokens) for output in outputs if output.finish_reason)

    def fail(self, key: int, reason: str) -> None:
        raise AssertionError(f"{key} failed: {reason}")


def compare(
    engine: "VLLMEngine", cache: SmallerCache, sequences: Sequence[PlannedSequence], num_blocks: int
) -> tuple[Replay, Replay]:
    """Both, from an empty cache of so many blocks."""
    cache.resize(num_blocks)
    real = replay_real(engine, sequences)
    return real, replay_simulated(replace(engine.shape, num_blocks=num_blocks), sequences)


def _drain(engine: Engine, sequences: Sequence[PlannedSequence]) -> tuple[int, dict[int, int]]:
    """Calls of `step`, and the cached tokens of each sequence in the order of the ends."""
    for sequence in sequences:
        engine.add_request(sequence, ())
    steps, cached = 0, dict[int, int]()
    while engine.num_unfinished:
        steps += 1
        cached |= {output.key: output.cached_tokens for output in engine.step() if output.finish_reason}
    return steps, cached
