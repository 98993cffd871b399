"""Token ids to the answer that a person gets: its text, what stopped it, whether it is the JSON that was asked for.

Everything here is a function of the whole list of ids and the request's parameters, so an interruption leaves no trace.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from tasks.core.protocols import Tokenizer
from tasks.core.request import FinishReason, Progress, SamplingParams
from tasks.engine.stops import StopStrings, first_stop


@dataclass(frozen=True, slots=True)
class Answer:
    """`stop_reason` is the stop string, or the stop token's id in digits, that ended it; None for the model's own end.
    `is_valid_json` is None where no JSON was asked for."""

    text: str
    stop_reason: str | None
    is_valid_json: bool | None


def answers(known: Sequence[Progress], sampling: Sequence[SamplingParams], tokenizer: Tokenizer) -> list[Answer]:
    """What these finished sequences say, in order."""
    shown = [_shown_ids(progress, params) for progress, params in zip(known, sampling, strict=True)]
    texts = tokenizer.decode(shown)
    return [_answer(*parts, tokenizer) for parts in zip(known, sampling, shown, texts, strict=True)]


def _shown_ids(progress: Progress, sampling: SamplingParams) -> Sequence[int]:
    """The ids without a stop token, which is in the answer's tokens and not in its text."""
    ids = progress.token_ids
    ends_by_token = progress.finish_reason is FinishReason.STOP and ids and ids[-1] in sampling.stop_token_ids
    return ids[:-1] if ends_by_token else ids


def _answer(progress: Progress, sampling: SamplingParams, shown: Sequence[int], text: str, tokenizer: Tokenizer) -> Answer:
    stop_reason = None
    if progress.finish_reason is FinishReason.LENGTH:
        text = text.rstrip("\ufffd")  # a character that max_tokens cut in the middle
    elif len(shown) < len(progress.token_ids):
        stop_reason = str(progress.token_ids[-1])
    elif sampling.stop:
        text, stop_reason = _cut(text, shown, sampling, tokenizer)
    wanted = sampling.structured_outputs
    return Answer(text, stop_reason, _is_json(text) if wanted is not None and wanted.is_json else None)


def _cut(text: str, ids: Sequence[int], sampling: SamplingParams, tokenizer: Tokenizer) -> tuple[str, str | None]:
    """The text without the stop string that ended it, and which that was."""
    if not sampling.min_tokens:  # nothing but the end can hold a stop string
        found = first_stop(text, sampling.stop)
        return (text[: found[0]], found[1]) if found else (text, None)
    match = StopStrings(sampling.stop, sampling.min_tokens, tokenizer.text).feed(ids)
    return (text[: match.text_end], match.stop) if match else (text, None)


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True
