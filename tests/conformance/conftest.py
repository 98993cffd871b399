"""The engines under test, and ways to put questions to them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from zlib import crc32

import pytest

from tasks.core.config import EngineConfig
from tasks.core.plan import PlannedSequence
from tasks.core.protocols import Engine, Tokenizer
from tasks.core.request import FinishReason, SamplingParams, TokenLogprobs
from tasks.engine.echo import EchoEngine
from tasks.engine.models import resolve_model
from tasks.engine.scheduling import EngineShape
from tasks.engine.simulated import SimulatedEngine
from tasks.engine.tokenizer import ByteTokenizer, ModelTokenizer

Make = Callable[..., PlannedSequence]
QUESTION = "What is the capital of France?"


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
def simulated_engine() -> Engine:
    """A simulated engine in which the test's sequences do not all fit, whose answers differ in length."""
    shape = EngineShape(block_size=16, num_blocks=41, max_num_seqs=3, max_num_batched_tokens=64)
    return SimulatedEngine(shape, lambda sequence: 5 + sequence.prompt_token_ids[-20] % 9, max_steps_per_call=4)


@pytest.fixture
def tokenizer(engine: Engine) -> Tokenizer:
    if isinstance(engine, EchoEngine | SimulatedEngine):
        return ByteTokenizer()
    return ModelTokenizer(resolve_model("SmolLM2-135M-Instruct").path, 512)


@pytest.fixture
def make(tokenizer: Tokenizer) -> Make:
    """A sequence that asks a question."""

    def build(question: str = QUESTION, name: str = "", **sampling: object) -> PlannedSequence:
        text = tokenizer.render([{"role": "user", "content": question}])
        prompt = tuple(tokenizer.encode([text], rendered=[True])[0])
        name = name or question
        params = SamplingParams(**{"max_tokens": 12, **sampling})  # type: ignore[arg-type]
        return PlannedSequence(crc32(name.encode()), name, 0, 0, prompt, params)

    return build


@dataclass
class Answer:
    """What an engine gave one sequence since it was added."""

    token_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    error: str | None = None

    def after(self, num_tokens: int) -> "Answer":
        """What is left of it behind so many tokens."""
        return Answer(self.token_ids[num_tokens:], self.finish_reason, self.logprobs[num_tokens:], self.error)


Drain = Callable[[Sequence[tuple[PlannedSequence, Sequence[int]]]], dict[int, Answer]]
Ask = Callable[..., Answer]


@pytest.fixture
def drain(engine: Engine) -> Drain:
    """Runs sequences, each with its saved tokens, to their end; the answers by key."""

    def run(work: Sequence[tuple[PlannedSequence, Sequence[int]]]) -> dict[int, Answer]:
        answers = {sequence.key: Answer() for sequence, _ in work}
        for sequence, saved in work:
            engine.add_request(sequence, saved)
        while engine.num_unfinished:
            for output in engine.step():
                answer = answers[output.key]
                assert answer.finish_reason is None, "a finished sequence gives no more output"
                answer.token_ids += output.token_ids
                answer.logprobs += output.logprobs or ()
                answer.finish_reason, answer.error = output.finish_reason, output.error
        return answers

    return run


@pytest.fixture
def ask(drain: Drain) -> Ask:
    """One sequence's answer."""

    def run(sequence: PlannedSequence, saved: Sequence[int] = ()) -> Answer:
        return drain([(sequence, saved)])[sequence.key]

    return run
