"""Goal 7 on S4: tokens recomputed after preemptions, and how full the KV cache is, against admission as vLLM does it.

    python -m benchmarks.admission [--scale 40] [--pairs 5] [--record]     simulated, each pair another night
    python -m benchmarks.admission --real [--scale 1] [--record]           one night on vLLM, few KV blocks

The peer gives the engine as many sequences as its batch holds, and vLLM preempts. Both have the plan sorted by prefix. KV
use is the mean share of blocks held while there is work waiting. Lengths are predicted by the median of the kind of question
on the night before, or not at all.
"""

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks.replay import SmallerCache
from benchmarks.rig import Interval, Result, interval, record, result
from benchmarks.served import Night, planned, serve, simulate, true_lengths
from benchmarks.suites import BLOCK_SIZE, Suite, make_suite
from tasks.core.plan import PlannedSequence
from tasks.core.step import KVShape
from tasks.engine.models import resolve_model
from tasks.engine.scheduling import EngineShape
from tasks.engine.tokenizer import ModelTokenizer
from tasks.generate.admission import KVAdmission

if TYPE_CHECKING:
    from tasks.engine.vllm import VLLMEngine

NAME = "admission"
MODEL = "SmolLM2-135M-Instruct"
SIZES = ((64, 1.0), (256, 3.0))
"""Sequences in the batch, and KV blocks as a multiple of the suite's: so many that not all of the batch finds room."""
_BUDGET = 2048


def open_tokenizer() -> ModelTokenizer:
    return ModelTokenizer(resolve_model(MODEL).path, None)


def sorted_plan(suite: Suite, predicts: str) -> list[PlannedSequence]:
    """By source and prompt: a walk of the trie."""
    items = sorted(suite.items, key=lambda item: (item.source, item.prompt_token_ids))
    return planned(suite, items, predicts)


def use_of(night: Night, shape: EngineShape) -> float:
    return night.fed_blocks / max(night.fed_steps, 1) / shape.usable_blocks


def recomputed_of(night: Night) -> float:
    return night.counters.recomputed / night.counters.computed


def simulated(suites: list[Suite], predicts: str, max_num_seqs: int, blocks: float) -> list[Result]:
    """Both admissions on each night."""
    recomputed, uses, peer, preemptions = [], [], [], []
    for suite in suites:
        shape = EngineShape(BLOCK_SIZE, int(suite.num_blocks * blocks), max_num_seqs, _BUDGET)
        plan, lengths = sorted_plan(suite, predicts), true_lengths(suite)
        default = simulate(plan, lengths, shape, None)
        ours = simulate(plan, lengths, shape, KVAdmission(KVShape(shape.usable_blocks, BLOCK_SIZE)))
        recomputed.append(recomputed_of(ours))
        peer.append(recomputed_of(default))
        uses.append(use_of(ours, shape) / use_of(default, shape))
        preemptions.append(f"{ours.counters.preemptions}/{default.counters.preemptions}")
        sys.stderr.write(f"{predicts} {max_num_seqs}: {recomputed[-1]:.4%} of {peer[-1]:.2%}, use {uses[-1]:.3f}\n")
    what = f"simulated, batch {max_num_seqs}, lengths predicted by {predicts}"
    detail: dict[str, Any] = {"nights": len(suites), "sequences": len(suites[0].items), "blocks": shape.usable_blocks}
    detail |= {"preemptions_of_peer": " ".join(preemptions), "peer_recomputed": interval(peer).median}
    return results(what, interval(recomputed), interval(uses), detail)


def results(what: str, recomputed: Interval | float, use: Interval | float, detail: dict[str, Any]) -> list[Result]:
    worst = recomputed.high if isinstance(recomputed, Interval) else recomputed
    least = use.low if isinstance(use, Interval) else use
    return [
        result(NAME, "7", f"{what}: recomputed / all tokens", recomputed, "<= 0.001", worst <= 0.001, **detail),
        result(NAME, "7", f"{what}: KV use / default admission's", use, ">= 0.95", least >= 0.95),
    ]


def real(suite: Suite, max_num_seqs: int, blocks: float) -> list[Result]:
    """Both admissions on vLLM, one after the other from an empty cache."""
    engine, cache = open_small(max_num_seqs)
    num_blocks, plan, lengths = int(suite.num_blocks * blocks), sorted_plan(suite, "kind"), true_lengths(suite)
    shape = replace(engine.shape, num_blocks=num_blocks)
    default = serve(engine, cache, plan, lengths, num_blocks, None)
    ours = serve(engine, cache, plan, lengths, num_blocks, KVAdmission(KVShape(shape.usable_blocks, BLOCK_SIZE)))
    detail: dict[str, Any] = {
        "sequences": len(plan),
        "blocks": shape.usable_blocks,
        "peer_recomputed": recomputed_of(default),
    }
    for name in ("preemptions", "steps"):
        detail[name] = f"{getattr(ours.counters, name)}/{getattr(default.counters, name)}"
    use = use_of(ours, shape) / use_of(default, shape)
    return results(f"vLLM, batch {max_num_seqs}, lengths predicted by kind", recomputed_of(ours), use, detail)


def open_small(max_num_seqs: int) -> "tuple[VLLMEngine, SmallerCache]":
    """vLLM with the embedded model, and the handle on the size of its cache."""
    from benchmarks.engine import open_engine_of
    from tasks.core.config import EngineConfig

    config = EngineConfig(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=_BUDGET,
        block_size=BLOCK_SIZE,
        kv_cache_memory_bytes=512 << 20,
    )
    engine = open_engine_of(config)
    return engine, SmallerCache(engine)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", action="store_true", help="on vLLM instead of the simulated engine")
    parser.add_argument("--scale", type=float)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="write the results down")
    given = parser.parse_args()
    if given.real:
        found = real(make_suite("S4", open_tokenizer(), scale=given.scale or 1), 48, 1.0)
    else:
        suites = [make_suite("S4", open_tokenizer(), scale=given.scale or 40, seed=seed) for seed in range(given.pairs)]
        found = [one for of in SIZES for predicts in ("kind", "none") for one in simulated(suites, predicts, *of)]
    for one in found:
        sys.stdout.write(f"{one.measure}: {one.value:.5f} [{one.low:.5f}, {one.high:.5f}] {one.detail}\n")
    if given.record:
        record(found)


if __name__ == "__main__":
    main()
