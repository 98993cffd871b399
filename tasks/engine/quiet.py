"""Steps in which each running sequence gets a token and nothing else happens, taken together.

Nobody ends before the last of them, nobody is preempted and nobody can be admitted, so what is left are the blocks that
sequences begin and fill. They are handled in the order in which single steps would; the result is the same (property test).
"""

from collections.abc import Iterator

from tasks.engine.scheduling import Scheduled, Scheduler


def quiet_steps(scheduler: Scheduler, limit: int) -> int:
    """How many quiet steps are ahead, `limit` at most: 0 when the next step is none.

    All running sequences must be decoding.
    """
    running, shape = scheduler.running, scheduler.shape
    if not running or len(running) > shape.max_num_batched_tokens:
        return 0
    limit = min(limit, min([sequence.end_tokens - sequence.num_tokens for sequence in running]))
    if limit < 1 or _can_admit(scheduler):
        return 0
    return min(limit, _until_full(scheduler, limit), _until_hit(scheduler, limit))


def run_quietly(scheduler: Scheduler, steps: int) -> list[Scheduled]:
    """Take so many quiet steps; those that got tokens, in order."""
    running, pool, counters = list(scheduler.running), scheduler.pool, scheduler.counters
    counters.held_blocks += steps * pool.num_held
    for step, index, is_full in sorted(_events(scheduler, steps)):
        sequence = running[index]
        if is_full:
            scheduler.cache_full_blocks(sequence, sequence.num_computed + step + 1)
        else:
            sequence.blocks += pool.take(1)
            counters.held_blocks += steps - step
    counters.peak_blocks = max(counters.peak_blocks, pool.num_held)
    counters.steps += steps
    counters.decoded += steps * len(running)
    for sequence in running:
        sequence.num_computed += steps
        sequence.num_tokens += steps
    scheduler.drop_finished(running)
    return running


def _can_admit(scheduler: Scheduler) -> bool:
    """Whether the first of the queue would be admitted in the next step, as far as this can be told before it."""
    if not scheduler.waiting or len(scheduler.running) >= scheduler.shape.max_num_seqs:
        return False
    first = scheduler.waiting[0]
    return not (scheduler.shape.reserve_full_isl and not scheduler.has_room_for(first, scheduler.hits(first)))


def _events(scheduler: Scheduler, steps: int) -> Iterator[tuple[int, int, bool]]:
    """Step, index among the running ones, and whether a block is full there or begun; in one step it is begun first."""
    block_size = scheduler.shape.block_size
    last = block_size - 1
    for index, sequence in enumerate(scheduler.running):
        place = sequence.num_computed % block_size
        if place == 0 or place + steps > last:
            for step in range(-place % block_size, steps, block_size):
                yield step, index, False
            for step in range(last - place, steps, block_size):
                yield step, index, True


def _until_full(scheduler: Scheduler, limit: int) -> int:
    """Steps before one for which there are too few free blocks."""
    block_size, free = scheduler.shape.block_size, scheduler.pool.num_free
    if len(scheduler.running) * (limit // block_size + 1) <= free:
        return limit
    begun = [
        step for sequence in scheduler.running for step in range(-sequence.num_computed % block_size, limit, block_size)
    ]
    return limit if len(begun) <= free else sorted(begun)[free]


def _until_hit(scheduler: Scheduler, limit: int) -> int:
    """Steps before one that fills a block which the first of the queue, waiting for room, could begin with."""
    if not scheduler.waiting or len(scheduler.running) >= scheduler.shape.max_num_seqs:
        return limit
    wanted, block_size = set(scheduler.waiting[0].hashes), scheduler.shape.block_size
    for sequence in scheduler.running:
        sequence.hash_blocks((sequence.num_computed + limit) // block_size, block_size)
        for i in range(sequence.num_cached_blocks, len(sequence.hashes)):
            if sequence.hashes[i] in wanted:
                limit = min(limit, (i + 1) * block_size - sequence.num_computed - 1)
    return limit
