"""The log-probabilities of one choice as the OpenAI API reports them, for chats and for raw prompts.

A token's bytes are null where it is only part of a character. JSON has no infinity: -9999 stands for it, as elsewhere.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from tasks.export.columns import Row

_LOWEST = -9999.0
_PART = "\ufffd"


class TokenText(NamedTuple):
    """A token's text and its bytes, where it is whole characters; `is_name` where the text only names the token."""

    text: str
    data: list[int] | None
    is_name: bool = False


Texts = Callable[[int], TokenText]


def token_text(text: str) -> TokenText:
    """A token with this text."""
    return TokenText(text, None if _PART in text else list(text.encode()))


def token_name(token_id: int) -> TokenText:
    """A token whose text is not known, such as a special one, or is another's too."""
    return TokenText(f"token_id:{token_id}", None, is_name=True)


def chat_logprobs(choice: Row, texts: Texts) -> dict[str, Any] | None:
    """`logprobs` of a chat's choice; None where none were asked for."""
    if choice["logprobs"] is None:
        return None
    content = [
        {**_entry(texts(token_id), logprob), "top_logprobs": [_entry(texts(other), value) for other, value in top]}
        for token_id, logprob, top in _positions(choice)
    ]
    return {"content": content, "refusal": None}


def text_logprobs(choice: Row, texts: Texts) -> dict[str, Any] | None:
    """`logprobs` of a completion's choice; None where none were asked for."""
    if choice["logprobs"] is None:
        return None
    tokens = [texts(token_id) for token_id in choice["output_token_ids"]]
    offsets = [0, *accumulate(0 if token.is_name else len(token.text) for token in tokens)]
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [_finite(logprob) for _, logprob, _ in _positions(choice)],
        "top_logprobs": [_by_text(top, texts) for _, _, top in _positions(choice)],
        "text_offset": offsets[:-1],
    }


def _positions(choice: Row) -> Iterator[tuple[int, float, list[tuple[int, float]]]]:
    alternatives: Sequence[Sequence[Mapping[str, Any]]] = choice["top_logprobs"] or [()] * len(choice["logprobs"])
    for token_id, logprob, top in zip(choice["output_token_ids"], choice["logprobs"], alternatives, strict=True):
        yield token_id, logprob, [(one["token_id"], one["logprob"]) for one in top]


def _entry(token: TokenText, logprob: float) -> dict[str, Any]:
    return {"token": token.text, "bytes": token.data, "logprob": _finite(logprob)}


def _by_text(top: Sequence[tuple[int, float]], texts: Texts) -> dict[str, float]:
    """Of two tokens with one text the less likely goes by its id."""
    named: dict[str, float] = {}
    for token_id, logprob in top:
        text = texts(token_id).text
        named[token_name(token_id).text if text in named else text] = _finite(logprob)
    return named


def _finite(logprob: float) -> float:
    return max(logprob, _LOWEST)
