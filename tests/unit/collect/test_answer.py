"""What an answer says, from its ids and its request's parameters alone."""

from array import array
from typing import Any

import pytest

from tasks.collect.answer import Answer, answers
from tasks.core.request import FinishReason, Progress, SamplingParams, StructuredOutputs
from tasks.engine.tokenizer import ByteTokenizer

STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH


def answer(text: str | bytes, reason: FinishReason = STOP, **sampling: Any) -> Answer:
    data = text.encode() if isinstance(text, str) else text
    known = Progress(array("i", [byte + 1 for byte in data]), reason)
    (said,) = answers([known], [SamplingParams(max_tokens=100, **sampling)], ByteTokenizer())
    return said


@pytest.mark.parametrize(
    ("text", "reason", "sampling", "expected"),
    [
        ("one END", STOP, {"stop": ("END",)}, ("one ", "END")),
        ("one END", STOP, {"stop": ("D", "END")}, ("one EN", "D")),
        ("one END", STOP, {"stop": ("ND", "END")}, ("one E", "ND")),
        ("one EN", LENGTH, {"stop": ("END",)}, ("one EN", None)),
        ("one", STOP, {"stop": ("END",)}, ("one", None)),
        ("x END y END", STOP, {"stop": ("END",), "min_tokens": 6}, ("x END y ", "END")),
        ("x END y", STOP, {"stop": ("END",), "min_tokens": 6}, ("x END y", None)),
        ("onex", STOP, {"stop_token_ids": (ord("x") + 1,)}, ("one", str(ord("x") + 1))),
        ("onex", LENGTH, {"stop_token_ids": (ord("x") + 1,)}, ("onex", None)),
        ("naï".encode()[:-1], LENGTH, {}, ("na", None)),
        ("naï".encode()[:-1], STOP, {}, ("na\ufffd", None)),
        ("日本語。終", STOP, {"stop": ("。終",)}, ("日本語", "。終")),
    ],
)
def test_text_and_stop_reason(
    text: str | bytes, reason: FinishReason, sampling: dict[str, Any], expected: tuple[str, str | None]
) -> None:
    """The text ends before what stopped it, which is named; a character that max_tokens cut in the middle is left out."""
    said = answer(text, reason, **sampling)
    assert (said.text, said.stop_reason) == expected


def test_json_is_checked_where_it_was_asked_for() -> None:
    """An answer cut in the middle of its JSON is flagged; other answers are not looked at."""
    wanted: Any = {"structured_outputs": StructuredOutputs("json", "{}")}
    assert answer('{"a": 1}', **wanted).is_valid_json is True
    assert answer('{"a": "x', LENGTH, **wanted).is_valid_json is False
    assert answer("no json").is_valid_json is None
    assert answer("a", structured_outputs=StructuredOutputs("regex", "a")).is_valid_json is None
