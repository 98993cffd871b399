"""What every Engine keeps, run on the real one (vLLM, SmolLM2 in fp32) and on its stand-in."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from tasks.core.config import EngineConfig
from tasks.core.errors import RequestError
from tasks.core.plan import PlannedSequence
from tasks.core.protocols import Engine, Tokenizer
from tasks.core.request import FinishReason, SamplingParams, sequence_key
from tasks.engine.echo import EchoEngine
from tasks.engine.models import resolve_model
from tasks.engine.tokenizer import ByteTokenizer, ModelTokenizer

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's and torch's own

Make = Callable[..., PlannedSequence]
QUESTIONS = ("What is the capital of France?", "Name three colours.", "Say hello in Japanese: 日本語 🌶", "Count to five.")


@pytest.fixture(scope="session")
def vllm_engine() -> Iterator[Engine]:
    """The session's one real engine in this process."""
    from tasks.engine.vllm import VLLMEngine

    config = EngineConfig(max_num_seqs=8, kv_cache_memory_bytes=256 << 20, max_num_batched_tokens=64)
    engine = VLLMEngine(resolve_model("SmolLM2-135M-Instruct").path, config, dtype="float32", max_model_len=512)
    yield engine
    engine.close()


@pytest.fixture(params=["echo", pytest.param("vllm", marks=pytest.mark.engine)])
def engine(request: pytest.FixtureRequest) -> Engine:
    made: Engine = EchoEngine() if request.param == "echo" else request.getfixturevalue("vllm_engine")
    assert made.num_unfinished == 0
    return made


@pytest.fixture
def tokenizer(engine: Engine) -> Tokenizer:
    if isinstance(engine, EchoEngine):
        return ByteTokenizer()
    return ModelTokenizer(resolve_model("SmolLM2-135M-Instruct").path, 512)


@pytest.fixture
def make(tokenizer: Tokenizer) -> Make:
    """A sequence that asks a question."""

    def build(question: str = QUESTIONS[0], name: str = "", **sampling: object) -> PlannedSequence:
        text = tokenizer.render([{"role": "user", "content": question}])
        prompt = tuple(tokenizer.encode([text], rendered=[True])[0])
        name = name or question
        params = SamplingParams(**{"max_tokens": 12, **sampling})  # type: ignore[arg-type]
        return PlannedSequence(sequence_key(name, 0), name, 0, 0, prompt, params)

    return build


Answer = tuple[list[int], FinishReason | None]


def drain(engine: Engine, work: Sequence[tuple[PlannedSequence, Sequence[int]]]) -> dict[int, Answer]:
    """Run these to their end; new tokens and finish reason by key."""
    answers: dict[int, Answer] = {sequence.key: ([], None) for sequence, _ in work}
    for sequence, saved in work:
        engine.add_request(sequence, saved)
    while engine.num_unfinished:
        for output in engine.step():
            assert answers[output.key][1] is None, "a finished sequence gives no more output"
            answers[output.key] = (answers[output.key][0] + list(output.token_ids), output.finish_reason)
    return answers


def ask(engine: Engine, sequence: PlannedSequence, saved: Sequence[int] = ()) -> Answer:
    return drain(engine, [(sequence, saved)])[sequence.key]


def test_all_sequences_end(engine: Engine, make: Make) -> None:
    """Sequences added together each end once, within their max_tokens, with a reason."""
    answers = drain(engine, [(make(question), ()) for question in QUESTIONS])
    assert len(answers) == len(QUESTIONS)
    for tokens, reason in answers.values():
        assert 1 <= len(tokens) <= 12
        assert reason is FinishReason.STOP or len(tokens) == 12


def test_alone_or_together_is_the_same(engine: Engine, make: Make) -> None:
    """An answer does not depend on what else runs."""
    together = drain(engine, [(make(question), ()) for question in QUESTIONS])
    for question in QUESTIONS:
        assert ask(engine, make(question)) == together[make(question).key]


SAMPLED = {"temperature": 0.9, "seed": 11, "top_p": 0.95, "top_k": 40}


@pytest.mark.parametrize("sampling", [{}, SAMPLED], ids=["greedy", "sampled"])
def test_going_on_from_any_token_gives_the_same_answer(engine: Engine, make: Make, sampling: dict[str, object]) -> None:
    """For every number of saved tokens, what follows is what an undisturbed run gave."""
    sequence = make(QUESTIONS[2], **sampling)
    tokens, reason = ask(engine, sequence)
    for k in range(1, len(tokens)):
        assert ask(engine, sequence, tokens[:k]) == (tokens[k:], reason), f"after {k} saved tokens"


def test_max_tokens_counts_saved_tokens(engine: Engine, make: Make) -> None:
    """The budget is that of the whole answer."""
    sequence = make(ignore_eos=True)
    tokens, _ = ask(engine, sequence)
    assert ask(engine, sequence, tokens[:9]) == (tokens[9:], FinishReason.LENGTH)


def test_same_prompt_runs_under_two_keys(engine: Engine, make: Make) -> None:
    """Two sequences with equal content are told apart by their keys and get equal answers."""
    first, second = make(name="first"), make(name="second")
    answers = drain(engine, [(first, ()), (second, ())])
    assert answers[first.key] == answers[second.key]


def test_aborted_sequences_are_gone(engine: Engine, make: Make) -> None:
    """An abort ends one sequence without output, and the others go on; added again it gives its full answer."""
    kept, dropped = make(QUESTIONS[0]), make(QUESTIONS[1])
    expected = ask(engine, kept), ask(engine, dropped)
    for sequence in (kept, dropped):
        engine.add_request(sequence, ())
    engine.step()
    engine.abort([dropped.key])
    assert engine.num_unfinished == 1
    while engine.num_unfinished:
        assert {output.key for output in engine.step()} <= {kept.key}
    assert (ask(engine, kept), ask(engine, dropped)) == expected


@pytest.mark.engine
def test_vllm_refuses_one_bad_sequence_only(vllm_engine: Engine) -> None:
    """A prompt that fills the whole context, or an id out of the vocabulary, is refused; the engine goes on."""
    good = PlannedSequence(1, "good", 0, 0, (1, 4093, 198), SamplingParams(max_tokens=3))
    for bad in (replace(good, key=2, prompt_token_ids=(5,) * 512), replace(good, key=3, prompt_token_ids=(10**6,))):
        with pytest.raises(RequestError):
            vllm_engine.add_request(bad, ())
    assert vllm_engine.num_unfinished == 0
    assert ask(vllm_engine, good)[1] is not None


@pytest.mark.engine
def test_vllm_answers_sensibly(vllm_engine: Engine) -> None:
    """The easy question has the easy answer, decoded without special tokens."""
    tokenizer = ModelTokenizer(resolve_model("SmolLM2-135M-Instruct").path, 512)
    text = tokenizer.render([{"role": "user", "content": QUESTIONS[0]}])
    prompt = tuple(tokenizer.encode([text], rendered=[True])[0])
    sequence = PlannedSequence(7, "paris", 0, 0, prompt, SamplingParams(max_tokens=24))
    tokens, reason = ask(vllm_engine, sequence)
    assert tokenizer.decode([tokens]) == ["The capital of France is Paris."]
    assert reason is FinishReason.STOP


@pytest.mark.engine
def test_vllm_stops_at_a_stop_string(vllm_engine: Engine) -> None:
    """A stop string ends the sequence with reason stop."""
    tokenizer = ModelTokenizer(resolve_model("SmolLM2-135M-Instruct").path, 512)
    text = tokenizer.render([{"role": "user", "content": QUESTIONS[0]}])
    prompt = tuple(tokenizer.encode([text], rendered=[True])[0])
    sequence = PlannedSequence(8, "stop", 0, 0, prompt, SamplingParams(max_tokens=24, stop=(" France",)))
    tokens, reason = ask(vllm_engine, sequence)
    assert tokenizer.decode([tokens])[0].endswith(" France")
    assert reason is FinishReason.STOP


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
