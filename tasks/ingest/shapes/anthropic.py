"""Rows of Anthropic message batches: `custom_id` and `params`, whose blocks become the turns that a chat template reads."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from tasks.ingest.rows import RowError
from tasks.ingest.shapes.asked import Asked, json_format
from tasks.ingest.shapes.messages import Message, TextPart, called
from tasks.ingest.shapes.protocol import Body, ChatParameters
from tasks.ingest.shapes.tools import FunctionDefinition, NotStrict, Schema, Tool, ToolName
from tasks.ingest.shapes.values import Positive, Share, Text, TopK, TopP, Word

_BLOCKS = ("text", "tool_use", "tool_result")


class _TextBlock(BaseModel):
    type: Literal["text"]
    text: Text


class _ToolUse(BaseModel):
    """A call that the assistant made."""

    id: Text
    name: Text
    input: dict[str, Any] = {}


def _only(kinds: tuple[str, ...], content: Any) -> Any:
    for block in content if isinstance(content, list) else ():
        kind = block.get("type") if isinstance(block, dict) else None
        if isinstance(kind, str) and kind not in kinds:
            raise ValueError(f"a content block of type {kind!r} is not supported: only {', '.join(kinds)} here")
    return content


def _only_text(content: Any) -> Any:
    return _only(("text",), content)


_Texts = Annotated[Text | Annotated[list[_TextBlock], Field(fail_fast=True)], BeforeValidator(_only_text)]


class _ToolResult(BaseModel):
    """What a call gave. That it failed is for its text to say: a chat template has no place for it."""

    tool_use_id: Text
    content: _Texts | None = None


def _kind(block: Any) -> str | None:
    """The tag of a block's model; such tags are no names, and so are no part of an error's place."""
    return f"<{block.get('type')}>" if isinstance(block, dict) else None


_Block = Annotated[
    Annotated[_TextBlock, Tag("<text>")]
    | Annotated[_ToolUse, Tag("<tool_use>")]
    | Annotated[_ToolResult, Tag("<tool_result>")],
    Discriminator(_kind, custom_error_type="block", custom_error_message="must be an object with a known 'type'"),
]


class _Turn(BaseModel):
    role: Literal["user", "assistant"]
    content: Text | Annotated[list[_Block], Field(fail_fast=True)]

    @field_validator("content", mode="before")
    @classmethod
    def _known_blocks(cls, value: Any) -> Any:
        return _only(_BLOCKS, value)

    @model_validator(mode="after")
    def _blocks_of_the_role(self) -> "_Turn":
        for block in self.content if isinstance(self.content, list) else ():
            if isinstance(block, _ToolUse) and self.role != "assistant":
                raise ValueError("'tool_use' belongs to the assistant")
            if isinstance(block, _ToolResult) and self.role != "user":
                raise ValueError("'tool_result' belongs to the user")
        return self

    def messages(self) -> Iterator[Message]:
        """The turn as OpenAI writes it, where each result of a call is a turn of its own."""
        if isinstance(self.content, str):
            yield Message(role=self.role, content=self.content)
            return
        texts: list[TextPart] = []
        calls = [called(block.name, block.input, block.id) for block in self.content if isinstance(block, _ToolUse)]
        for block in self.content:
            if isinstance(block, _TextBlock):
                texts.append(TextPart(type="text", text=block.text))
            elif isinstance(block, _ToolResult):
                if texts:
                    yield Message(role="user", content=texts)
                texts = []
                yield Message(role="tool", content=_content(block.content or ""), tool_call_id=block.tool_use_id)
        if texts or calls or not self.content:
            yield Message(role=self.role, content=texts or "", tool_calls=calls or None)


def _own_tool(kind: Any) -> Any:
    if isinstance(kind, str) and kind != "custom":
        raise ValueError(f"a tool of type {kind!r} is not supported: only tools of one's own are ('custom')")
    return kind


class _Tool(BaseModel):
    type: Annotated[Literal["custom"] | None, BeforeValidator(_own_tool)] = None
    name: ToolName
    description: Text | None = None
    input_schema: Schema
    strict: NotStrict = None

    @property
    def as_tool(self) -> Tool:
        definition = FunctionDefinition(name=self.name, description=self.description, parameters=self.input_schema)
        return Tool(type="function", function=definition)


class Params(Body):
    """The `params` of a row, with the names and ranges of Anthropic's API."""

    messages: Annotated[list[_Turn], Field(min_length=1, fail_fast=True)]
    system: _Texts | None = None
    max_tokens: Positive | None = None
    temperature: Share | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    stop_sequences: Annotated[list[Word], Field(fail_fast=True)] | None = None
    tools: Annotated[list[_Tool], Field(fail_fast=True)] | None = None
    tool_choice: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    output_format: dict[str, Any] | None = None

    @field_validator("messages")
    @classmethod
    def _no_prefill(cls, value: list[_Turn]) -> list[_Turn]:
        if value[-1].role == "assistant":
            raise ValueError("the last turn is the assistant's: going on from there (a prefill) is not supported")
        return value

    @field_validator("tool_choice")
    @classmethod
    def _free_choice(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value and value.get("type") not in ("auto", "none"):
            raise ValueError("a call cannot be forced: only the types 'auto' and 'none' are supported")
        return value

    @field_validator("output_config")
    @classmethod
    def _only_a_format(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if other := next((name for name, one in (value or {}).items() if name != "format" and one is not None), None):
            raise ValueError(f"{other!r} is not supported")
        return value


def params_asked(params: Mapping[str, Any]) -> Asked:
    """What the `params` of a message batch's row ask, or the body of /v1/messages."""
    given = Params.model_validate(params, strict=True)
    form, words = _form(given)
    parameters = ChatParameters(
        max_tokens=given.max_tokens,
        temperature=given.temperature,
        top_p=given.top_p,
        top_k=given.top_k,
        stop=given.stop_sequences,
        response_format=form,
    )
    turns = [message for turn in given.messages for message in turn.messages()]
    if given.system:
        turns = [Message(role="system", content=_content(given.system)), *turns]
    tools = [tool.as_tool for tool in given.tools or ()]
    return Asked(parameters, turns, model=given.model, tools=tools, words=words)


def _form(given: Params) -> tuple[dict[str, Any] | None, dict[str, str]]:
    """The form that the answer must have, under either of its two names."""
    configured = (given.output_config or {}).get("format")
    if configured is not None and given.output_format is not None:
        raise RowError("invalid_structured_output", "output_format: is one form too many beside 'output_config.format'")
    if configured is not None:
        return json_format(configured, "output_config.format")
    return json_format(given.output_format, "output_format") if given.output_format is not None else (None, {})


def _content(content: str | list[_TextBlock]) -> str | list[TextPart]:
    return content if isinstance(content, str) else [TextPart(type="text", text=block.text) for block in content]
