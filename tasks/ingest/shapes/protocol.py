"""What may be asked, as pydantic models: the parameters, which all shapes share, OpenAI's two older bodies, and plain rows.

Names and ranges are those of the OpenAI API and of vLLM's extensions to it. Validation is strict for JSON (the text "64"
is no number) and lax for CSV, where everything is text. A parameter that is not honoured is an error, never ignored.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from tasks.ingest.shapes.messages import Messages
from tasks.ingest.shapes.tools import ToolChoice, Tools
from tasks.ingest.shapes.unheard import AT_REST, unheard
from tasks.ingest.shapes.values import (
    Alternatives,
    Bias,
    Choices,
    NotNegative,
    Penalty,
    Positive,
    Seed,
    Share,
    Temperature,
    Text,
    TokenId,
    TokenIdKey,
    TopK,
    TopP,
    Word,
)

NOT_HONOURED = frozenset(
    (
        *("add_generation_prompt", "allowed_token_ids", "best_of", "chat_template_kwargs", "continue_final_message"),
        *("function_call", "functions", "include_stop_str_in_output", "length_penalty", "logprob_token_ids"),
        *("prompt_logprobs", "reasoning_effort", "skip_special_tokens", "thinking_token_budget", "truncate_prompt_tokens"),
        "use_beam_search",
    )
)
"""Parameters that a plain row may bring in vain. Its other unknown fields are the user's own and not looked at."""

JSON_CELLS = (
    *("bad_words", "guided_choice", "guided_json", "logit_bias", "response_format", "stop", "stop_token_ids"),
    *("structured_outputs", "tools"),
)
"""Parameters that may be more than one value: a table's cell that begins with a bracket holds them as JSON."""


class Parameters(BaseModel):
    """Sampling parameters of one request; None means not given."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    min_tokens: NotNegative | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: Share | None = None
    seed: Seed | None = None
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
    n: Choices | None = None

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


class Body(BaseModel):
    """What the bodies of all endpoints share; any field that is neither known nor ignorable is named in the error."""

    model_config = ConfigDict(extra="allow", frozen=True)
    at_rest: ClassVar[Mapping[str, Any]] = AT_REST

    model: str | None = None

    @model_validator(mode="after")
    def _nothing_unheard(self) -> "Body":
        for name, value in (self.model_extra or {}).items():
            if wrong := unheard(name, value, self.at_rest):
                raise ValueError(wrong)
        return self


class ChatBody(ChatParameters, Body):
    """The body of /v1/chat/completions."""

    messages: Messages
    tools: Tools | None = None
    tool_choice: ToolChoice = None


class CompletionBody(Parameters, Body):
    """The body of /v1/completions, one prompt a line."""

    at_rest = {**AT_REST, "add_special_tokens": True}

    prompt: Text
    logprobs: Alternatives | None = None

    @field_validator("prompt", mode="before")
    @classmethod
    def _one_text(cls, value: Any) -> Any:
        """A list of one text is that text; each other kind of list says what it would take."""
        if not isinstance(value, list):
            return value
        if len(value) == 1 and isinstance(value[0], str):
            return value[0]
        if value and all(isinstance(one, str) for one in value):
            raise ValueError(f"a list of {len(value)} prompts is not supported: give each its own line, and so its own id")
        if value and all(isinstance(one, int | list) for one in value):
            raise ValueError("a prompt of token ids is not supported: send its text")
        raise ValueError("must be text, or a list of one text")

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
    tools: Tools | None = None
    tool_choice: Any = None

    @field_validator("tools", mode="before")
    @classmethod
    def _own_text(cls, value: Any) -> Any:
        """Text in a column of that name is the user's own."""
        return None if isinstance(value, str) else value

    @model_validator(mode="after")
    def _nothing_unheard(self) -> "PlainRow":
        for name, value in (self.model_extra or {}).items():
            if name in NOT_HONOURED and not isinstance(value, str) and (wrong := unheard(name, value)):
                raise ValueError(wrong)
        return self

    @field_validator("tool_choice")
    @classmethod
    def _with_tools(cls, value: Any, given: ValidationInfo) -> Any:
        """It is the user's own column unless there are tools to choose from."""
        if value in (None, "none", "auto") or (isinstance(value, str) and not given.data.get("tools")):
            return value
        raise ValueError("a call cannot be forced: only 'auto' and 'none' are supported")


def first_error(error: ValidationError, columns: Mapping[str, str]) -> str:
    """The field, and what is wrong with it; `columns` gives the names that the user has for fields of ours."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    worst = max(errors, key=lambda one: len(one["loc"]))  # of a union's branches the one that came furthest was meant
    path = [str(part) for part in worst["loc"] if isinstance(part, int) or part.isidentifier()]  # not the branches' names
    where = ".".join([columns.get(path[0], path[0]), *path[1:]]) if path else ""
    message = str(worst["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}" if where else message
