"""A request and what becomes of it, from the file's row to the finished completion.

Token ids are plain integers of the model's vocabulary; text is Unicode. Every input row ends as exactly one of Reject,
Failure or Completion (one Completion per choice).
"""

import hashlib
import json
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple


class FinishReason(StrEnum):
    """Why a sequence ended, in the words of the OpenAI API."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class StructuredOutputs:
    """What the answer's text must match. `kind` is json, json_object, regex, choice or grammar, as in vLLM; `spec` is the
    JSON schema as text, the pattern, the choices as a JSON array, the EBNF or Lark grammar, or nothing (json_object)."""

    kind: str
    spec: str = ""

    @property
    def is_json(self) -> bool:
        return self.kind in ("json", "json_object")

    @property
    def choices(self) -> list[str]:
        """The texts to choose from, of kind choice."""
        choices: list[str] = json.loads(self.spec)
        return choices


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose tokens; names, meanings and defaults as in vLLM, but greedy unless a temperature is given.

    `logprobs` is how many alternatives are reported with each token's own log-probability; None reports nothing.
    """

    max_tokens: int
    min_tokens: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    bad_words: tuple[str, ...] = ()
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None
    structured_outputs: StructuredOutputs | None = None

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def is_deterministic(self) -> bool:
        """Whether the same prompt always gives the same answer: greedy, or sampled with a seed of its own."""
        return self.is_greedy or self.seed is not None

    def to_json(self) -> str:
        """Canonical: sorted keys, defaults left out, so that equal parameters are equal text."""
        defaults = {f.name: f.default for f in fields(self)}
        given = {name: value for name, value in asdict(self).items() if value != defaults[name]}
        return json.dumps(given, sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> "SamplingParams":
        values: dict[str, Any] = json.loads(text)
        for name in ("stop", "stop_token_ids", "bad_words"):
            values[name] = tuple(values.get(name, ()))
        values["logit_bias"] = tuple((token_id, bias) for token_id, bias in values.get("logit_bias", ()))
        if (structured := values.get("structured_outputs")) is not None:
            values["structured_outputs"] = StructuredOutputs(**structured)
        return SamplingParams(**values)

    def with_seed(self, seed: int) -> "SamplingParams":
        return replace(self, seed=seed)


def is_sampled(sampling: str) -> bool:
    """Whether parameters have a temperature, told from their canonical JSON text: in its strings each quote has a backslash,
    so that only a key matches."""
    return '"temperature":' in sampling


def is_deterministic(sampling: str) -> bool:
    """What SamplingParams says of itself, told from its canonical JSON text in the same way."""
    return not is_sampled(sampling) or '"seed":' in sampling


@dataclass(frozen=True, slots=True)
class Request:
    """One accepted row. `messages` is the chat as JSON text, or None for a raw prompt; `text` is what distinguishes it.

    `tools` are the tool definitions as JSON text, for the chat template. `truncated_tokens` is how many tokens its prompt
    has lost to fit the model's context. Higher `priority` goes first.
    """

    request_id: str
    custom_id: str
    source: str
    file: str
    line: int
    messages: str | None
    text: str
    sampling: SamplingParams
    n: int = 1
    requested_model: str | None = None
    tools: str | None = None
    prompt_token_ids: Sequence[int] = ()
    truncated_tokens: int = 0
    priority: int = 0
    deadline: datetime | None = None


@dataclass(frozen=True, slots=True)
class Reject:
    """A row that never became a request: where it stands, a reason code for programs, a sentence for people."""

    source: str
    file: str
    line: int
    byte_offset: int | None
    custom_id: str | None
    reason: str
    message: str
    raw: str


class TokenLogprobs(NamedTuple):
    """Natural log-probabilities at one position: the chosen token's, and (token id, log-probability) of the most likely."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What one engine step gave one sequence: its new token ids, and on the last step how it ended.

    `cached_tokens` is how many prompt tokens came out of the prefix cache; `logprobs` has one entry per new token where they
    were asked for. With `error` set the sequence is given up.
    """

    key: int
    token_ids: Sequence[int]
    finish_reason: FinishReason | None = None
    cached_tokens: int = 0
    error: str | None = None
    logprobs: Sequence[TokenLogprobs] | None = None


@dataclass(slots=True)
class Progress:
    """What the journal knows of one sequence. At most one of finish_reason and error is set; either one ends it.

    `logprobs` is as long as `token_ids` where they were asked for, and empty elsewhere.
    """

    token_ids: "array[int]" = field(default_factory=lambda: array("i"))
    finish_reason: FinishReason | None = None
    error: str | None = None
    cached_tokens: int = 0
    logprobs: list[TokenLogprobs] = field(default_factory=list)

    @property
    def is_final(self) -> bool:
        return self.finish_reason is not None or self.error is not None


def derived_seed(base: int, request_id: str) -> int:
    """A 63-bit seed for a sampled request that brought none: a function of the run's seed and the request alone."""
    digest = hashlib.blake2b(f"{base}\0{request_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
