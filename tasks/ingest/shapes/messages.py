"""The turns of a chat as OpenAI writes them, which is the form that chat templates read and all other shapes become."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from tasks.ingest.shapes.values import Text


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


def called(name: str, arguments: dict[str, Any], call_id: str | None = None) -> ToolCall:
    """A call of an earlier turn, written as OpenAI does."""
    call = {"id": call_id} if call_id else {}
    return ToolCall.model_validate({**call, "type": "function", "function": {"name": name, "arguments": arguments}})


def led(turns: Sequence[Message], system: str | None) -> Sequence[Message]:
    """The turns with a system prompt in front, unless they bring their own or there is none."""
    if system is None or (turns and turns[0].role in ("system", "developer")):
        return turns
    return [Message(role="system", content=system), *turns]


def without_label(turns: Sequence[Message]) -> Sequence[Message]:
    """A conversation up to its last turn that is not the assistant's: what comes after is the answer to be learnt from."""
    end = len(turns)
    while end and turns[end - 1].role == "assistant":
        end -= 1
    return turns[:end]
