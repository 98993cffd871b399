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
NUM_BLOCKS = (18, 28)
"""In the smaller cache the longest sequence hardly fits."""


@pytest.fixture(scope="module")
def work() -> Iterator[dict[str, list[PlannedSequence]]]:
    """Of each suite some sequences, with answers of 40 tokens at most."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(REPOSITORY))
        from benchmarks.suites import make_suite

        tokenizer = ModelTokenizer(resolve_model("SmolLM2-135M-Instruct").path, 512)
        suites = [make_suite(name, tokenizer, scale=0.2) for name in SUITES]
        yield {suite.name: [_short(item.sequence()) for item in suite.items[:14]] for suite in suites}


def _short(sequence: PlannedSequence) -> PlannedSequence:
    return replace(sequence, sampling=replace(sequence.sampling, max_tokens=min(40, sequence.sampling.max_tokens)))


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize("num_blocks", NUM_BLOCKS)
def test_counters_are_vllms(vllm_engine: Any, work: Any, name: str, num_blocks: int) -> None:
    """Queries, hits, preemptions, steps, each request's cached tokens and the order of the ends are the same."""
    from benchmarks.replay import SmallerCache, compare

    sequences = work[name]
    cache = SmallerCache(vllm_engine)
    try:
        real, simulated = compare(vllm_engine, cache, sequences, num_blocks)
    finally:
        cache.resize(vllm_engine.shape.num_blocks)  # the session's other tests need it whole
    assert real.counts == simulated.counts
    assert list(real.cached.items()) == list(simulated.cached.items())
    assert real.queried == sum(len(sequence.prompt_token_ids) for sequence in sequences)


def test_the_cases_are_telling(vllm_engine: Any, work: Any) -> None:
    """Among them are hits that a larger cache would have had more of, and preemptions."""
    from benchmarks.replay import replay_simulated

    shapes = [replace(vllm_engine.shape, num_blocks=number) for number in (*NUM_BLOCKS, 4096)]
    smaller, _, boundless = [[replay_simulated(shape, sequences) for sequences in work.values()] for shape in shapes]
    assert sum(run.hit for run in smaller) < sum(run.hit for run in boundless)
    assert sum(run.preemptions for run in smaller) > 0
