"""Requests to requests with token ids, many at a time; a prompt that the model cannot hold becomes a Fault."""

import json
from collections.abc import Sequence
from dataclasses import replace

from tasks.core.protocols import Tokenizer
from tasks.core.request import Request
from tasks.ingest.rows import Fault


def tokenise(requests: Sequence[Request], tokenizer: Tokenizer) -> list[Request | Fault]:
    """One outcome per request, in order.

    `max_tokens` is cut to the room that the prompt leaves in the model's context; a prompt that leaves room for no token
    is a Fault with both numbers, and one that is far too long is found out by its bytes, without tokenising it.
    """
    prompts = [_prompt(request, tokenizer) for request in requests]
    fit = [place for place, prompt in enumerate(prompts) if isinstance(prompt, str)]
    texts = [prompt for prompt in prompts if isinstance(prompt, str)]
    encoded = tokenizer.encode(texts, rendered=[requests[place].messages is not None for place in fit])
    outcomes: dict[int, Request | Fault] = {
        place: _fitted(requests[place], ids, tokenizer.max_model_len) for place, ids in zip(fit, encoded, strict=True)
    }
    outcomes |= {place: prompt for place, prompt in enumerate(prompts) if isinstance(prompt, Fault)}
    return [outcomes[place] for place in range(len(requests))]


def _prompt(request: Request, tokenizer: Tokenizer) -> str | Fault:
    """The text that the model reads."""
    text = request.text
    if request.messages is not None:
        try:
            text = tokenizer.render(json.loads(request.messages))
        except ValueError as error:
            return Fault("chat_template", f"the model's chat template refuses these messages: {error}")
    fewest = len(text.encode("utf-8")) // tokenizer.max_token_bytes
    if fewest >= tokenizer.max_model_len:
        return _too_long(f"at least {fewest}", tokenizer.max_model_len)
    return text


def _fitted(request: Request, ids: list[int], max_model_len: int) -> Request | Fault:
    room = max_model_len - len(ids)
    if room < 1:
        return _too_long(str(len(ids)), max_model_len)
    sampling = request.sampling
    if sampling.max_tokens > room:
        sampling = replace(sampling, max_tokens=room, min_tokens=min(sampling.min_tokens, room))
    return replace(request, prompt_token_ids=tuple(ids), sampling=sampling)


def _too_long(num_tokens: str, max_model_len: int) -> Fault:
    return Fault(
        "prompt_too_long",
        f"the prompt has {num_tokens} tokens, and the model's context of {max_model_len} must hold one more for the answer",
    )
