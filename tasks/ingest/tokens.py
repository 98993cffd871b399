"""Requests to requests with token ids, many at a time; a prompt that the model cannot hold becomes a Fault."""

import json
from collections.abc import Sequence
from dataclasses import replace

from tasks.core.protocols import Tokenizer
from tasks.core.request import Request, SamplingParams
from tasks.ingest.rows import Fault


def prompt_of(request: Request, tokenizer: Tokenizer) -> str | Fault:
    """The text that the model reads; one that is far too long is found out by its bytes, without tokenising it."""
    text = request.text
    if request.messages is not None:
        try:
            text = tokenizer.render(json.loads(request.messages), json.loads(request.tools) if request.tools else None)
        except ValueError as error:
            return Fault("chat_template", f"the model's chat template refuses these messages: {error}")
    fewest = len(text.encode("utf-8")) // tokenizer.max_token_bytes
    if fewest >= tokenizer.max_model_len:
        return _too_long(f"at least {fewest}", tokenizer.max_model_len)
    return text


def tokenise(asked: Sequence[tuple[Request, str]], tokenizer: Tokenizer) -> list[Request | Fault]:
    """One outcome per request, in order; each comes with its prompt.

    `max_tokens` is cut to the room that the prompt leaves in the model's context; a prompt that leaves room for no token
    is a Fault with both numbers.
    """
    rendered = [request.messages is not None for request, _ in asked]
    encoded = tokenizer.encode([prompt for _, prompt in asked], rendered=rendered)
    return [_fitted(request, ids, tokenizer) for (request, _), ids in zip(asked, encoded, strict=True)]


def _fitted(request: Request, ids: list[int], tokenizer: Tokenizer) -> Request | Fault:
    max_model_len = tokenizer.max_model_len
    room = max_model_len - len(ids)
    if room < 1:
        return _too_long(str(len(ids)), max_model_len)
    if not ids:
        return Fault("empty_prompt", "the model's tokenizer makes nothing of this text")
    sampling = request.sampling
    if unknown := _unknown_token(sampling, tokenizer.vocab_size):
        return unknown
    if sampling.max_tokens > room:
        sampling = replace(sampling, max_tokens=room, min_tokens=min(sampling.min_tokens, room))
    return replace(request, prompt_token_ids=tuple(ids), sampling=sampling)


def _unknown_token(sampling: SamplingParams, vocab_size: int) -> Fault | None:
    """The first id among the parameters that is no token of the model: an engine would read beyond its table of scores."""
    biased = (token_id for token_id, _ in sampling.logit_bias)
    for name, ids in (("stop_token_ids", sampling.stop_token_ids), ("logit_bias", biased)):
        for token_id in ids:
            if token_id >= vocab_size:
                message = f"{name}: there is no token {token_id}, the model's vocabulary has {vocab_size} (from 0)"
                return Fault("invalid_request", message)
    return None


def _too_long(num_tokens: str, max_model_len: int) -> Fault:
    return Fault(
        "prompt_too_long",
        f"the prompt has {num_tokens} tokens, and the model's context of {max_model_len} must hold one more for the answer",
    )
