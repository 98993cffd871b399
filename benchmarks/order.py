"""Orders of the same work on real vLLM: goals 2, 3 and 4, interleaved in one run, from an empty cache each time.

    python -m benchmarks.order [--suites S1,S2] [--rounds 5] [--scale 1] [--save FILE] [--table FILE ...] [--record]
    python -m benchmarks.order --simulate --scale 100        without the engine, on any number of requests

Each round runs every order of every suite once, and ours twice, whose ratio is the noise. The ideal is the sorted order with
a cache that holds everything. Answers have their true lengths. A run may be split by suite and by round: --save adds to the
rounds that the file has, and --table makes one table of several files.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.order_table import Measured, print_counts, print_table, results, simulated_results
from benchmarks.orders import ORDERS, checked, full_sort, our_order, with_fields_in_order, without_copies
from benchmarks.replay import Replay, SmallerCache, replay_fed, replay_real, replay_simulated
from benchmarks.rig import record
from benchmarks.served import Lengths, TrueLengths, planned, true_lengths
from benchmarks.suites import BLOCK_SIZE, MAX_NUM_BATCHED_TOKENS, MAX_NUM_SEQS, NAMES, Suite, cacheable_tokens, make_suite
from benchmarks.tail import STEPS
from tasks.core.config import EngineConfig
from tasks.core.plan import PlannedSequence
from tasks.core.protocols import Tokenizer
from tasks.engine.models import resolve_model
from tasks.engine.scheduling import CacheCounters, EngineShape
from tasks.engine.simulated import SimulatedEngine, StepRecord
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
    parser.add_argument("--orders", help="only these and ours; all if unset")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--simulate", action="store_true", help="on the simulated engine, times by the step-time model")
    parser.add_argument("--save", type=Path, help="add the rounds to this file")
    parser.add_argument("--table", type=Path, nargs="+", help="measure nothing; the table of these files")
    parser.add_argument("--record", action="store_true", help="write the results down")
    given = parser.parse_args()
    if given.table:
        measured: Measured = {name: of for path in given.table for name, of in json.loads(path.read_text()).items()}
    else:
        tokenizer = ModelTokenizer(resolve_model(MODEL).path, None)
        suites = [make_suite(name, tokenizer, scale=given.scale) for name in given.suites.split(",")]
        only = given.orders and {*given.orders.split(","), "ours", "ours again"}
        run = simulate if given.simulate else partial(measure, num_rounds=given.rounds, only=only)
        measured = run(suites, tokenizer=tokenizer)
    if given.save:
        measured = merged(given.save, measured)
        given.save.write_text(json.dumps(measured))
    (print_counts if given.simulate else print_table)(measured)
    if given.record:
        record(simulated_results(measured) if given.simulate else results(measured))


@dataclass(frozen=True, slots=True)
class Variant:
    """An order of a suite, with the KV blocks that it has. With the `lengths` of the answers it goes through the product's
    loop, which sees predictions in their place; without, the engine is given all of it at once, as LLM.generate does."""

    name: str
    sequences: list[PlannedSequence]
    num_blocks: int
    lengths: Lengths | None = None


def variants(suite: Suite, all_blocks: int, tokenizer: Tokenizer) -> list[Variant]:
    """All orders of a suite; "ours again" is "ours". A table's fields are put into order in ours and the ideal."""
    ordered = {name: checked(suite, order(suite)) for name, order in ORDERS.items()}
    made = [Variant(name, [item.sequence() for item in items], suite.num_blocks) for name, items in ordered.items()]
    own = with_fields_in_order(suite, tokenizer)
    lengths, predicts = true_lengths(own), "kind" if own.history else "none"
    for name in ("ours", "ours again"):
        sequences = planned(own, checked(own, our_order(own)), predicts)
        made.append(Variant(name, sequences, suite.num_blocks, lengths))
    made.append(Variant("ideal", [item.sequence() for item in full_sort(own)], all_blocks))
    if len(once := without_copies(own)) < len(suite.items):
        made.append(Variant("ours, copies once", planned(own, once, predicts), suite.num_blocks, lengths))
    return made


def measure(suites: Sequence[Suite], tokenizer: Tokenizer, num_rounds: int, only: set[str] | None = None) -> Measured:
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
        if variant.lengths is None:
            return replay_real(engine, variant.sequences)
        fed = TrueLengths(engine, variant.lengths)
        return replay_fed(
            fed, variant.sequences, replace(engine.shape, num_blocks=variant.num_blocks), engine.cache_counters
        )

    work = {suite: variants(suite, engine.shape.num_blocks, tokenizer) for suite in suites}
    facts = {suite.name: _facts(suite, made) for suite, made in work.items()}
    chosen = {suite: [one for one in made if only is None or one.name in only] for suite, made in work.items()}
    return _rounds(chosen, facts, num_rounds, run)


def simulate(suites: Sequence[Suite], tokenizer: Tokenizer) -> Measured:
    """On the simulated engine, once; the seconds are those of the CPU's step-time model."""

    def run(variant: Variant) -> Replay:
        shape, spent = EngineShape(BLOCK_SIZE, variant.num_blocks, MAX_NUM_SEQS, MAX_NUM_BATCHED_TOKENS), _Spent()
        if variant.lengths is None:
            return replace(replay_simulated(shape, variant.sequences, spent.add), seconds=spent.seconds)
        engine = SimulatedEngine(shape, lambda sequence: sequence.sampling.max_tokens, on_steps=spent.add)

        def counters() -> CacheCounters:
            return CacheCounters(engine.counters.queried, engine.counters.hit, engine.counters.preemptions)

        done = replay_fed(TrueLengths(engine, variant.lengths), variant.sequences, shape, counters)
        return replace(done, seconds=spent.seconds)

    work = {suite: variants(suite, BOUNDLESS, tokenizer) for suite in suites}
    return _rounds(work, {suite.name: _facts(suite, made) for suite, made in work.items()}, 1, run)


class _Spent:
    """Seconds of simulated steps by the CPU's step-time model."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def add(self, record: StepRecord) -> None:
        self.seconds += STEPS["CPU"].seconds(
            steps=record.num_steps,
            prefill_tokens=record.prefill_tokens,
            decode_tokens=record.num_steps * record.decode_seqs,
            context_tokens=record.context_tokens,
        )


def _rounds(
    work: dict[Suite, list[Variant]], facts: Measured, num_rounds: int, run: Callable[[Variant], Replay]
) -> Measured:
    """For each suite its facts, and for each order its rounds; within a round the orders come in random order."""
    found: Measured = {
        suite.name: {**facts[suite.name], "rounds": {one.name: [] for one in made}} for suite, made in work.items()
    }
    rng = random.Random()
    for number in range(num_rounds):
        for suite, made in work.items():
            for variant in rng.sample(made, len(made)):
                began = time.process_time()
                done = run(variant)
                cpu = time.process_time() - began
                counts = dict(zip(("queried", "hit", "preemptions", "steps"), done.counts, strict=True))
                found[suite.name]["rounds"][variant.name].append({**counts, "seconds": done.seconds, "cpu": cpu})
                sys.stderr.write(f"round {number}: {suite.name} {variant.name}: {counts}, {done.seconds:.1f} s\n")
    return found


def _facts(suite: Suite, made: Sequence[Variant]) -> dict[str, Any]:
    ideal = next(one for one in made if one.name == "ideal")
    return {
        "requests": len(suite.items),
        "prompt_tokens": suite.prompt_tokens,
        "output_tokens": sum(item.true_tokens for item in suite.items),
        "cacheable_tokens": cacheable_tokens(one.prompt_token_ids for one in ideal.sequences),
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
