"""What rows ask, with token ids, many at a time; a prompt that the model cannot hold becomes a Fault."""

from collections.abc import Sequence
from dataclasses import replace

from tasks.core.protocols import Tokenizer
from tasks.core.request import SamplingParams
from tasks.ingest.draft import Draft
from tasks.ingest.rows import Fault
from tasks.ingest.truncate import longest_prompt, truncate

TokenIds = Sequence[int]


def tokenise(drafts: Sequence[Draft], tokenizer: Tokenizer, cut: str | None = None) -> list[TokenIds | Fault]:
    """One outcome per row, in order.

    `max_tokens` is cut to the room that the prompt leaves in the model's context; a prompt that leaves room for no token
    is a Fault with both numbers. One that is far too long is found out by its bytes, without tokenising it. With `cut` a
    prompt that is too long loses its head, tail or middle instead.
    """
    outcomes: list[TokenIds | Fault] = [_too_long_by_bytes(one.prompt, tokenizer) or () for one in drafts]
    places = [place for place, outcome in enumerate(outcomes) if not isinstance(outcome, Fault)]
    prompts = [drafts[place].prompt for place in places]
    rendered = [drafts[place].messages is not None for place in places]
    for place, ids in zip(places, tokenizer.encode(prompts, rendered=rendered), strict=True):
        outcomes[place] = ids
    if cut is not None:
        outcomes = [_shortened(*pair, tokenizer, cut) for pair in zip(drafts, outcomes, strict=True)]
    pairs = zip(drafts, outcomes, strict=True)
    return [outcome if isinstance(outcome, Fault) else _fitted(one, outcome, tokenizer) for one, outcome in pairs]


def _shortened(draft: Draft, outcome: TokenIds | Fault, tokenizer: Tokenizer, cut: str) -> TokenIds | Fault:
    """The ids as they are, or those of what is left of a prompt that was too long."""
    num_tokens = None if isinstance(outcome, Fault) else len(outcome)
    if num_tokens is not None and num_tokens <= longest_prompt(draft.sampling.max_tokens, tokenizer.max_model_len):
        return outcome
    left = truncate(draft.request, tokenizer, cut, num_tokens)
    if isinstance(left, Fault):
        return left
    draft.messages, draft.text, draft.truncated_tokens = left.messages, left.text, left.truncated_tokens
    return left.prompt_token_ids


def _too_long_by_bytes(prompt: str, tokenizer: Tokenizer) -> Fault | None:
    most = tokenizer.max_model_len * tokenizer.max_token_bytes
    if 4 * len(prompt) < most:  # a character has at most four bytes
        return None
    fewest = len(prompt.encode("utf-8")) // tokenizer.max_token_bytes
    return _too_long(f"at least {fewest}", tokenizer.max_model_len) if fewest >= tokenizer.max_model_len else None


def _fitted(draft: Draft, ids: TokenIds, tokenizer: Tokenizer) -> TokenIds | Fault:
    max_model_len = tokenizer.max_model_len
    room = max_model_len - len(ids)
    if room < 1:
        return _too_long(str(len(ids)), max_model_len)
    if not ids:
        return Fault("empty_prompt", "the model's tokenizer makes nothing of this text")
    sampling = draft.sampling
    if (sampling.stop_token_ids or sampling.logit_bias) and (unknown := _unknown_token(sampling, tokenizer.vocab_size)):
        return unknown
    if sampling.max_tokens > room:
        draft.sampling = replace(sampling, max_tokens=room, min_tokens=min(sampling.min_tokens, room))
    return ids


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
