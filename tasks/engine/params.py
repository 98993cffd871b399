"""Our sampling parameters as vLLM's, for an answer of which some tokens are saved.

What vLLM would count wrong after an interruption is not given to it: stop strings are ours on every device (stops.py); on
a CPU, whose V1 model runner takes logits processors, so are seeds (sampling.py), presence and frequency penalties and bad
words that begin in the saved tokens (history.py). A GPU's model runner keys its own noise by seed and position.
"""

from typing import Any

from vllm import SamplingParams as VLLMParams
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

from tasks.core.request import SamplingParams, StructuredOutputs
from tasks.engine.history import PENALTIES
from tasks.engine.sampling import NUM_SAVED, SEED, TOP_K, TOP_P


def vllm_params(sampling: SamplingParams, num_saved: int, *, on_cpu: bool) -> VLLMParams:
    """The parameters for what is left of an answer. Raises ValueError where vLLM refuses them."""
    params = VLLMParams(
        max_tokens=sampling.max_tokens - num_saved,
        min_tokens=max(0, sampling.min_tokens - num_saved),
        temperature=sampling.temperature,
        min_p=sampling.min_p,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty,
        stop_token_ids=list(sampling.stop_token_ids),
        ignore_eos=sampling.ignore_eos,
        bad_words=list(sampling.bad_words),
        logit_bias=dict(sampling.logit_bias) or None,
        logprobs=sampling.logprobs,
        structured_outputs=_structured(sampling.structured_outputs),
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )
    if on_cpu:
        _take_over(params, sampling, num_saved)
    elif not sampling.is_greedy:
        params.seed, params.top_k, params.top_p = sampling.seed, sampling.top_k, sampling.top_p
    return params


def _take_over(params: VLLMParams, sampling: SamplingParams, num_saved: int) -> None:
    """Leave to vLLM only what has no memory, and tell our processors the rest."""
    extra: dict[str, Any] = {NUM_SAVED: num_saved}
    if not sampling.is_greedy:
        extra |= {SEED: sampling.seed, TOP_K: sampling.top_k, TOP_P: sampling.top_p}
    if sampling.presence_penalty or sampling.frequency_penalty:
        extra[PENALTIES] = (sampling.presence_penalty, sampling.frequency_penalty, sampling.repetition_penalty)
        params.presence_penalty = params.frequency_penalty = 0.0
        params.repetition_penalty = 1.0
    params.extra_args = extra


def _structured(wanted: StructuredOutputs | None) -> StructuredOutputsParams | None:
    if wanted is None:
        return None
    if wanted.kind == "json_object":
        return StructuredOutputsParams(json_object=True)
    if wanted.kind == "choice":
        return StructuredOutputsParams(choice=wanted.choices)
    return StructuredOutputsParams(**{wanted.kind: wanted.spec})
