"""Engine settings that suit a plan, each with the reason in a line. Only what can be derived or was measured is advised.

Pure: lengths of the plan's sequences, facts of the device and, where it was fitted, the step-time model in; advice out. A
setting that somebody has given stays as it is; what is not advised is left to the device's default.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.engine.step_time import StepTime
from tasks.plan.bound import reusable

Ints = NDArray[np.int64]

STEP_S = 1.0
"""How long a full step may last: whoever asks the engine to stop waits for the step in flight."""
_MIB = 1 << 20
_MEMORY_SHARE = 0.5
_LEAST_KV_BYTES = 256 * _MIB
_BUDGETS = (256, 512, 1024, 2048, 4096, 8192, 16_384)
_WORTH = 0.01
"""A larger block is taken when it loses less than this share of the prompt tokens."""


@dataclass(frozen=True, slots=True)
class Demand:
    """A plan's sequences in its order, in tokens: prompt, what of it the one before begins with too, and answer (predicted,
    else its limit)."""

    prompt_tokens: Ints
    shared_tokens: Ints
    output_tokens: Ints


@dataclass(frozen=True, slots=True)
class Device:
    """What the settings have to fit: block sizes that the kernels are made for, bytes of KV a token, bytes of free memory,
    and how many sequences in flight it is worth having."""

    block_sizes: tuple[int, ...]
    kv_bytes_per_token: int
    free_bytes: int
    max_num_seqs: int


@dataclass(frozen=True, slots=True)
class Advice:
    """One setting of EngineConfig, its value, and why."""

    setting: str
    value: int
    reason: str


def recommend(demand: Demand, device: Device, speed: StepTime | None = None) -> tuple[Advice, ...]:
    """Advice on block_size, max_num_seqs, kv_cache_memory_bytes and, with a step-time model, max_num_batched_tokens."""
    if not len(demand.prompt_tokens):
        return ()
    block_size = _block_size(demand, device)
    num_seqs = _max_num_seqs(demand, device, block_size.value)
    found = [block_size, num_seqs, _kv_bytes(demand, device, num_seqs.value, block_size.value)]
    if speed is not None and (budget := _budget(speed, num_seqs.value)) is not None:
        found.append(budget)
    return tuple(found)


def reused_tokens(demand: Demand, block_size: int) -> int:
    """Prompt tokens that come from whole blocks shared with the one before; a prompt's last token is always computed."""
    return int(reusable(demand.shared_tokens, demand.prompt_tokens, block_size).sum())


def _block_size(demand: Demand, device: Device) -> Advice:
    prompt = max(int(demand.prompt_tokens.sum()), 1)
    reuse = {size: reused_tokens(demand, size) / prompt for size in sorted(device.block_sizes)}
    best = max(reuse.values())
    value = max(size for size in reuse if reuse[size] >= best - _WORTH)
    shares = ", ".join(f"{share:.1%} at {size}" for size, share in reuse.items())
    waste = (value - 1) / 2 / max(float((demand.prompt_tokens + demand.output_tokens).mean()), 1.0)
    return Advice("block_size", value, f"prompt tokens reused: {shares}; at {value} blocks are {waste:.0%} empty")


def _held_tokens(demand: Demand, block_size: int) -> float:
    """Tokens of KV that a sequence needs for itself, in the mean over its life, its last block being half empty."""
    own = demand.prompt_tokens - reusable(demand.shared_tokens, demand.prompt_tokens, block_size)
    return (
        float(np.average(own + demand.output_tokens / 2, weights=np.maximum(demand.output_tokens, 1))) + (block_size - 1) / 2
    )


def _max_num_seqs(demand: Demand, device: Device, block_size: int) -> Advice:
    held = _held_tokens(demand, block_size) * device.kv_bytes_per_token
    fitting = max(int(device.free_bytes * _MEMORY_SHARE / held), 1)
    if fitting < device.max_num_seqs:
        reason = f"one holds {held / _MIB:.0f} MiB of KV in the mean, and half of the free memory is"
        return Advice("max_num_seqs", fitting, f"{reason} {device.free_bytes * _MEMORY_SHARE / _MIB:.0f} MiB")
    number = min(device.max_num_seqs, len(demand.prompt_tokens))
    reason = "there are no more sequences" if number < device.max_num_seqs else "more gain little speed on this device"
    return Advice("max_num_seqs", number, reason)


def _kv_bytes(demand: Demand, device: Device, num_seqs: int, block_size: int) -> Advice:
    """Room for all in flight at once and, beside it, the longest prompt, so that a shared prefix stays where it is."""
    tokens = num_seqs * _held_tokens(demand, block_size) * 1.25 + float((demand.prompt_tokens + demand.output_tokens).max())
    wanted = int(tokens * device.kv_bytes_per_token)
    value = max(min(wanted, int(device.free_bytes * _MEMORY_SHARE)), min(_LEAST_KV_BYTES, device.free_bytes))
    value = -(-value // _MIB) * _MIB
    reason = f"{num_seqs} in flight and the longest sequence need {wanted / _MIB:.0f} MiB"
    if value < wanted:
        reason += ", which is more than half of the free memory"
    return Advice("kv_cache_memory_bytes", value, reason)


def _budget(speed: StepTime, num_seqs: int) -> Advice | None:
    """The largest token budget whose step is short enough; none when not even the smallest is."""
    decode_s = speed.step_s + num_seqs * speed.decode_seq_s
    fitting = [size for size in _BUDGETS if size >= num_seqs and decode_s + size * speed.prefill_token_s <= STEP_S]
    if not fitting:
        return None
    lasts = decode_s + fitting[-1] * speed.prefill_token_s
    reason = f"a full step lasts {lasts:.2f} s, by {speed.num_steps} measured steps; a stop waits for it"
    return Advice("max_num_batched_tokens", fitting[-1], reason)


def kv_bytes_per_token(model: Mapping[str, Any], dtype_bytes: int) -> int | None:
    """Bytes of KV that a token takes in a model with full attention, from its config.json; None where it does not say."""
    try:
        heads, layers = int(model["num_attention_heads"]), int(model["num_hidden_layers"])
        head = int(model.get("head_dim") or int(model["hidden_size"]) // heads)
        return 2 * layers * int(model.get("num_key_value_heads") or heads) * head * dtype_bytes
    except (KeyError, TypeError, ValueError):
        return None
