"""Recommended engine settings."""

import dataclasses

import numpy as np
import pytest

from tasks.engine.step_time import StepTime
from tasks.plan.recommend import Advice, Demand, Device, kv_bytes_per_token, recommend, reused_tokens

CPU = Device(block_sizes=(32, 64, 128), kv_bytes_per_token=23_040, free_bytes=16 << 30, max_num_seqs=64)
SPEED = StepTime(step_s=0.05, prefill_token_s=4e-4, decode_seq_s=2e-3, context_token_s=1e-7, num_steps=900, error=0.05)


def demand(number: int = 200, prompt: int = 300, shared: int = 0, output: int = 100) -> Demand:
    return Demand(np.full(number, prompt), np.full(number, shared), np.full(number, output))


def advised(*arguments: object) -> dict[str, Advice]:
    return {advice.setting: advice for advice in recommend(*arguments)}  # type: ignore[arg-type]


@pytest.mark.parametrize(("shared", "block_size"), [(0, 128), (40, 32), (100, 32), (128, 128), (64, 64), (299, 32)])
def test_blocks_are_as_large_as_reuse_allows(shared: int, block_size: int) -> None:
    """A prefix of 40 tokens is shared in blocks of 32 alone; where nothing is lost, blocks are large."""
    assert advised(demand(shared=shared), CPU)["block_size"].value == block_size


def test_the_last_token_of_a_prompt_is_never_reused() -> None:
    """Two prompts that are the same share all blocks but that of the last token."""
    assert reused_tokens(demand(1, prompt=64, shared=64), 32) == 32
    assert reused_tokens(demand(1, prompt=65, shared=65), 32) == 64


def test_memory_bounds_the_sequences_in_flight() -> None:
    """Long sequences on a small machine: as many as their KV has room for, and the reason says so."""
    small = dataclasses.replace(CPU, free_bytes=1 << 30)
    advice = advised(demand(prompt=3000, output=1000), small)
    assert advice["max_num_seqs"].value < 64
    assert "MiB" in advice["max_num_seqs"].reason
    assert advice["kv_cache_memory_bytes"].value <= (1 << 29) + (1 << 20)
    assert "more than half" in advice["kv_cache_memory_bytes"].reason


def test_a_small_plan_needs_little() -> None:
    """Three sequences have no use for a batch of 64, nor for gigabytes of KV."""
    advice = advised(demand(3), CPU)
    assert advice["max_num_seqs"].value == 3
    assert advice["kv_cache_memory_bytes"].value == 256 << 20


def test_shared_prefixes_need_no_more_memory() -> None:
    """What is shared is held once."""
    alone, sharing = (advised(demand(prompt=2000, shared=shared), CPU) for shared in (0, 1990))
    assert sharing["kv_cache_memory_bytes"].value < alone["kv_cache_memory_bytes"].value / 3


def test_the_budget_keeps_a_step_short() -> None:
    """With a fitted model the token budget is the largest whose full step lasts no second; without one none is advised."""
    assert advised(demand(), CPU, SPEED)["max_num_batched_tokens"].value == 2048
    slow = dataclasses.replace(SPEED, prefill_token_s=0.1)
    assert "max_num_batched_tokens" not in advised(demand(), CPU, slow)
    assert "max_num_batched_tokens" not in advised(demand(), CPU)


def test_an_empty_plan_asks_for_nothing() -> None:
    """No sequences, no advice."""
    assert recommend(demand(0), CPU) == ()


def test_bytes_of_a_token_come_from_the_models_own_config() -> None:
    """SmolLM2-135M has 30 layers of 3 KV heads of 64; a config that says nothing gives nothing."""
    smol = {"num_attention_heads": 9, "num_key_value_heads": 3, "num_hidden_layers": 30, "hidden_size": 576}
    assert kv_bytes_per_token(smol, 2) == 23_040
    assert kv_bytes_per_token({}, 2) is None
