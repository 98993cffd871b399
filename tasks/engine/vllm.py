"""VLLMEngine: vLLM in this process, stepped by us. The only importer of vLLM and torch, with sampling.py beside it.

Token ids go in, token ids come out (delta by delta). In-process, so that not calling `step` really stops the engine and
SIGKILL leaves nothing behind.
"""

import gc
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from vllm import LLM
from vllm import SamplingParams as VLLMParams
from vllm.exceptions import VLLMValidationError
from vllm.inputs import tokens_input
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind

from tasks.core.config import EngineConfig
from tasks.core.errors import ConfigError, EngineError, RequestError
from tasks.core.plan import PlannedSequence
from tasks.core.request import FinishReason, SamplingParams, StepOutput
from tasks.engine.sampling import OFFSET, SEED, TOP_K, TOP_P

CPU_DEFAULTS = {"max_num_seqs": 64, "max_num_batched_tokens": 2048, "block_size": 32, "kv_cache_memory_bytes": 2 << 30}
"""On a CPU vLLM's own blocks of 128 tokens would share no shorter prefix, and its KV size is a share of all memory."""
_FINISH = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}
_PROCESSOR = "tasks.engine.sampling:PositionKeyedSampler"


class VLLMEngine:
    """One vLLM engine on this process's device. Raises EngineError when vLLM cannot be started as configured."""

    def __init__(self, model: Path, config: EngineConfig, *, dtype: str, max_model_len: int) -> None:
        if os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING") != "0":
            raise ConfigError("set VLLM_ENABLE_V1_MULTIPROCESSING=0 before vLLM is imported")
        self._on_cpu = current_platform.is_cpu()
        arguments = engine_arguments(config, on_cpu=self._on_cpu)
        try:
            llm = LLM(
                model=str(model),
                dtype=dtype,
                max_model_len=max_model_len,
                enable_prefix_caching=True,
                disable_log_stats=False,
                **arguments,
            )
        except (ValueError, RuntimeError, OSError) as error:
            raise EngineError(f"vLLM did not start: {error}") from error
        self._llm: LLM | None = llm
        self._engine = llm.llm_engine
        self._prompt_tokens: dict[int, int] = {}

    @property
    def max_num_seqs(self) -> int:
        """The size of vLLM's batch: more in flight would only wait in its queue."""
        return int(self._engine.vllm_config.scheduler_config.max_num_seqs)

    @property
    def num_unfinished(self) -> int:
        return len(self._prompt_tokens)

    def continues_exactly(self, sampling: SamplingParams) -> bool:
        return not (sampling.stop or sampling.presence_penalty or sampling.frequency_penalty)

    def add_request(self, sequence: PlannedSequence, saved_token_ids: Sequence[int]) -> None:
        prompt = [*sequence.prompt_token_ids, *saved_token_ids]
        try:
            params = self._params(sequence.sampling, len(saved_token_ids))
            self._engine.add_request(f"{sequence.key:016x}", tokens_input(prompt), params)
        except (VLLMValidationError, ValueError) as error:
            raise RequestError(str(error)) from error
        self._prompt_tokens[sequence.key] = len(sequence.prompt_token_ids)

    def step(self) -> list[StepOutput]:
        return [self._output(output) for output in self._engine.step()]

    def abort(self, keys: Sequence[int]) -> None:
        self._engine.abort_request([f"{key:016x}" for key in keys])
        for key in keys:
            self._prompt_tokens.pop(key, None)

    def close(self) -> None:
        self._engine.engine_core.shutdown()
        self._llm = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _output(self, output: Any) -> StepOutput:
        key, answer = int(output.request_id, 16), output.outputs[0]
        if not output.finished:
            return StepOutput(key, answer.token_ids)
        cached = min(output.num_cached_tokens or 0, self._prompt_tokens.pop(key))
        reason = _FINISH.get(answer.finish_reason)
        error = None if reason else f"vLLM ended the request with {answer.finish_reason!r}"
        return StepOutput(key, answer.token_ids, reason, cached, error)

    def _params(self, sampling: SamplingParams, num_saved: int) -> VLLMParams:
        params = VLLMParams(
            max_tokens=sampling.max_tokens - num_saved,
            min_tokens=max(0, sampling.min_tokens - num_saved),
            temperature=sampling.temperature,
            min_p=sampling.min_p,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            repetition_penalty=sampling.repetition_penalty,
            stop=list(sampling.stop),
            ignore_eos=sampling.ignore_eos,
            detokenize=bool(sampling.stop),
            output_kind=RequestOutputKind.DELTA,
        )
        if sampling.is_greedy:
            return params
        if self._on_cpu:
            params.extra_args = {
                SEED: sampling.seed,
                OFFSET: num_saved,
                TOP_K: sampling.top_k,
                TOP_P: sampling.top_p,
            }
        else:
            params.seed, params.top_k, params.top_p = sampling.seed, sampling.top_k, sampling.top_p
        return params


def engine_arguments(config: EngineConfig, *, on_cpu: bool) -> dict[str, Any]:
    """The keyword arguments for vLLM's LLM: what was configured, else what suits a CPU, else vLLM's own choice."""
    names = ("max_num_seqs", "max_num_batched_tokens", "block_size", "kv_cache_memory_bytes")
    given = {name: value for name in names if (value := getattr(config, name)) is not None}
    if not on_cpu:
        return given
    return CPU_DEFAULTS | given | {"enforce_eager": True, "logits_processors": [_PROCESSOR]}
