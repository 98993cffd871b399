"""What a row asks, in one form for all the shapes that a row may have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tasks.ingest.rows import RowError
from tasks.ingest.shapes.messages import Message
from tasks.ingest.shapes.protocol import Parameters
from tasks.ingest.shapes.tools import Tool


@dataclass(frozen=True, slots=True)
class Asked:
    """The turns of a chat, or with None the raw prompt; the parameters; and where in the row they stood.

    `place` is the row's field with the turns. `words` are beginnings of the names that we have for parameters of the row,
    each with the row's own.
    """

    parameters: Parameters
    turns: Sequence[Message] | None
    prompt: str = ""
    model: str | None = None
    tools: Sequence[Tool] | None = None
    place: str = "messages"
    words: Mapping[str, str] = field(default_factory=dict)

    def reworded(self, refused: RowError) -> RowError:
        """An error about a parameter, in the row's own words."""
        message = str(refused)
        for ours, theirs in self.words.items():
            if message.startswith(ours):
                return RowError(refused.reason, theirs + message.removeprefix(ours))
        return refused


def json_format(form: Any, words: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The form of an answer from an object with `type` and what belongs to it side by side, as OpenAI's `response_format`;
    and how errors about that are put into the row's words."""
    if not isinstance(form, dict):
        raise RowError("invalid_structured_output", f"{words}: must be an object")
    if form.get("type") != "json_schema":
        return form, {"response_format": words}
    named = {name: value for name, value in form.items() if name != "type"}
    return {"type": "json_schema", "json_schema": named}, {
        "response_format.json_schema": words,
        "response_format": words,
    }
