"""Orders of the same work on real vLLM: goals 2, 3 and 4, interleaved in one run, from an empty cache each time.

    python -m benchmarks.order [--suites S1,S2] [--rounds 5] [--scale 1] [--save FILE] [--table FILE ...] [--record]
    python -m benchmarks.order --simulate --scale 100        counts without the engine, on any number of requests

Each round runs every order of every suite once, and ours twice, whose ratio is the noise. The ideal is the sorted order with
a cache that holds everything. Answers have their true lengths. A run may be split by suite and by round: --save adds to the
rounds that the file has, and --table makes one table of several files.
"""

import argparse
import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.order_table import Measured, print_counts, print_table, results
from benchmarks.orders import ORDERS, checked, full_sort, without_copies
from benchmarks.replay import Replay, SmallerCache, replay_real, replay_simulated
from benchmarks.rig import record
from benchmarks.suites import BLOCK_SIZE, MAX_NUM_BATCHED_TOKENS, MAX_NUM_SEQS, NAMES, Suite, cacheable_tokens, make_suite
from tasks.core.config import EngineConfig
from tasks.core.plan import PlannedSequence
from tasks.engine.models import resolve_model
from tasks.engine.scheduling import EngineShape
from tasks.engine.tokenizer import ModelTokenizer

MODEL = "SmolLM2-135M-Instruct"
BOUNDLESS = 1 << 22
"""KV blocks, more than any suite needs."""
KV_BYTES = 1 << 30
"""Of the real engine, for the ideal: more than any suite of scale 1 needs."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suites", default=",".join(NAMES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--simulate", action="store_true", help="counts of the simulated engine, no times")
    parser.add_argument("--save", type=Path, help="add the rounds to this file")
    parser.add_argument("--table", type=Path, nargs="+", help="measure nothing; the table of these files")
    parser.add_argument("--record", action="store_true", help="write the results down")
    given = parser.parse_args()
    if given.table:
        measured: Measured = {name: of for path in given.table for name, of in json.loads(path.read_text()).items()}
    else:
        tokenizer = ModelTokenizer(resolve_model(MODEL).path, None)
        suites = [make_suite(name, tokenizer, scale=given.scale) for name in given.suites.split(",")]
        measured = simulate(suites) if given.simulate else measure(suites, given.rounds)
    if given.save:
        measured = merged(given.save, measured)
        given.save.write_text(json.dumps(measured))
    (print_counts if given.simulate else print_table)(measured)
    if given.record:
        record(results(measured))


@dataclass(frozen=True, slots=True)
class Variant:
    """An order of a suite, with the KV blocks that it has."""

    name: str
    sequences: list[PlannedSequence]
    num_blocks: int


def variants(suite: Suite, all_blocks: int) -> list[Variant]:
    """All orders of a suite; "ours again" is the same as "ours"."""
    ordered = {name: checked(suite, order(suite)) for name, order in ORDERS.items()}
    made = [Variant(name, [item.sequence() for item in items], suite.num_blocks) for name, items in ordered.items()]
    made.append(Variant("ours again", made[-1].sequences, suite.num_blocks))
    made.append(Variant("ideal", [item.sequence() for item in full_sort(suite)], all_blocks))
    once = without_copies(suite)
    if len(once) < len(suite.items):
        made.append(Variant("ours, copies once", [item.sequence() for item in once], suite.num_blocks))
    return made


def measure(suites: Sequence[Suite], num_rounds: int) -> Measured:
    """On the real engine. A short run before the first round warms it up."""
    from benchmarks.engine import open_engine_of

    engine = open_engine_of(
        EngineConfig(
            max_num_seqs=MAX_NUM_SEQS,
            max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
            block_size=BLOCK_SIZE,
            kv_cache_memory_bytes=KV_BYTES,
        )
    )
    cache = SmallerCache(engine)
    replay_real(engine, [item.sequence() for item in suites[0].items[:20]])

    def run(variant: Variant) -> Replay:
        cache.resize(variant.num_blocks)
        return replay_real(engine, variant.sequences)

    return _rounds({suite: variants(suite, engine.shape.num_blocks) for suite in suites}, num_rounds, run)


def simulate(suites: Sequence[Suite]) -> Measured:
    """On the simulated engine, once."""

    def run(variant: Variant) -> Replay:
        shape = EngineShape(BLOCK_SIZE, variant.num_blocks, MAX_NUM_SEQS, MAX_NUM_BATCHED_TOKENS)
        return replay_simulated(shape, variant.sequences)

    return _rounds({suite: variants(suite, BOUNDLESS) for suite in suites}, 1, run)


def _rounds(work: dict[Suite, list[Variant]], num_rounds: int, run: Callable[[Variant], Replay]) -> Measured:
    """For each suite its facts, and for each order its rounds; within a round the orders come in random order."""
    found: Measured = {
        suite.name: {**_facts(suite), "rounds": {one.name: [] for one in made}} for suite, made in work.items()
    }
    rng = random.Random()
    for number in range(num_rounds):
        for suite, made in work.items():
            for variant in rng.sample(made, len(made)):
                done = run(variant)
                counts = dict(zip(("queried", "hit", "preemptions", "steps"), done.counts, strict=True))
                found[suite.name]["rounds"][variant.name].append({**counts, "seconds": done.seconds})
                sys.stderr.write(f"round {number}: {suite.name} {variant.name}: {counts}, {done.seconds:.1f} s\n")
    return found


def _facts(suite: Suite) -> dict[str, Any]:
    return {
        "requests": len(suite.items),
        "prompt_tokens": suite.prompt_tokens,
        "output_tokens": sum(item.true_tokens for item in suite.items),
        "cacheable_tokens": cacheable_tokens(item.prompt_token_ids for item in suite.items),
        "num_blocks": suite.num_blocks,
    }


def merged(path: Path, measured: Measured) -> Measured:
    """The rounds of the file, and behind them the new ones. Raises ValueError when it holds rounds of other work."""
    before: Measured = json.loads(path.read_text()) if path.exists() else {}
    for name, suite in measured.items():
        old = before.setdefault(name, {**suite, "rounds": {order: [] for order in suite["rounds"]}})
        if {**old, "rounds": None} != {**suite, "rounds": None} or set(old["rounds"]) != set(suite["rounds"]):
            raise ValueError(f"{path} has rounds of a different {name}; give another file")
        for order, runs in suite["rounds"].items():
            old["rounds"][order] += runs
    return before


if __name__ == "__main__":
    main()
