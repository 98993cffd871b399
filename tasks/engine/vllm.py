"""VLLMEngine: vLLM in this process, stepped by us. Imports vLLM and torch, as do params, history and sampling.

Token ids go in, token ids come out (delta by delta). In-process, so that not calling `step` really stops the engine and
SIGKILL leaves nothing behind.
"""

import gc
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import vllm
from vllm import LLM
from vllm.exceptions import VLLMValidationError
from vllm.inputs import tokens_input
from vllm.platforms import current_platform
from vllm.v1.kv_cache_interface import FullAttentionSpec

from tasks.core.config import EngineConfig
from tasks.core.counters import EngineCounters
from tasks.core.errors import ConfigError, EngineError, RequestError
from tasks.core.plan import PlannedSequence
from tasks.core.request import FinishReason, SamplingParams, StepOutput, TokenLogprobs
from tasks.core.step import KVShape, StepLoad
from tasks.engine.counting import StepCounts
from tasks.engine.defaults import CPU_DEFAULTS, given_settings
from tasks.engine.grammar import advance_grammar
from tasks.engine.load import ScheduleWatch
from tasks.engine.params import vllm_params
from tasks.engine.scheduling import CacheCounters, EngineShape
from tasks.engine.speed import Identity, cpu_name
from tasks.engine.step_time import StepSums, StepTimer
from tasks.engine.stops import StopStrings
from tasks.engine.tokenizer import ModelTokenizer

_FINISH = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}
_PROCESSORS = ["tasks.engine.history:OutputHistory", "tasks.engine.sampling:PositionKeyedSampler"]


@dataclass(slots=True)
class _Running:
    """What is kept of a sequence while vLLM has it."""

    num_prompt: int
    logprobs: int | None
    stops: StopStrings | None


class VLLMEngine:
    """One vLLM engine on this process's device. Raises EngineError when vLLM cannot be started as configured."""

    def __init__(self, model: Path, config: EngineConfig, *, dtype: str, max_model_len: int) -> None:
        if os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING") != "0":
            raise ConfigError("set VLLM_ENABLE_V1_MULTIPROCESSING=0 before vLLM is imported")
        self._on_cpu = current_platform.is_cpu()
        _let_llvmlite_be_searched()
        try:
            llm = LLM(
                model=str(model),
                dtype=dtype,
                max_model_len=max_model_len,
                enable_prefix_caching=True,
                disable_log_stats=False,
                structured_outputs_config={"backend": "xgrammar"},  # whose grammars were checked at ingest
                **engine_arguments(config, on_cpu=self._on_cpu),
            )
        except (ValueError, RuntimeError, OSError) as error:
            raise EngineError(f"vLLM did not start: {error}") from error
        self._llm: LLM | None = llm
        self._engine = llm.llm_engine
        self._model, self._max_model_len = model, max_model_len
        self._tokenizer: ModelTokenizer | None = None
        self._running: dict[int, _Running] = {}
        core = self._engine.engine_core.engine_core
        self._watch_of_steps = ScheduleWatch(core.scheduler, lag=core.batch_queue_size - 1)
        self._counts = StepCounts(core.scheduler)
        self._timer = StepTimer()

    @property
    def max_num_seqs(self) -> int:
        """The size of vLLM's batch: more in flight would only wait in its queue."""
        return int(self._engine.vllm_config.scheduler_config.max_num_seqs)

    @property
    def shape(self) -> EngineShape:
        """What decides its scheduling, as vLLM has settled it."""
        scheduling, cache = self._engine.vllm_config.scheduler_config, self._engine.vllm_config.cache_config
        return EngineShape(
            block_size=int(cache.block_size),
            num_blocks=int(cache.num_gpu_blocks or 0),
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=int(scheduling.max_num_batched_tokens),
            watermark=float(scheduling.watermark),
            reserve_full_isl=bool(scheduling.scheduler_reserve_full_isl),
        )

    def counters(self) -> EngineCounters:
        """What telemetry has of an engine, but for its life and the tokens generated."""
        return self._counts.counters()

    def cache_counters(self) -> CacheCounters:
        """What the prefix cache was asked for and gave, and how often a sequence lost its blocks."""
        values = {metric.name: metric.value for metric in self._metrics() if hasattr(metric, "value")}
        names = ("prefix_cache_queries", "prefix_cache_hits", "num_preemptions")
        return CacheCounters(*(int(values[f"vllm:{name}"]) for name in names))

    def reset_prefix_cache(self) -> None:
        """Forget all cached blocks. Raises ValueError while a sequence holds some."""
        if not self._engine.reset_prefix_cache():
            raise ValueError("sequences hold KV blocks")

    @property
    def kv_shape(self) -> KVShape | None:
        """The KV cache; one block of it vLLM keeps for itself. None where layers differ in what they keep of a sequence, so
        that its blocks cannot be told from its length."""
        groups = self._engine.engine_core.engine_core.scheduler.kv_cache_config.kv_cache_groups
        if len(groups) != 1 or not isinstance(groups[0].kv_cache_spec, FullAttentionSpec):
            return None
        return KVShape(self.shape.usable_blocks, self.shape.block_size)

    @property
    def last_load(self) -> StepLoad:
        """What the last step worked on."""
        return self._watch_of_steps.last()

    @property
    def identity(self) -> Identity:
        """What the time of a step depends on."""
        dtype = str(self._engine.vllm_config.model_config.dtype).removeprefix("torch.")
        device = cpu_name(torch.get_num_threads()) if self._on_cpu else torch.cuda.get_device_name(0)
        return Identity(self._model.name, dtype, f"vllm {vllm.__version__}", device)

    @property
    def step_sums(self) -> StepSums:
        """How long the steps so far have taken."""
        return self._timer.sums()

    @property
    def num_unfinished(self) -> int:
        return len(self._running)

    def continues_exactly(self, sampling: SamplingParams) -> bool:
        """On a CPU (V1 runner, with our processors) all; on a GPU not what vLLM counts in its own output only."""
        return self._on_cpu or not (sampling.presence_penalty or sampling.frequency_penalty or sampling.bad_words)

    def add_request(self, sequence: PlannedSequence, saved_token_ids: Sequence[int]) -> None:
        sampling, num_saved = sequence.sampling, len(saved_token_ids)
        stops = self._watch(sampling, saved_token_ids)
        try:
            params = vllm_params(sampling, num_saved, on_cpu=self._on_cpu)
            prompt = tokens_input([*sequence.prompt_token_ids, *saved_token_ids])
            internal_id = self._engine.add_request(f"{sequence.key:016x}", prompt, params)
        except (VLLMValidationError, ValueError) as error:
            raise RequestError(str(error)) from error
        self._running[sequence.key] = _Running(len(sequence.prompt_token_ids), sampling.logprobs, stops)
        if saved_token_ids and sampling.structured_outputs is not None:
            self._resume_grammar(sequence.key, internal_id, saved_token_ids)

    def step(self) -> list[StepOutput]:
        began = time.perf_counter()
        results = self._engine.step()
        self._timer.add(time.perf_counter() - began, self._watch_of_steps.last)
        outputs = [self._output(output) for output in results]
        return [output for output in outputs if output is not None]

    def abort(self, keys: Sequence[int]) -> None:
        self._engine.abort_request([f"{key:016x}" for key in keys])
        for key in keys:
            self._running.pop(key, None)

    def close(self) -> None:
        self._engine.engine_core.shutdown()
        self._llm = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _metrics(self) -> Sequence[Any]:
        if self._llm is None:
            raise EngineError("the engine is closed")
        metrics: Sequence[Any] = self._llm.get_metrics()
        return metrics

    def _watch(self, sampling: SamplingParams, saved_token_ids: Sequence[int]) -> StopStrings | None:
        if not sampling.stop:
            return None
        if self._tokenizer is None:
            self._tokenizer = ModelTokenizer(self._model, self._max_model_len)
        stops = StopStrings(sampling.stop, sampling.min_tokens, self._tokenizer.text)
        stops.feed(saved_token_ids)
        return stops

    def _resume_grammar(self, key: int, internal_id: str, saved_token_ids: Sequence[int]) -> None:
        if not advance_grammar(self._engine, internal_id, saved_token_ids):
            self.abort([key])
            raise RequestError("the saved tokens of this answer do not match its own grammar")

    def _output(self, output: Any) -> StepOutput | None:
        key, answer = int(output.request_id, 16), output.outputs[0]
        running = self._running.get(key)
        if running is None:  # of a step that was in flight when the sequence ended
            return None
        token_ids, logprobs = answer.token_ids, _logprobs(answer, running.logprobs)
        reason = _FINISH.get(answer.finish_reason)
        if running.stops is not None and (kept := _stopped(running.stops, token_ids, reason)):
            token_ids, logprobs, reason = token_ids[:kept], logprobs and logprobs[:kept], FinishReason.STOP
            if not output.finished:
                self.abort([key])
        elif not output.finished:
            return StepOutput(key, token_ids, logprobs=logprobs)
        self._running.pop(key, None)
        cached = min(output.num_cached_tokens or 0, running.num_prompt)
        error = None if reason else f"vLLM ended the request with {answer.finish_reason!r}"
        return StepOutput(key, token_ids, reason, cached, error, logprobs)


def _let_llvmlite_be_searched() -> None:
    """On a CPU vLLM 0.32 looks into the `__dict__` of all that modules hold. Numba's handle of its library takes any name
    for a function's, this one too, so vLLM would not start where Numba has been imported: the handle gets an empty one."""
    if (ffi := sys.modules.get("llvmlite.binding.ffi")) is not None:
        ffi.lib._fntab["__dict__"] = {}


def _stopped(stops: StopStrings, token_ids: Sequence[int], reason: FinishReason | None) -> int:
    """How many of the new tokens the answer keeps when a stop string is complete with them; 0 when none is. A token that
    ended the answer by itself is not part of its text."""
    before = stops.num_tokens
    match = stops.feed(token_ids[:-1] if reason is FinishReason.STOP else token_ids)
    return match.num_tokens - before if match else 0


def _logprobs(answer: Any, num_top: int | None) -> list[TokenLogprobs] | None:
    if num_top is None:
        return None
    found = []
    for token_id, at in zip(answer.token_ids, answer.logprobs, strict=True):
        ranked = sorted((one.rank, other, one.logprob) for other, one in at.items() if one.rank <= num_top)
        found.append(TokenLogprobs(at[token_id].logprob, tuple((other, logprob) for _, other, logprob in ranked)))
    return found


def engine_arguments(config: EngineConfig, *, on_cpu: bool) -> dict[str, Any]:
    """The keyword arguments for vLLM's LLM: what was configured, else what suits a CPU, else vLLM's own choice."""
    given = given_settings(config)
    if not on_cpu:
        return given
    return CPU_DEFAULTS | given | {"enforce_eager": True, "logits_processors": _PROCESSORS}
