"""Conversations as ShareGPT writes them, `from` and `value`, to the turns that a chat template reads."""

from typing import Annotated, Any

import orjson
from pydantic import BaseModel, Field, field_validator, model_validator

from tasks.ingest.shapes.messages import Message, called
from tasks.ingest.shapes.values import Text

_ROLES = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "assistant", "chatgpt", "model", "bot", "bing", "bard", "function_call"), "assistant"),
    "system": "system",
    **dict.fromkeys(("observation", "tool", "function_response"), "tool"),
}
_IMAGES = ("image", "images", "video", "videos", "audio", "audios")


class _Turn(BaseModel):
    """One turn; what else stands beside it, such as a weight for training, is not about the answer."""

    speaker: Text = Field(alias="from")
    value: Text

    @field_validator("speaker")
    @classmethod
    def _known(cls, value: str) -> str:
        if value.lower() not in _ROLES:
            raise ValueError(f"the speaker {value!r} is not known: {', '.join(_ROLES)} are")
        return value.lower()

    @model_validator(mode="after")
    def _a_call_is_json(self) -> "_Turn":
        if self.speaker == "function_call":
            self.message  # noqa: B018  # raises what is wrong with it
        return self

    @property
    def message(self) -> Message:
        if self.speaker != "function_call":
            return Message.model_validate({"role": _ROLES[self.speaker], "content": self.value})
        try:
            call = orjson.loads(self.value)
            return Message(role="assistant", content="", tool_calls=[called(call["name"], call["arguments"])])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError("a 'function_call' must be a JSON object with 'name' and 'arguments'") from error


class _Conversation(BaseModel):
    messages: Annotated[list[_Turn], Field(min_length=1, fail_fast=True)]


def is_sharegpt(value: Any) -> bool:
    """Whether a list of turns names its speakers as ShareGPT does."""
    turns = [turn for turn in value if isinstance(turn, dict)] if isinstance(value, list) else []
    return any("from" in turn and "role" not in turn for turn in turns)


def sharegpt_turns(value: Any, *, strict: bool) -> list[Message]:
    """The turns. Raises pydantic's error, with `messages` as the name of the whole."""
    return [turn.message for turn in _Conversation.model_validate({"messages": value}, strict=strict).messages]


def unseen(turns: list[Message], fields: dict[str, Any]) -> str | None:
    """The row's field with a picture that its conversation has a mark for; None where there is none."""
    is_marked = any(mark in turn.flat_text for turn in turns for mark in ("<image>", "<video>", "<audio>"))
    return next((name for name in _IMAGES if fields.get(name)), None) if is_marked else None
