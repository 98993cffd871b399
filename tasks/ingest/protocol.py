"""The shapes a row may have, as pydantic models: OpenAI Batch lines, their bodies, and plain rows.

Names and ranges are those of the OpenAI API and of vLLM's extensions to it. Validation is strict for JSON (the text "64"
is no number) and lax for CSV, where everything is text. A parameter that is not honoured is an error, never ignored.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)


def _no_nul(text: str) -> str:
    """A NUL is never meant, and databases and C libraries that read the results stop at it."""
    if "\0" in text:
        raise ValueError("must not hold a NUL character")
    return text


def _in_digits(text: str) -> str:
    if not (text.isascii() and text.isdigit() and str(int(text[:10])) == text):
        raise ValueError(f"{text!r} is no token id")
    return text


Text = Annotated[str, AfterValidator(_no_nul)]
Positive = Annotated[int, Field(ge=1)]
Penalty = Annotated[float, Field(ge=-2, le=2, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]

TokenId = Annotated[int, Field(ge=0, lt=2**31)]
TokenIdKey = Annotated[str, AfterValidator(_in_digits)]
Bias = Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False)]
Word = Annotated[Text, Field(min_length=1)]
Alternatives = Annotated[int, Field(ge=0, le=20)]

IGNORED = frozenset(
    ("user", "metadata", "store", "service_tier", "stream", "stream_options", "safety_identifier", "prompt_cache_key")
)
"""Body fields that do not change the answer of a batch job."""

NOT_HONOURED = frozenset((*("best_of", "function_call", "functions", "prompt_logprobs", "tool_choice", "tools"),))
"""Parameters that a plain row may bring in vain. Its other unknown fields are the user's own and not looked at."""

JSON_CELLS = (
    *("bad_words", "guided_choice", "guided_json", "logit_bias", "response_format", "stop", "stop_token_ids"),
    "structured_outputs",
)
"""Parameters that may be more than one value: a table's cell that begins with a bracket holds them as JSON."""

_NEUTRAL: tuple[Any, ...] = (None, False, [], {}, "none", {"type": "text"})


class Parameters(BaseModel):
    """Sampling parameters of one request; None means not given."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    min_p: Share | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=2, allow_inf_nan=False)] | None = None
    stop: Text | Annotated[list[Text], Field(fail_fast=True)] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=128, fail_fast=True)] | None = None
    ignore_eos: bool | None = None
    bad_words: Annotated[list[Word], Field(max_length=128, fail_fast=True)] | None = None
    logit_bias: Annotated[dict[TokenIdKey, Bias], Field(max_length=1024)] | None = None
    response_format: Any = None
    structured_outputs: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None

    @field_validator("stop")
    @classmethod
    def _no_empty_stop(cls, value: str | list[str] | None) -> str | list[str] | None:
        if value == "" or (isinstance(value, list) and "" in value):
            raise ValueError("a stop string must not be empty")
        return value

    @property
    def num_logprobs(self) -> int | None:
        """How many alternatives are reported with each token; None where nothing is."""
        return None


class ChatParameters(Parameters):
    """Parameters that chats have in their own way."""

    logprobs: bool | None = None
    top_logprobs: Alternatives | None = None

    @field_validator("top_logprobs")
    @classmethod
    def _with_logprobs(cls, value: int | None, given: ValidationInfo) -> int | None:
        if value and "logprobs" in given.data and not given.data["logprobs"]:
            raise ValueError("needs 'logprobs' to be true")
        return value

    @property
    def num_logprobs(self) -> int | None:
        return self.top_logprobs or 0 if self.logprobs else None


class TextPart(BaseModel):
    """The one kind of content part that a text model reads."""

    type: Literal["text", "input_text"]
    text: Text


class Function(BaseModel):
    """What an earlier turn called. Chat templates want the arguments as an object; the API has them as its JSON text."""

    model_config = ConfigDict(extra="allow")

    name: Text
    arguments: dict[str, Any] = {}

    @field_validator("arguments", mode="before")
    @classmethod
    def _parsed(cls, value: Any) -> Any:
        return orjson.loads(value or "{}") if isinstance(value, str) else value


class ToolCall(BaseModel):
    """A call that an earlier turn of the assistant made."""

    model_config = ConfigDict(extra="allow")

    function: Function


class Message(BaseModel):
    """One turn of a chat. Calls of an earlier turn and what they gave are text like any other, for the template to show."""

    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | Annotated[list[TextPart], Field(fail_fast=True)]
    name: Text | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: Text | None = None

    @model_validator(mode="before")
    @classmethod
    def _calls_need_no_content(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("tool_calls") and value.get("content") is None:
            return {**value, "content": ""}
        return value

    @field_validator("content", mode="before")
    @classmethod
    def _only_text(cls, value: Any) -> Any:
        if value is None:
            raise ValueError("must not be null")
        for part in value if isinstance(value, list) else ():
            kind = part.get("type") if isinstance(part, dict) else None
            if isinstance(kind, str) and kind not in ("text", "input_text"):
                raise ValueError(f"a content part of type {kind!r} is not supported by a text model")
        return value

    @model_validator(mode="after")
    def _nothing_unheard(self) -> "Message":
        if self.tool_calls and self.role != "assistant":
            raise ValueError(f"'tool_calls' belong to the assistant, not to {self.role!r}")
        for name in ("function_call", "audio"):
            if (self.model_extra or {}).get(name):
                raise ValueError(f"{name!r} is not supported")
        return self

    @property
    def flat_text(self) -> str:
        """The content as one string, parts joined by line breaks as vLLM joins them."""
        return self.content if isinstance(self.content, str) else "\n".join(part.text for part in self.content)

    def as_given(self) -> dict[str, Any]:
        """The fields that a chat template may read."""
        kept = {"role", "content", "name", "tool_calls", "tool_call_id"}
        return self.model_dump(include=kept, exclude_none=True)


Messages = Annotated[list[Message], Field(min_length=1, fail_fast=True)]


class Body(Parameters):
    """What chat and completion bodies share; any field that is neither known nor ignorable is named in the error."""

    model_config = ConfigDict(extra="allow", frozen=True)

    model: str | None = None

    @model_validator(mode="after")
    def _nothing_unheard(self) -> "Body":
        for name, value in (self.model_extra or {}).items():
            if name not in IGNORED and value not in _NEUTRAL:
                raise ValueError(f"the parameter {name!r} is not supported")
        return self


class ChatBody(ChatParameters, Body):
    """The body of /v1/chat/completions."""

    messages: Messages


class CompletionBody(Body):
    """The body of /v1/completions, one prompt a line."""

    prompt: Text
    logprobs: Alternatives | None = None

    @field_validator("logprobs", mode="before")
    @classmethod
    def _nothing_wanted(cls, value: Any) -> Any:
        return None if value is False else value

    @property
    def num_logprobs(self) -> int | None:
        return self.logprobs


class PlainRow(ChatParameters):
    """A row of a table: a prompt or messages, parameters, and fields of the user's own."""

    model_config = ConfigDict(extra="allow", frozen=True)

    messages: Messages | None = None
    prompt: Text | None = None
    system: Text | None = None

    @model_validator(mode="after")
    def _nothing_unheard(self) -> "PlainRow":
        for name, value in (self.model_extra or {}).items():
            if name in NOT_HONOURED and not isinstance(value, str) and value not in _NEUTRAL:
                raise ValueError(f"the parameter {name!r} is not supported")
        return self


class BatchLine(BaseModel):
    """One line of an OpenAI batch file; the body is checked by its endpoint's own model."""

    custom_id: Any = None
    method: Literal["POST"] | None = None
    url: str
    body: dict[str, Any]


def first_error(error: ValidationError, columns: Mapping[str, str]) -> str:
    """The field, and what is wrong with it; `columns` gives the names that the user has for fields of ours."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    worst = max(errors, key=lambda one: len(one["loc"]))  # of a union's branches the one that came furthest was meant
    path = [str(part) for part in worst["loc"] if isinstance(part, int) or part.isidentifier()]  # not the branches' names
    where = ".".join([columns.get(path[0], path[0]), *path[1:]]) if path else ""
    message = str(worst["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}" if where else message
