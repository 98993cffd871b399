"""Orders of the same work on real vLLM: goals 2, 3 and 4, interleaved in one run, from an empty cache each time.

    python -m benchmarks.order [--suites S1,S2] [--rounds 5] [--scale 1] [--save FILE] [--table FILE ...] [--record]

Each round runs every order of every suite once, and ours twice, whose ratio is the noise. The ideal is the sorted order with
a cache that holds everything. Answers have their true lengths. Runs may be split by suite: each saves its rounds, and
--table makes the table of saved ones.
"""

import argparse
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.order_table import print_table, results
from benchmarks.orders import ORDERS, checked, full_sort, without_copies
from benchmarks.rig import record
from benchmarks.suites import BLOCK_SIZE, MAX_NUM_BATCHED_TOKENS, MAX_NUM_SEQS, NAMES, Suite, cacheable_tokens, make_suite
from tasks.core.config import EngineConfig
from tasks.core.plan import PlannedSequence

KV_BYTES = 1 << 30
"""More than any suite's working set."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suites", default=",".join(NAMES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--save", type=Path, help="write the rounds to this file")
    parser.add_argument("--table", type=Path, nargs="+", help="measure nothing; the table of these files")
    parser.add_argument("--record", action="store_true", help="write the results down")
    given = parser.parse_args()
    if given.table:
        measured = [json.loads(path.read_text()) for path in given.table]
        found = {name: of for one in measured for name, of in one.items()}
    else:
        found = measure(given.suites.split(","), given.rounds, given.scale)
    if given.save:
        given.save.write_text(json.dumps(found))
    print_table(found)
    if given.record:
        record(results(found))


@dataclass(frozen=True, slots=True)
class Variant:
    """An order of a suite, with the KV blocks that it has."""

    name: str
    sequences: list[PlannedSequence]
    num_blocks: int


def variants(suite: Suite, all_blocks: int) -> list[Variant]:
    ordered = {name: checked(suite, order(suite)) for name, order in ORDERS.items()}
    made = [Variant(name, [item.sequence() for item in items], suite.num_blocks) for name, items in ordered.items()]
    made.append(Variant("ours again", made[-1].sequences, suite.num_blocks))
    made.append(Variant("ideal", [item.sequence() for item in full_sort(suite)], all_blocks))
    once = without_copies(suite)
    if len(once) < len(suite.items):
        made.append(Variant("ours, copies once", [item.sequence() for item in once], suite.num_blocks))
    return made


def measure(names: Sequence[str], num_rounds: int, scale: float) -> dict[str, dict[str, object]]:
    """For each suite what it is, and for each order its rounds."""
    from benchmarks.engine import MODEL, open_engine_of
    from benchmarks.replay import SmallerCache, replay_real
    from tasks.engine.models import resolve_model
    from tasks.engine.tokenizer import ModelTokenizer

    tokenizer = ModelTokenizer(resolve_model(MODEL).path, None)
    suites = [make_suite(name, tokenizer, scale=scale) for name in names]
    engine = open_engine_of(
        EngineConfig(
            max_num_seqs=MAX_NUM_SEQS,
            max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
            block_size=BLOCK_SIZE,
            kv_cache_memory_bytes=KV_BYTES,
        )
    )
    cache = SmallerCache(engine)
    work = {suite.name: variants(suite, engine.shape.num_blocks) for suite in suites}
    rounds: dict[str, dict[str, list[dict[str, object]]]] = {
        name: {variant.name: [] for variant in made} for name, made in work.items()
    }
    rng = random.Random(0)
    for number in range(num_rounds + 1):  # the first warms up, and does not count
        for name, made in work.items():
            for variant in rng.sample(made, len(made)):
                cache.resize(variant.num_blocks)
                found = asdict(replay_real(engine, variant.sequences))
                del found["cached"]
                if number:
                    rounds[name][variant.name].append(found)
                sys.stderr.write(f"{number} {name} {variant.name}: {found}\n")
    return {suite.name: {**_facts(suite), "rounds": rounds[suite.name]} for suite in suites}


def _facts(suite: Suite) -> dict[str, object]:
    return {
        "requests": len(suite.items),
        "prompt_tokens": suite.prompt_tokens,
        "output_tokens": sum(item.true_tokens for item in suite.items),
        "cacheable_tokens": cacheable_tokens(item.prompt_token_ids for item in suite.items),
        "num_blocks": suite.num_blocks,
    }


if __name__ == "__main__":
    main()
