"""The simulated engine against vLLM's own counters: S1 to S5, two cache sizes each, in the order of arrival and sorted.

    python -m benchmarks.simulator [--suites S1,S2] [--scale 0.5] [--record]

Queries, hits, preemptions and steps must agree within 1 % (aim: be equal), and so must each request's cached tokens.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence

from benchmarks.engine import MODEL, open_engine_of
from benchmarks.replay import Replay, SmallerCache, compare
from benchmarks.rig import Result, record, result
from benchmarks.suites import BLOCK_SIZE, MAX_NUM_BATCHED_TOKENS, MAX_NUM_SEQS, NAMES, Suite, make_suite
from tasks.core.config import EngineConfig
from tasks.core.plan import PlannedSequence
from tasks.engine.models import resolve_model
from tasks.engine.tokenizer import ModelTokenizer

TOLERANCE = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suites", default=",".join(NAMES))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--record", action="store_true", help="write the results down")
    given = parser.parse_args()
    tokenizer = ModelTokenizer(resolve_model(MODEL).path, None)
    suites = [make_suite(name, tokenizer, scale=given.scale) for name in given.suites.split(",")]
    config = EngineConfig(
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
        block_size=BLOCK_SIZE,
        kv_cache_memory_bytes=512 << 20,
    )
    engine = open_engine_of(config)
    cache = SmallerCache(engine)
    found = []
    for suite in suites:
        for order, sequences, num_blocks in _cases(suite):
            real, simulated = compare(engine, cache, sequences, num_blocks)
            found.append(_result(f"{suite.name}, {num_blocks} blocks, {order}", real, simulated))
    if given.record:
        record(found)


def _cases(suite: Suite) -> Iterator[tuple[str, list[PlannedSequence], int]]:
    """An order's name, the sequences in it, and the number of KV blocks."""
    arrival = [item.sequence() for item in suite.items]
    for num_blocks in (suite.num_blocks, 2 * suite.num_blocks):
        yield "arrival", arrival, num_blocks
        yield "sorted", sorted(arrival, key=lambda sequence: sequence.prompt_token_ids), num_blocks


def _result(case: str, real: Replay, simulated: Replay) -> Result:
    error = real.error_of(simulated)
    names = ("queried", "hit", "preemptions", "steps")
    counts = {name: f"{a}/{b}" for name, a, b in zip(names, real.counts, simulated.counts, strict=True)}
    same = list(real.cached.items()) == list(simulated.cached.items())
    speed_up = real.seconds / simulated.seconds
    found = result(
        "simulator",
        "3",
        f"{case}: largest error of a counter",
        error,
        f"<= {TOLERANCE}",
        error <= TOLERANCE,
        **counts,
        each_request="equal" if same else "different",
        times_faster=round(speed_up),
    )
    _print([case, *counts.values(), f"{error:.4f}", found.detail["each_request"], f"{real.seconds:.1f} s"])
    return found


def _print(cells: Sequence[object]) -> None:
    sys.stdout.write(" | ".join(f"{cell!s:>14}" for cell in cells) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
