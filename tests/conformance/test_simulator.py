"""The simulated engine counts what vLLM counts, on small suites of each kind and two sizes of KV cache."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.core.plan import PlannedSequence
from tasks.engine.models import resolve_model
from tasks.engine.tokenizer import ModelTokenizer

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore")]  # vLLM's and torch's own

REPOSITORY = Path(__file__).parent.parent.parent
SUITES = ("S1", "S2", "S3", "S4", "S5")


@pytest.fixture(scope="module")
def work() -> Iterator[dict[str, tuple[list[PlannedSequence], int]]]:
    """Of each suite its sequences, with answers of 40 tokens at most, and its number of KV blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(REPOSITORY))
        from benchmarks.suites import make_suite

        tokenizer = ModelTokenizer(resolve_model("SmolLM2-135M-Instruct").path, 512)
        suites = [make_suite(name, tokenizer, scale=0.2) for name in SUITES]
        yield {suite.name: ([_short(item.sequence()) for item in suite.items], suite.num_blocks) for suite in suites}


def _short(sequence: PlannedSequence) -> PlannedSequence:
    return replace(sequence, sampling=replace(sequence.sampling, max_tokens=min(40, sequence.sampling.max_tokens)))


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize("factor", [0.5, 1.0], ids=["small cache", "larger cache"])
def test_counters_are_vllms(vllm_engine: Any, work: Any, name: str, factor: float) -> None:
    """Queries, hits, preemptions, steps, each request's cached tokens and the order of the ends are the same."""
    from benchmarks.replay import SmallerCache, compare

    sequences, num_blocks = work[name]
    cache = SmallerCache(vllm_engine)
    try:
        real, simulated = compare(vllm_engine, cache, sequences, max(24, int(factor * num_blocks)))
    finally:
        cache.resize(vllm_engine.shape.num_blocks)
    assert real.counts == simulated.counts
    assert list(real.cached.items()) == list(simulated.cached.items())
    assert real.queried == sum(len(sequence.prompt_token_ids) for sequence in sequences)


def test_the_cases_are_telling(vllm_engine: Any, work: Any) -> None:
    """Among them are hits that a larger cache would have had more of, and preemptions."""
    from benchmarks.replay import replay_simulated

    hits, preemptions = 0, 0
    for sequences, num_blocks in work.values():
        small = replay_simulated(replace(vllm_engine.shape, num_blocks=max(24, num_blocks // 2)), sequences)
        large = replay_simulated(replace(vllm_engine.shape, num_blocks=4096), sequences)
        hits += large.hit - small.hit
        preemptions += small.preemptions
    assert hits > 0
    assert preemptions > 0
