"""What the real engine says of its steps and of its KV cache."""

from dataclasses import replace
from typing import Any
from zlib import crc32

import pytest

from tasks.core.plan import PlannedSequence
from tasks.core.request import SamplingParams
from tasks.core.step import StepLoad
from tasks.engine.models import resolve_model

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore")]  # vLLM's and torch's own


def sequences(name: str, lengths: list[int]) -> list[PlannedSequence]:
    params = SamplingParams(max_tokens=3, ignore_eos=True)
    key = crc32(name.encode())
    first = key % 30_000
    return [
        PlannedSequence(key + i, "", 0, 0, tuple(1000 + (first + 700 * i + j) % 40_000 for j in range(n)), params)
        for i, n in enumerate(lengths)
    ]


def test_the_load_of_each_step_is_what_was_scheduled(vllm_engine: Any) -> None:
    """Prompts in chunks of the token budget of 64, then one token a sequence and step, each with its context."""
    vllm_engine.reset_prefix_cache()
    for sequence in sequences("load", [40, 50]):
        vllm_engine.add_request(sequence, ())
    loads = []
    while vllm_engine.num_unfinished:
        vllm_engine.step()
        loads.append(vllm_engine.last_load)
    prefill_40, first_24, last_26 = 40 * 41 // 2, 24 * 25 // 2, 26 * 24 + 26 * 27 // 2
    assert loads == [
        StepLoad(64, 0, prefill_40 + first_24),
        StepLoad(26, 1, last_26 + 41),
        StepLoad(0, 2, 42 + 51),
        StepLoad(0, 1, 52),
    ]


def test_counters_are_those_of_the_steps(vllm_engine: Any) -> None:
    """What is counted beside the scheduler is what vLLM's own metrics and the steps' loads add up to."""
    vllm_engine.reset_prefix_cache()
    began, of_cache, prefilled, steps = vllm_engine.counters(), vllm_engine.cache_counters(), 0, 0
    first, second = sequences("count", [70, 50])
    for sequence in (first, second, replace(first, key=first.key + 9)):
        vllm_engine.add_request(sequence, ())
    vllm_engine.step()
    steps, prefilled = steps + 1, prefilled + vllm_engine.last_load.prefill_tokens
    now = vllm_engine.counters()
    assert (now.running + now.waiting, now.kv_use > 0) == (3, True)
    while vllm_engine.num_unfinished:
        vllm_engine.step()
        steps, prefilled = steps + 1, prefilled + vllm_engine.last_load.prefill_tokens
    ended, cache = vllm_engine.counters(), vllm_engine.cache_counters()
    assert (ended.running, ended.waiting) == (0, 0)
    assert ended.prefilled_tokens - began.prefilled_tokens == prefilled
    assert steps - 1 <= ended.steps - began.steps <= steps
    assert ended.prefix_queries - began.prefix_queries == cache.queried - of_cache.queried >= 190
    assert ended.prefix_hits - began.prefix_hits == cache.hit - of_cache.hit
    assert ended.preemptions - began.preemptions == cache.preemptions - of_cache.preemptions


def test_the_kv_cache_has_the_size_that_was_asked_for(vllm_engine: Any) -> None:
    """256 MiB of KV in blocks of 32 tokens of 46 KB (float32), one of which vLLM keeps for itself."""
    shape = vllm_engine.kv_shape
    assert shape.block_size == 32
    assert shape.num_blocks == (256 << 20) // (32 * 2 * 30 * 3 * 64 * 4) - 1


def test_the_time_of_steps_is_measured(vllm_engine: Any) -> None:
    """After a few dozen steps there is a model of the step's time, of this model on this device."""
    for sequence in sequences("time", [20] * 4) + sequences("again", [9] * 4):
        vllm_engine.add_request(sequence, ())
    while vllm_engine.num_unfinished:
        vllm_engine.step()
    for turn in range(6):
        for sequence in sequences(f"more {turn}", [30, 64, 5]):
            vllm_engine.add_request(sequence, ())
        while vllm_engine.num_unfinished:
            vllm_engine.step()
    time = vllm_engine.step_sums.fit()
    assert time.num_steps >= 24
    assert time.seconds(steps=1, prefill_tokens=64, decode_tokens=8, context_tokens=300) > 0
    model = resolve_model("SmolLM2-135M-Instruct").path.name
    assert (vllm_engine.identity.model, vllm_engine.identity.dtype) == (model, "float32")
