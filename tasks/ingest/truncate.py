"""A prompt that is too long for the model's context to one that fits, at the cost of its user's text alone. Pure.

The text loses characters, never tokens of the prompt that was made of it: what is left of it goes through the chat template
and the tokenizer again, so that every frame of special tokens stays whole and no character is halved.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tasks.core.protocols import Tokenizer
from tasks.core.request import Request
from tasks.ingest.rows import Fault

_ANSWER_SHARE = 4
_COUNTED_CHARS = 1_000_000
_FIRST_CHARS_PER_TOKEN = 4
_ACCEPTED_GAP = 512
_MAX_TRIES = 40


def longest_prompt(max_tokens: int, max_model_len: int) -> int:
    """How many tokens a prompt may have that is to be cut when it is longer.

    The answer keeps room for `max_tokens`, but for no more than a quarter of the context: few answers are as long as they
    may be, and each token kept for them is one of the prompt's.
    """
    return max_model_len - min(max_tokens, max(1, max_model_len // _ANSWER_SHARE))


def truncate(request: Request, tokenizer: Tokenizer, how: str, num_tokens: int | None = None) -> Request | Fault:
    """The request with what is left of its last user's text, the ids of the shorter prompt, and how many tokens it lost.

    `how` says what is cut away: head, tail or middle. `num_tokens` is the whole prompt's length where it is known; else it
    is counted, or estimated from the first million characters of one that has more. `max_tokens` is left as it is: it may
    still have to be cut to the room that there is. A chat that is too long even without that text is a Fault.
    """
    max_model_len = tokenizer.max_model_len
    limit = longest_prompt(request.sampling.max_tokens, max_model_len)
    whole = _Whole(request)
    try:
        least = whole.token_ids(shortened(whole.text, 1, how), tokenizer)
        if len(least) > limit:
            still = (
                f"with one character of its last user's text, all that may be cut, the prompt still has {len(least)} tokens"
            )
            return Fault("prompt_too_long", f"{still}; {limit} fit beside the answer in the context of {max_model_len}")
        if num_tokens is None:
            num_tokens = _count(whole.prompt(whole.text, tokenizer), tokenizer, rendered=whole.turns is not None)
        found = _most(
            lambda kept: whole.token_ids(shortened(whole.text, kept, how), tokenizer), _Fit(1, least), len(whole.text), limit
        )
    except ValueError as error:
        return Fault("chat_template", f"the model's chat template refuses these messages: {error}")
    text = shortened(whole.text, found.kept, how)
    if not text.strip():
        return Fault("prompt_too_long", f"nothing but white space is left of the user's text, cut to {limit} tokens")
    return replace(
        request,
        messages=None if whole.turns is None else json.dumps(whole.with_text(text), ensure_ascii=False),
        text=text,
        prompt_token_ids=tuple(found.token_ids),
        truncated_tokens=max(0, num_tokens - len(found.token_ids)),
    )


def shortened(text: str, kept: int, how: str) -> str:
    """So many characters of the text, without its head, its tail or its middle."""
    if kept >= len(text):
        return text
    if how == "head":
        return text[len(text) - kept :]
    if how == "tail":
        return text[:kept]
    behind = kept // 2
    return text[: kept - behind] + text[len(text) - behind :]


class _Whole:
    """A request's prompt as a function of its last user's text; `turns` is None where the text is the prompt."""

    def __init__(self, request: Request) -> None:
        self.text = request.text
        self.turns: list[dict[str, Any]] | None = None
        self._tools = json.loads(request.tools) if request.tools else None
        if request.messages is not None:
            self.turns = json.loads(request.messages)
            self._asking = max((i for i, turn in enumerate(self.turns) if turn["role"] == "user"), default=0)

    def with_text(self, text: str) -> list[dict[str, Any]]:
        """The chat with this as what its user said last; text in parts becomes one text."""
        turns = list(self.turns or ())
        return [{**turn, "content": text} if i == self._asking else turn for i, turn in enumerate(turns)]

    def prompt(self, text: str, tokenizer: Tokenizer) -> str:
        """What the model reads. Raises ValueError when its chat template does not take the messages."""
        return text if self.turns is None else tokenizer.render(self.with_text(text), self._tools)

    def token_ids(self, text: str, tokenizer: Tokenizer) -> list[int]:
        (ids,) = tokenizer.encode([self.prompt(text, tokenizer)], rendered=[self.turns is not None])
        return ids


@dataclass(frozen=True, slots=True)
class _Fit:
    """So many characters were kept, and the prompt is this then."""

    kept: int
    token_ids: list[int]


def _most(token_ids_of: Callable[[int], list[int]], least: _Fit, size: int, limit: int) -> _Fit:
    """The most characters of `size` whose prompt has no more tokens than the limit, but for a few tokens.

    Text has about as many characters a token here as there, so a guess in proportion lands close. As a text may be uneven,
    every third guess halves what is left.
    """
    best = least
    fails, fails_tokens = size + 1, 0
    kept = min(size, best.kept + _FIRST_CHARS_PER_TOKEN * (limit - len(best.token_ids)))
    for tries in range(1, _MAX_TRIES):
        spare = limit - len(best.token_ids)
        if fails - best.kept <= 1 or spare <= limit // _ACCEPTED_GAP:
            break
        if tries > 1 and fails_tokens == 0:
            kept = best.kept * 2
        elif tries > 1 and tries % 3 == 0:
            kept = (best.kept + fails) // 2
        elif tries > 1:
            kept = best.kept + spare * (fails - best.kept) // max(1, fails_tokens - len(best.token_ids))
        kept = min(max(kept, best.kept + 1), fails - 1)
        ids = token_ids_of(kept)
        if len(ids) <= limit:
            best = _Fit(kept, ids)
        else:
            fails, fails_tokens = kept, len(ids)
    return best


def _count(prompt: str, tokenizer: Tokenizer, *, rendered: bool) -> int:
    """How many tokens a prompt has; of a huge one only the beginning is tokenised, and the rest is taken to be like it."""
    (ids,) = tokenizer.encode([prompt[:_COUNTED_CHARS]], rendered=[rendered])
    return len(ids) * len(prompt) // max(1, min(len(prompt), _COUNTED_CHARS))
