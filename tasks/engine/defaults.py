"""Engine settings where nobody has given any, by device. Needs no vLLM, so that a dry run knows them too."""

from tasks.core.config import EngineConfig
from tasks.engine.scheduling import EngineShape

CPU_DEFAULTS = {"max_num_seqs": 64, "max_num_batched_tokens": 2048, "block_size": 32, "kv_cache_memory_bytes": 2 << 30}
"""On a CPU vLLM's own blocks of 128 tokens would share no shorter prefix, and its KV size is a share of all memory."""
_GPU_DEFAULTS = {"max_num_seqs": 256, "max_num_batched_tokens": 8192, "block_size": 16}
"""vLLM 0.32's own, but on the largest GPUs (EngineArgs.get_batch_defaults)."""
_ASSUMED_TOKENS = 262_144
SETTINGS = ("max_num_seqs", "max_num_batched_tokens", "block_size", "kv_cache_memory_bytes")


def given_settings(config: EngineConfig) -> dict[str, int]:
    """Those that somebody has given, by vLLM's names."""
    return {name: value for name in SETTINGS if (value := getattr(config, name)) is not None}


def likely_shape(config: EngineConfig, kv_bytes_per_token: int | None, *, on_cpu: bool) -> tuple[EngineShape, str | None]:
    """The shape that the engine will have, and, in words, what of it nobody can know before the engine starts."""
    settings = (CPU_DEFAULTS if on_cpu else _GPU_DEFAULTS) | given_settings(config)
    size, bytes_ = settings["block_size"], settings.get("kv_cache_memory_bytes")
    if bytes_ is None or kv_bytes_per_token is None:
        what = "the model's KV bytes a token" if bytes_ is not None else "the device's KV memory"
        tokens, unknown = _ASSUMED_TOKENS, f"{what} cannot be known here: room for {_ASSUMED_TOKENS:,} tokens is assumed"
    else:
        tokens, unknown = bytes_ // kv_bytes_per_token, None
    return EngineShape(size, tokens // size + 1, settings["max_num_seqs"], settings["max_num_batched_tokens"]), unknown
