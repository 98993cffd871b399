"""The real engine in the benchmark's own process, and work for it."""

import os
import random

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))

from tasks.core.config import EngineConfig
from tasks.core.plan import PlannedSequence
from tasks.core.request import SamplingParams
from tasks.engine.models import resolve_model
from tasks.engine.vllm import VLLMEngine

MODEL = "SmolLM2-135M-Instruct"


def open_engine(max_num_seqs: int, *, max_model_len: int = 2048, dtype: str = "auto") -> VLLMEngine:
    """vLLM with the embedded model."""
    return open_engine_of(EngineConfig(max_num_seqs=max_num_seqs), max_model_len=max_model_len, dtype=dtype)


def open_engine_of(config: EngineConfig, *, max_model_len: int = 2048, dtype: str = "auto") -> VLLMEngine:
    """The same with other settings."""
    return VLLMEngine(resolve_model(MODEL).path, config, dtype=dtype, max_model_len=max_model_len)


def make_sequences(number: int, max_tokens: int, *, num_prompt: int = 64, seed: int = 0) -> list[PlannedSequence]:
    """Greedy sequences of exactly `max_tokens` over random prompts that share nothing."""
    rng, params = random.Random(seed), SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    prompts = [tuple(rng.randrange(1000, 40_000) for _ in range(num_prompt)) for _ in range(number)]
    return [PlannedSequence(seed << 32 | i, f"{i}", 0, 0, prompt, params) for i, prompt in enumerate(prompts)]


def open_sequences(engine: VLLMEngine, number: int, max_tokens: int) -> list[PlannedSequence]:
    """The same, given to the engine."""
    sequences = make_sequences(number, max_tokens)
    for sequence in sequences:
        engine.add_request(sequence, ())
    return sequences
