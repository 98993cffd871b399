"""Bodies of /v1/responses, run as chats: instructions, messages, and calls of functions with what they gave."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Discriminator, Field, Tag, field_validator, model_validator

from tasks.ingest.shapes.asked import Asked, json_format
from tasks.ingest.shapes.messages import Function, Message, TextPart, called
from tasks.ingest.shapes.protocol import Body, Parameters
from tasks.ingest.shapes.tools import FunctionDefinition, FunctionKind, NotStrict, Schema, Tool, ToolChoice, ToolName
from tasks.ingest.shapes.values import Alternatives, Positive, Text

_LOGPROBS = "message.output_text.logprobs"
_ITEMS = ("message", "function_call", "function_call_output")
_TEXTS = ("input_text", "output_text", "text")


class _Part(BaseModel):
    type: Literal["input_text", "output_text", "text"]
    text: Text


def _only_text(content: Any) -> Any:
    for part in content if isinstance(content, list) else ():
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind not in _TEXTS:
            raise ValueError(f"a content part of type {kind!r} is not supported by a text model")
    return content


_Content = Text | Annotated[list[_Part], Field(fail_fast=True)]


class _Said(BaseModel):
    """A turn."""

    role: Literal["user", "assistant", "system", "developer"]
    content: _Content

    _only_text = field_validator("content", mode="before")(_only_text)


class _Called(Function):
    """A call that the model made."""

    call_id: Text


class _Given(BaseModel):
    """What a call gave."""

    call_id: Text
    output: _Content

    _only_text = field_validator("output", mode="before")(_only_text)


def _kind(item: Any) -> str | None:
    """The tag of an item's model; such tags are no names, and so are no part of an error's place."""
    kind = item.get("type") if isinstance(item, dict) else None
    return f"<{kind or 'message'}>" if isinstance(item, dict) else None


_Item = Annotated[
    Annotated[_Said, Tag("<message>")]
    | Annotated[_Called, Tag("<function_call>")]
    | Annotated[_Given, Tag("<function_call_output>")],
    Discriminator(_kind, custom_error_type="item", custom_error_message="must be an object, with a type of its own"),
]


class _FlatTool(BaseModel):
    """A function as this endpoint writes it, without an object around it."""

    type: FunctionKind
    name: ToolName
    description: Text | None = None
    parameters: Schema | None = None
    strict: NotStrict = None

    @property
    def as_tool(self) -> Tool:
        definition = FunctionDefinition(name=self.name, description=self.description, parameters=self.parameters)
        return Tool(type="function", function=definition)


class ResponseBody(Parameters, Body):
    """The body of /v1/responses. vLLM's parameters beside OpenAI's have the names that they have in chats."""

    input: Text | Annotated[list[_Item], Field(min_length=1, fail_fast=True)]
    instructions: Text | None = None
    max_output_tokens: Positive | None = None
    text: dict[str, Any] | None = None
    include: list[str] | None = None
    top_logprobs: Alternatives | None = None
    tools: Annotated[list[_FlatTool], Field(fail_fast=True)] | None = None
    tool_choice: ToolChoice = None

    @field_validator("input", mode="before")
    @classmethod
    def _known_items(cls, value: Any) -> Any:
        for item in value if isinstance(value, list) else ():
            kind = item.get("type") if isinstance(item, dict) else None
            if isinstance(kind, str) and kind not in _ITEMS:
                raise ValueError(f"an item of type {kind!r} is not supported: {', '.join(_ITEMS)} are")
        return value

    @field_validator("text")
    @classmethod
    def _only_a_format(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        for name, given in (value or {}).items():
            if name != "format" and given is not None and (name, given) != ("verbosity", "medium"):
                raise ValueError(f"{name!r} is not supported")
        return value

    @field_validator("include")
    @classmethod
    def _only_logprobs(cls, value: list[str] | None) -> list[str] | None:
        if other := next((one for one in value or () if one != _LOGPROBS), None):
            raise ValueError(f"{other!r} is not supported")
        return value

    @model_validator(mode="after")
    def _logprobs_are_included(self) -> "ResponseBody":
        if self.top_logprobs and not self.include:
            raise ValueError(f"'top_logprobs' needs {_LOGPROBS!r} in 'include'")
        return self

    @property
    def num_logprobs(self) -> int | None:
        return self.top_logprobs or 0 if self.include else None


def response_asked(body: Mapping[str, Any]) -> Asked:
    """What a body of /v1/responses asks."""
    response = ResponseBody.model_validate(body, strict=True)
    ours: dict[str, Any] = {}
    words: dict[str, str] = {}
    if response.max_output_tokens:
        ours["max_completion_tokens"] = response.max_output_tokens
    if response.text and (form := response.text.get("format")) is not None:
        ours["response_format"], words = json_format(form, "text.format")
    turns = _turns(response.input) if isinstance(response.input, list) else [Message(role="user", content=response.input)]
    if response.instructions:
        turns = [Message(role="system", content=response.instructions), *turns]
    tools = [tool.as_tool for tool in response.tools or ()]
    return Asked(response.model_copy(update=ours), turns, model=response.model, tools=tools, place="input", words=words)


def _turns(items: Sequence[_Said | _Called | _Given]) -> list[Message]:
    """The items as turns; calls that follow one another, or a turn of the assistant, belong to one turn."""
    turns: list[Message] = []
    for item in items:
        if isinstance(item, _Called):
            call = called(item.name, item.arguments, item.call_id)
            if turns and turns[-1].role == "assistant":
                last = turns[-1]
                turns[-1] = last.model_copy(update={"tool_calls": [*(last.tool_calls or ()), call]})
            else:
                turns.append(Message(role="assistant", content="", tool_calls=[call]))
        elif isinstance(item, _Given):
            turns.append(Message(role="tool", content=_content(item.output), tool_call_id=item.call_id))
        else:
            turns.append(Message(role=item.role, content=_content(item.content)))
    return turns


def _content(content: str | list[_Part]) -> str | list[TextPart]:
    return content if isinstance(content, str) else [TextPart(type="text", text=part.text) for part in content]
