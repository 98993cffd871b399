"""A row's parameters, over the run's defaults, to SamplingParams: what changes no answer is left out."""

from tasks.core.config import SamplingDefaults
from tasks.core.request import SamplingParams
from tasks.ingest.rows import RowError
from tasks.ingest.shapes.protocol import Parameters
from tasks.ingest.shapes.structured import structured_of


def sampling_of(body: Parameters, defaults: SamplingDefaults) -> SamplingParams:
    """How the row wants its tokens chosen. Raises RowError when its parameters do not go together."""
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(defaults.stop if body.stop is None else body.stop)
    temperature = defaults.temperature if body.temperature is None else body.temperature
    top_p = defaults.top_p if body.top_p is None else body.top_p
    top_k = defaults.top_k if body.top_k is None else max(body.top_k, 0)
    max_tokens = body.max_completion_tokens or body.max_tokens or defaults.max_tokens
    if (body.min_tokens or 0) > max_tokens:
        raise RowError("invalid_request", f"min_tokens {body.min_tokens} is more than max_tokens {max_tokens}")
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=body.min_tokens or 0,
        temperature=temperature,
        top_p=1.0 if temperature == 0 else top_p,
        top_k=0 if temperature == 0 else top_k,
        min_p=0.0 if temperature == 0 else body.min_p or 0.0,
        seed=None if temperature == 0 else body.seed,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        repetition_penalty=body.repetition_penalty or 1.0,
        stop=stop,
        stop_token_ids=tuple(sorted(set(body.stop_token_ids or ()))),
        ignore_eos=bool(body.ignore_eos),
        bad_words=tuple(dict.fromkeys(body.bad_words or ())),
        logit_bias=tuple(sorted((int(token_id), bias) for token_id, bias in (body.logit_bias or {}).items())),
        logprobs=body.num_logprobs,
        structured_outputs=structured_of(body),
    )
