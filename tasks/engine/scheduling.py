"""Which sequence computes how many tokens in a step, by the rules of vLLM 0.32's V1 scheduler, without vLLM.

Read from vLLM's v1/core/sched/scheduler.py (schedule, update_from_output) and kv_cache_manager.py (get_computed_blocks,
allocate_slots), for a dense model with full attention and without speculation or asynchronous scheduling. Running sequences
come first, in the order of their admission, then waiting ones, first come, first served, until the tokens of the step are
spent. When a running sequence finds no block, the last of the running ones is put back to the front of the queue, loses
its blocks and computes all its tokens again. Invariant: each unfinished sequence is in exactly one of the two queues, and
only running ones hold blocks.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tasks.core.plan import PlannedSequence
from tasks.engine.kv_pool import KVPool, next_hash


@dataclass(frozen=True, slots=True)
class EngineShape:
    """The settings of an engine that decide what it schedules, by vLLM's names.

    `num_blocks` is vLLM's num_gpu_blocks (one of them holds nothing), `watermark` the share of them that an admission
    leaves free; `reserve_full_isl` admits only what has room for all the tokens it has so far.
    """

    block_size: int
    num_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    watermark: float = 0.0
    reserve_full_isl: bool = True

    @property
    def usable_blocks(self) -> int:
        return self.num_blocks - 1

    @property
    def watermark_blocks(self) -> int:
        return int(self.watermark * self.num_blocks)

    def blocks_of(self, num_tokens: int) -> int:
        """Blocks that so many tokens of one sequence fill or begin."""
        return -(-num_tokens // self.block_size)


class CacheCounters(NamedTuple):
    """vLLM's own counters since its start, in tokens and in preemptions, under the names of tasks.engine.scheduling."""

    queried: int
    hit: int
    preemptions: int


@dataclass(slots=True)
class Counters:
    """What an engine of this shape has done since it began; all but the last four are in tokens.

    `queried` and `hit` are vLLM's prefix_cache_queries and prefix_cache_hits, which leave out what was looked up again after
    a preemption. `computed` is `prefilled` plus `decoded`; `recomputed`, a part of it, had been computed before a
    preemption. `held_blocks` is summed over steps.
    """

    queried: int = 0
    hit: int = 0
    prefilled: int = 0
    decoded: int = 0
    recomputed: int = 0
    preemptions: int = 0
    steps: int = 0
    held_blocks: int = 0
    peak_blocks: int = 0

    @property
    def computed(self) -> int:
        return self.prefilled + self.decoded

    @property
    def mean_blocks(self) -> float:
        """KV blocks in use, over all steps."""
        return self.held_blocks / self.steps if self.steps else 0.0


@dataclass(slots=True, eq=False)
class Scheduled:
    """A sequence in the scheduler: its tokens so far and how many of them the KV cache has.

    `given` are the prompt and the saved tokens, `answer` what it generates from there on; it ends with `end_tokens`, when it
    has all of it.
    """

    planned: PlannedSequence
    given: tuple[int, ...]
    answer: Sequence[int]
    num_tokens: int = 0
    end_tokens: int = 0
    num_computed: int = 0
    num_cached_blocks: int = 0
    num_preemptions: int = 0
    computed_before: int = 0
    cached_tokens: int = 0
    blocks: list[int] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.num_tokens = len(self.given)
        self.end_tokens = len(self.given) + len(self.answer)

    @property
    def num_generated(self) -> int:
        return self.num_tokens - len(self.given)

    def hash_blocks(self, number: int, block_size: int) -> None:
        """Know the hashes of its first full blocks."""
        for i in range(len(self.hashes), number):
            parent = self.hashes[-1] if self.hashes else b""
            self.hashes.append(next_hash(parent, self._tokens(i * block_size, (i + 1) * block_size)))

    def _tokens(self, start: int, end: int) -> Sequence[int]:
        behind = len(self.given)
        if end <= behind:
            return self.given[start:end]
        return (*self.given[start:end], *self.answer[max(0, start - behind) : end - behind])


@dataclass(slots=True)
class Scheduler:
    """The two queues and the blocks. A step is `schedule`, then `settle` of what it returned."""

    shape: EngineShape
    counters: Counters = field(default_factory=Counters)
    running: list[Scheduled] = field(default_factory=list)
    waiting: deque[Scheduled] = field(default_factory=deque)
    pool: KVPool = field(init=False)

    def __post_init__(self) -> None:
        self.pool = KVPool(self.shape.num_blocks)

    def remove(self, sequence: Scheduled) -> None:
        """Take an unfinished sequence out."""
        self.pool.release(sequence.blocks)
        (self.running if sequence in self.running else self.waiting).remove(sequence)

    def schedule(self) -> list[tuple[Scheduled, int]]:
        """The sequences of the next step, each with the number of its tokens; they have their blocks."""
        step: list[tuple[Scheduled, int]] = []
        preemptions = self.counters.preemptions
        budget = self._schedule_running(step)
        if self.counters.preemptions == preemptions:
            self._schedule_waiting(step, budget)
        self.counters.steps += 1
        self._count_held(self.pool.num_held)
        return step

    def settle(self, step: list[tuple[Scheduled, int]]) -> list[Scheduled]:
        """The step is computed: those that got a token, in order; who has all of its answer gives its blocks back."""
        served = []
        for sequence, new in step:
            sequence.num_computed += new
            if sequence.num_computed == sequence.num_tokens:
                sequence.num_tokens += 1
                served.append(sequence)
        self.drop_finished(served)
        return served

    def drop_finished(self, served: list[Scheduled]) -> None:
        """Those that have all of their answer give their blocks back, in this order."""
        finished = [sequence for sequence in served if sequence.num_tokens == sequence.end_tokens]
        for sequence in finished:
            self.pool.release(sequence.blocks)
        if finished:
            self.running = [sequence for sequence in self.running if sequence.num_tokens < sequence.end_tokens]

    def hits(self, sequence: Scheduled) -> list[int]:
        """The cached blocks it could begin with; its last token is always computed, so that there are logits."""
        limit = (sequence.num_tokens - 1) // self.shape.block_size
        sequence.hash_blocks(limit, self.shape.block_size)
        return self.pool.cached_run(sequence.hashes, limit)

    def has_room_for(self, sequence: Scheduled, hits: list[int]) -> bool:
        """Whether all the tokens it has so far find blocks now, and the watermark is kept beside a running sequence."""
        watermark = self.shape.watermark_blocks if self.running else 0
        wanted = self.shape.blocks_of(sequence.num_tokens) - len(hits)
        return wanted + self.pool.num_idle(hits) + watermark <= self.pool.num_free

    def cache_full_blocks(self, sequence: Scheduled, num_tokens: int) -> None:
        """The blocks that so many computed tokens fill can be found from now on, also by sequences of the same step."""
        full = num_tokens // self.shape.block_size
        if full > sequence.num_cached_blocks:
            sequence.hash_blocks(full, self.shape.block_size)
            for i in range(sequence.num_cached_blocks, full):
                self.pool.cache(sequence.blocks[i], sequence.hashes[i])
            sequence.num_cached_blocks = full

    def _count_held(self, held: int) -> None:
        self.counters.held_blocks += held
        self.counters.peak_blocks = max(self.counters.peak_blocks, held)

    def _schedule_running(self, step: list[tuple[Scheduled, int]]) -> int:
        """Tokens of the step that are left when the running sequences have theirs."""
        budget, index, block_size = self.shape.max_num_batched_tokens, 0, self.shape.block_size
        last, decoded = block_size - 1, 0
        while index < len(self.running) and budget > 0:
            sequence = self.running[index]
            new = sequence.num_tokens - sequence.num_computed
            decoded += new == 1
            if new > 1 or not 0 < sequence.num_computed % block_size < last:  # else no block begins or is full
                new = min(new, budget)
                if not self._make_room(sequence, new):
                    decoded -= new == 1
                    break
                self._allocate(sequence, new)
            step.append((sequence, new))
            budget -= new
            index += 1
        self.counters.decoded += decoded
        self.counters.prefilled += self.shape.max_num_batched_tokens - budget - decoded
        return budget

    def _make_room(self, sequence: Scheduled, new: int) -> bool:
        """Preempt from the end of the running ones until there are blocks; False when the sequence itself had to go."""
        wanted = self.shape.blocks_of(sequence.num_computed + new) - len(sequence.blocks)
        while wanted > self.pool.num_free:
            victim = self.running.pop()
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _preempt(self, victim: Scheduled) -> None:
        self.pool.release(victim.blocks)
        victim.blocks = []
        victim.computed_before = max(victim.computed_before, victim.num_computed)
        victim.num_computed = victim.num_cached_blocks = 0
        victim.num_preemptions += 1
        self.waiting.appendleft(victim)
        self.counters.preemptions += 1

    def _schedule_waiting(self, step: list[tuple[Scheduled, int]], budget: int) -> None:
        while budget > 0 and self.waiting and len(self.running) < self.shape.max_num_seqs:
            sequence = self.waiting[0]
            hits = self.hits(sequence)
            new = min(sequence.num_tokens - len(hits) * self.shape.block_size, budget)
            if not self._admit(sequence, hits, new):
                return
            self.running.append(self.waiting.popleft())
            step.append((sequence, new))
            self.counters.prefilled += new
            budget -= new

    def _admit(self, sequence: Scheduled, hits: list[int], new: int) -> bool:
        if self.shape.reserve_full_isl and not self.has_room_for(sequence, hits):
            return False
        hit = len(hits) * self.shape.block_size
        watermark = self.shape.watermark_blocks if self.running else 0
        wanted = self.shape.blocks_of(hit + new) - len(hits)
        if wanted + self.pool.num_idle(hits) + watermark > self.pool.num_free:
            return False
        self.pool.hold(hits)
        sequence.blocks, sequence.num_computed, sequence.num_cached_blocks = hits, hit, len(hits)
        if not sequence.num_preemptions:
            sequence.cached_tokens = hit
            self.counters.queried += sequence.num_tokens
            self.counters.hit += hit
        self._allocate(sequence, new)
        return True

    def _allocate(self, sequence: Scheduled, new: int) -> None:
        computed = sequence.num_computed + new
        wanted = self.shape.blocks_of(computed) - len(sequence.blocks)
        if wanted > 0:
            sequence.blocks += self.pool.take(wanted)
        self.cache_full_blocks(sequence, computed)
        if sequence.num_computed < sequence.computed_before:
            self.counters.recomputed += min(computed, sequence.computed_before) - sequence.num_computed
