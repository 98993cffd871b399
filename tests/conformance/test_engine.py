"""What every Engine keeps, run on the real one (vLLM, SmolLM2 in fp32) and on its stand-ins."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tasks.core.errors import RequestError
from tasks.core.plan import PlannedSequence
from tasks.core.protocols import Engine, Tokenizer
from tasks.core.request import FinishReason, SamplingParams
from tasks.engine.echo import EchoEngine

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's and torch's own

Make = Callable[..., PlannedSequence]
VLLM = pytest.param("vllm", marks=pytest.mark.engine)
QUESTIONS = ("What is the capital of France?", "Name three colours.", "Say hello in Japanese: 日本語 🌶", "Count to five.")


@pytest.fixture(params=["echo", "simulated", VLLM])
def engine(request: pytest.FixtureRequest) -> Engine:
    made: Engine = EchoEngine() if request.param == "echo" else request.getfixturevalue(f"{request.param}_engine")
    assert made.num_unfinished == 0
    return made


def test_all_sequences_end(drain: Any, make: Make) -> None:
    """Sequences added together each end once, within their max_tokens, with a reason."""
    answers = drain([(make(question), ()) for question in QUESTIONS])
    assert len(answers) == len(QUESTIONS)
    for answer in answers.values():
        assert 1 <= len(answer.token_ids) <= 12
        assert answer.finish_reason is FinishReason.STOP or len(answer.token_ids) == 12


def test_alone_or_together_is_the_same(drain: Any, ask: Any, make: Make) -> None:
    """An answer does not depend on what else runs."""
    together = drain([(make(question), ()) for question in QUESTIONS])
    for question in QUESTIONS:
        assert ask(make(question)) == together[make(question).key]


def test_same_prompt_runs_under_two_keys(drain: Any, make: Make) -> None:
    """Two sequences with equal content are told apart by their keys and get equal answers."""
    first, second = make(name="first"), make(name="second")
    answers = drain([(first, ()), (second, ())])
    assert answers[first.key] == answers[second.key]


def test_aborted_sequences_are_gone(engine: Engine, ask: Any, make: Make) -> None:
    """An abort ends one sequence without output, and the others go on; added again it gives its full answer."""
    kept, dropped = make(QUESTIONS[0]), make(QUESTIONS[1])
    expected = ask(kept), ask(dropped)
    for sequence in (kept, dropped):
        engine.add_request(sequence, ())
    engine.step()
    engine.abort([dropped.key])
    assert engine.num_unfinished == 1
    while engine.num_unfinished:
        assert {output.key for output in engine.step()} <= {kept.key}
    assert (ask(kept), ask(dropped)) == expected


@pytest.mark.parametrize("engine", ["echo", VLLM], indirect=True)  # the simulated one has no logits
def test_logprobs_come_with_each_token(ask: Any, make: Make) -> None:
    """As many alternatives as were asked for, best first, and none where none were wanted; the greedy token is the best."""
    assert ask(make()).logprobs == []
    for num_top in (0, 3):
        answer = ask(make(logprobs=num_top))
        assert len(answer.logprobs) == len(answer.token_ids)
        for token, at in zip(answer.token_ids, answer.logprobs, strict=True):
            assert at.logprob <= 0
            assert len(at.top) == num_top
            assert [logprob for _, logprob in at.top] == sorted((logprob for _, logprob in at.top), reverse=True)
            assert not num_top or at.top[0] == (token, at.logprob)


@pytest.mark.engine
def test_vllm_refuses_one_bad_sequence_only(vllm_engine: Engine) -> None:
    """A prompt that fills the whole context, or an id out of the vocabulary, is refused; the engine goes on."""
    good = PlannedSequence(1, "good", 0, 0, (1, 4093, 198), SamplingParams(max_tokens=3))
    for bad in (replace(good, key=2, prompt_token_ids=(5,) * 512), replace(good, key=3, prompt_token_ids=(10**6,))):
        with pytest.raises(RequestError):
            vllm_engine.add_request(bad, ())
    assert vllm_engine.num_unfinished == 0
    vllm_engine.add_request(good, ())
    outputs = []
    while vllm_engine.num_unfinished:
        outputs += vllm_engine.step()
    assert outputs[-1].finish_reason is not None


@pytest.mark.engine
@pytest.mark.parametrize("engine", ["vllm"], indirect=True)
def test_vllm_answers_sensibly(ask: Any, make: Make, tokenizer: Tokenizer) -> None:
    """The easy question has the easy answer, decoded without special tokens."""
    answer = ask(make(max_tokens=24))
    assert tokenizer.decode([answer.token_ids]) == ["The capital of France is Paris."]
    assert answer.finish_reason is FinishReason.STOP


@pytest.mark.engine
def test_vllm_reuses_prefixes(vllm_engine: Engine) -> None:
    """The second of two prompts with a long common prefix takes its full blocks from the cache."""
    prompt = tuple(range(1000, 1100))
    params = SamplingParams(max_tokens=1)
    outputs = []
    for key in (21, 22):
        vllm_engine.add_request(PlannedSequence(key, "", 0, 0, (*prompt, key), params), ())
        while vllm_engine.num_unfinished:
            outputs += vllm_engine.step()
    assert [output.cached_tokens for output in outputs] == [0, 96]
