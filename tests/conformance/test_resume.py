"""For every kind of sampling and every number of saved tokens, a resumed answer is what an undisturbed one is.

On the real engine (vLLM, SmolLM2 in fp32) and on its stand-in; logits and grammars only the real one has.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tasks.collect.answer import answers as read_answers
from tasks.core.plan import PlannedSequence
from tasks.core.protocols import Engine, Tokenizer
from tasks.core.request import FinishReason, Progress, StructuredOutputs
from tasks.engine.echo import EchoEngine

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's and torch's own

Make = Callable[..., PlannedSequence]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "rank": {"type": "integer"}, "tags": {"enum": ["a", "b"]}},
    "required": ["name", "rank", "tags"],
    "additionalProperties": False,
}
SEEDED = {"temperature": 0.9, "seed": 11}
PENALTIES = {"presence_penalty": 0.7, "frequency_penalty": 0.6}
TOLERANCE = 1e-4
"""In nats: prefill and decode round log-probabilities differently in fp32; the tokens are equal."""

ANY_ENGINE: dict[str, dict[str, Any]] = {
    "greedy": {},
    "min tokens": {"min_tokens": 9},
    "ignore eos": {"ignore_eos": True, "max_tokens": 20},
    "logprobs": {"logprobs": 3},
    "top-k and top-p": {**SEEDED, "top_p": 0.95, "top_k": 40},
    "top-p": {**SEEDED, "top_p": 0.8},
    "min-p": {**SEEDED, "min_p": 0.05},
    "temperature": SEEDED,
}
VLLM_ONLY: dict[str, dict[str, Any]] = {
    "penalties": PENALTIES,
    "all penalties, sampled": {**PENALTIES, **SEEDED, "repetition_penalty": 1.3, "top_p": 0.9},
    "repetition penalty": {"repetition_penalty": 1.3},
    "negative penalty": {"frequency_penalty": -0.5, "max_tokens": 20},
    "bad words": {"bad_words": ("capital of", "Paris.", "is")},
    "logit bias": {"logit_bias": ((28, -8.0), (253, 2.5)), **SEEDED},
    "json schema": {"structured_outputs": StructuredOutputs("json", json.dumps(SCHEMA)), "max_tokens": 40},
    "json schema, sampled": {
        "structured_outputs": StructuredOutputs("json", json.dumps(SCHEMA)),
        "max_tokens": 40,
        **SEEDED,
    },
    "json object": {"structured_outputs": StructuredOutputs("json_object")},
    "choice": {"structured_outputs": StructuredOutputs("choice", '["Marseille and Lyon", "Paris, of course"]')},
    "regex": {"structured_outputs": StructuredOutputs("regex", "[A-Z][a-z]+, [0-9]{3} (yes|no)")},
    "grammar": {"structured_outputs": StructuredOutputs("grammar", 'root ::= "[" [0-9]+ ("," [0-9]+){2,4} "]"'), **SEEDED},
    "emoji and scripts": {
        "structured_outputs": StructuredOutputs("choice", '["🌶 naïve 日本 👩‍👧 مرحبا ok"]'),
        "max_tokens": 40,
    },
    "everything": {**PENALTIES, **SEEDED, "min_tokens": 5, "top_k": 30, "bad_words": ("the city",), "logprobs": 2},
}


@pytest.fixture
def check(engine: Engine, drain: Any, ask: Any, tokenizer: Tokenizer) -> Callable[[PlannedSequence], tuple[Any, str]]:
    """Runs a sequence undisturbed, and resumed after every number of tokens; its answer and its text."""

    def text(sequence: PlannedSequence, token_ids: list[int], answer: Any) -> str:
        known = Progress(finish_reason=answer.finish_reason)
        known.token_ids.extend(token_ids)
        return read_answers([known], [sequence.sampling], tokenizer)[0].text

    def run(sequence: PlannedSequence) -> tuple[Any, str]:
        assert engine.continues_exactly(sequence.sampling)
        whole = ask(sequence)
        cuts = {k: replace(sequence, key=k) for k in range(1, len(whole.token_ids))}
        resumed = drain([(of, whole.token_ids[:k]) for k, of in cuts.items()])
        expected_text = text(sequence, whole.token_ids, whole)
        for k in cuts:
            rest = whole.after(k)
            assert (resumed[k].token_ids, resumed[k].finish_reason) == (rest.token_ids, rest.finish_reason), f"after {k}"
            assert_close(resumed[k].logprobs, rest.logprobs)
            assert text(sequence, whole.token_ids[:k] + resumed[k].token_ids, resumed[k]) == expected_text
        return whole, expected_text

    return run


def assert_close(found: Any, expected: Any) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=TOLERANCE)
        assert [logprob for _, logprob in one.top] == pytest.approx([logprob for _, logprob in other.top], abs=TOLERANCE)


@pytest.mark.parametrize("kind", ANY_ENGINE)
def test_resumed_equals_undisturbed(check: Any, make: Make, kind: str) -> None:
    """After any number of saved tokens the rest is the undisturbed rest: tokens, text, reason and log-probabilities."""
    whole, _ = check(make("Say hello in Japanese: 日本語 🌶", **{"max_tokens": 14, **ANY_ENGINE[kind]}))
    assert len(whole.token_ids) > 2


@pytest.mark.engine
@pytest.mark.parametrize("engine", ["vllm"], indirect=True)
@pytest.mark.parametrize("kind", VLLM_ONLY)
def test_resumed_equals_undisturbed_with_logits_and_grammars(check: Any, make: Make, kind: str) -> None:
    """So it is with penalties, bad words, biases, and with a grammar, whose state goes on from the saved tokens."""
    sampling = {"max_tokens": 16, **VLLM_ONLY[kind]}
    whole, text = check(make(**sampling))
    assert len(whole.token_ids) > 1
    wanted = sampling.get("structured_outputs")
    if wanted is not None and wanted.kind == "choice":
        assert text in wanted.choices
    if wanted is not None and wanted.kind == "json" and whole.finish_reason is FinishReason.STOP:
        assert json.loads(text).keys() == SCHEMA["properties"].keys()


@pytest.mark.engine
@pytest.mark.parametrize("engine", ["vllm"], indirect=True)
def test_what_is_asked_for_changes_the_answer(ask: Any, make: Make) -> None:
    """Penalties, bad words and biases are really at work: each gives another answer than plain greedy decoding does."""
    plain = ask(make(max_tokens=24, ignore_eos=True))
    for kind in ("penalties", "repetition penalty", "bad words"):
        sampling = {**VLLM_ONLY[kind], "max_tokens": 24, "ignore_eos": True}
        assert ask(make(**sampling)).token_ids != plain.token_ids
    banned = ((plain.token_ids[0], -100.0),)
    assert ask(make(max_tokens=2, logit_bias=banned)).token_ids[0] != plain.token_ids[0]


def test_stop_string_is_found_wherever_the_answer_was_cut(check: Any, ask: Any, make: Make, tokenizer: Tokenizer) -> None:
    """A stop string over several tokens ends the answer at the same token after any interruption, also inside the string."""
    whole = ask(make())
    text = tokenizer.decode([whole.token_ids[2:7]])[0].rstrip()
    answer, cut = check(make(stop=("never", text[-6:])))
    assert answer.finish_reason is FinishReason.STOP
    assert len(answer.token_ids) < len(whole.token_ids)
    assert not cut.endswith(text[-6:])
    assert (cut + text[-6:]) in tokenizer.decode([whole.token_ids])[0]


def test_stop_token_ends_the_answer(check: Any, ask: Any, make: Make) -> None:
    """A stop token ends the answer, is among its tokens and not in its text, after any interruption."""
    whole = ask(make())
    token = whole.token_ids[4]
    answer, _ = check(make(stop_token_ids=(token,)))
    assert answer.token_ids == whole.token_ids[: whole.token_ids.index(token) + 1]
    assert answer.finish_reason is FinishReason.STOP


def test_min_tokens_hold_stops_off(check: Any, ask: Any, make: Make, engine: Engine) -> None:
    """Within the first min_tokens neither a stop token nor a stop string ends the answer, after any interruption."""
    whole = ask(make())
    token = whole.token_ids[2]
    answer, _ = check(make(stop_token_ids=(token,), min_tokens=6))
    assert len(answer.token_ids) > 3 or isinstance(engine, EchoEngine)


def test_max_tokens_counts_saved_tokens(ask: Any, make: Make) -> None:
    """The budget is that of the whole answer."""
    sequence = make(ignore_eos=True)
    whole = ask(sequence)
    assert ask(sequence, whole.token_ids[:9]) == whole.after(9)
    assert whole.finish_reason is FinishReason.LENGTH
