"""The shapes a row may have, as pydantic models: OpenAI Batch lines, their bodies, and plain rows.

Names and ranges are those of the OpenAI API and of vLLM's extensions to it. Validation is strict for JSON (the text "64"
is no number) and lax for CSV, where everything is text. A parameter that is not honoured is an error, never ignored.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Positive = Annotated[int, Field(ge=1)]
Penalty = Annotated[float, Field(ge=-2, le=2, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]

IGNORED = frozenset(
    ("user", "metadata", "store", "service_tier", "stream", "stream_options", "safety_identifier", "prompt_cache_key")
)
"""Body fields that do not change the answer of a batch job."""

_NEUTRAL: tuple[Any, ...] = (None, False, [], {}, "none", {"type": "text"})


class Parameters(BaseModel):
    """Sampling parameters of one request; None means not given."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    min_p: Share | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=2, allow_inf_nan=False)] | None = None
    stop: str | list[str] | None = None
    ignore_eos: bool | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None

    @field_validator("stop")
    @classmethod
    def _no_empty_stop(cls, value: str | list[str] | None) -> str | list[str] | None:
        if value == "" or (isinstance(value, list) and "" in value):
            raise ValueError("a stop string must not be empty")
        return value


class TextPart(BaseModel):
    """The one kind of content part that a text model reads."""

    type: Literal["text", "input_text"]
    text: str


class Message(BaseModel):
    """One turn of a chat."""

    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: str | None = None

    @field_validator("content", mode="before")
    @classmethod
    def _only_text(cls, value: Any) -> Any:
        if value is None:
            raise ValueError("must not be null")
        kinds = [part.get("type") for part in value if isinstance(part, dict)] if isinstance(value, list) else []
        for kind in kinds:
            if kind not in ("text", "input_text"):
                raise ValueError(f"a content part of type {kind!r} is not supported by a text model")
        return value

    @model_validator(mode="after")
    def _no_tools(self) -> "Message":
        for name in ("tool_calls", "function_call", "audio"):
            if (self.model_extra or {}).get(name):
                raise ValueError(f"{name!r} is not supported")
        return self

    @property
    def flat_text(self) -> str:
        """The content as one string, parts joined by line breaks as vLLM joins them."""
        return self.content if isinstance(self.content, str) else "\n".join(part.text for part in self.content)


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


class ChatBody(Body):
    """The body of /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1)]


class CompletionBody(Body):
    """The body of /v1/completions, one prompt a line."""

    prompt: str


class BatchLine(BaseModel):
    """One line of an OpenAI batch file; the body is checked by its endpoint's own model."""

    custom_id: str | int | None = None
    method: Literal["POST"] = "POST"
    url: str
    body: dict[str, Any]
