"""A row to a Request or to the Fault that says why not. Pure; the tokens come later.

The shape of a row is told by its fields alone: a batch line by `url` and `body`, a row of a message batch by `params`, and
anything with a prompt or messages of its own is plain, whatever its other columns are called.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import msgspec
import orjson
from pydantic import ValidationError

from tasks.core.config import RowConfig, SamplingDefaults
from tasks.core.request import Request
from tasks.ingest.fields.order import Cell, FieldOrder
from tasks.ingest.finding.sources import SourceFile
from tasks.ingest.reading.records import field_at
from tasks.ingest.rows import Fault, Row, RowError
from tasks.ingest.shapes.anthropic import params_asked
from tasks.ingest.shapes.asked import Asked
from tasks.ingest.shapes.fields import Fields, named_cells, other_cells
from tasks.ingest.shapes.identity import identity, is_blank, shown
from tasks.ingest.shapes.messages import Message, led, without_label
from tasks.ingest.shapes.openai_lines import (
    BatchLine,
    chat_asked,
    completion_asked,
    endpoint_of,
    is_endpoint,
    unsupported_endpoint,
)
from tasks.ingest.shapes.protocol import JSON_CELLS, PlainRow, first_error
from tasks.ingest.shapes.responses import response_asked
from tasks.ingest.shapes.sampling import sampling_of
from tasks.ingest.shapes.sharegpt import is_sharegpt, sharegpt_turns, unseen
from tasks.ingest.shapes.template import FIELDS, compiled, prompted
from tasks.ingest.shapes.tools import tools_json
from tasks.ingest.shapes.unheard import REFUSED

ID_COLUMNS = ("custom_id", "id", "request_id")
_CONVERSATIONS = "conversations"
NOT_PLAIN = (*REFUSED, "url", "body", "method", "params", _CONVERSATIONS)
"""Fields that a plain row may have, but not without a closer look."""

_OF_ENDPOINT: Mapping[str, Callable[[Mapping[str, Any]], Asked]] = {
    "chat/completions": chat_asked,
    "completions": completion_asked,
    "responses": response_asked,
    "messages": params_asked,
}

Shape = Literal["line", "params", "plain"]


@dataclass(frozen=True, slots=True)
class Validator:
    """The rules of one source. `served` are the lower-cased names that `body.model` may have; None allows any. `order` is
    that of the fields that a template puts at its place for them; None leaves them as they are given."""

    config: RowConfig
    defaults: SamplingDefaults
    served: frozenset[str] | None
    model: str
    priority: int = 0
    deadline: datetime | None = None
    order: FieldOrder | None = None

    @property
    def identity(self) -> str:
        """All that shapes what becomes of a row, as text that is the same in every process."""
        served = None if self.served is None else sorted(self.served)
        order = self.order and self.order.digest
        return repr((self.config, self.defaults, served, self.model, self.priority, self.deadline, order))

    def cells(self, row: Row) -> list[Cell]:
        """The fields of a row that are to be at the template's place for them, as they are given. Raises RowError."""
        return [] if isinstance(row.content, Fault) else self._cells(_opened(row, row.content), row.up)

    def _cells(self, content: Mapping[str, Any], up: Mapping[str, Any] | None) -> list[Cell]:
        if self.config.fields:
            return named_cells(self.config.fields, content, up)
        return other_cells((self.config.id_column,) if self.config.id_column else ID_COLUMNS, content)

    def _fields(self, template: str, content: Mapping[str, Any], up: Mapping[str, Any] | None) -> Fields | None:
        """What the template is to have as `fields`; None where that is a field of the row's own, or nothing."""
        if not compiled(template).has_place or (FIELDS in content and not self.config.places_fields):
            return None
        cells = self._cells(content, up)
        return Fields(cells if self.order is None else self.order.arrange(cells))

    def request(self, file: SourceFile, row: Row) -> Request | Fault:
        """The row as a request without token ids, or what is wrong with it."""
        if isinstance(row.content, Fault):
            return row.content
        content = _opened(row, row.content)
        shape = self._shape(content)
        try:
            if shape == "plain":
                return self._request(file, row, self._plain_id(row, is_strict=True), self._plain(row, content))
            if shape == "params":
                return self._request(file, row, content.get("custom_id"), params_asked(content["params"]))
            line = BatchLine.model_validate(content, strict=True)
            if (endpoint := endpoint_of(line.url)) is None:
                raise unsupported_endpoint(line.url)
            return self._request(file, row, line.custom_id, _OF_ENDPOINT[endpoint](line.body))
        except ValidationError as error:
            return Fault("invalid_request", first_error(error, self._columns(content) if shape == "plain" else {}))
        except RowError as refused:
            return Fault(refused.reason, str(refused))
        except RecursionError:
            return Fault("malformed_json", "nested too deeply")

    def shown_id(self, row: Row) -> str | None:
        """The id that the row brings, as far as it can be made out."""
        if isinstance(row.content, Fault):
            return None
        is_plain = self._shape(_opened(row, row.content)) == "plain"
        return shown(self._plain_id(row) if is_plain else row.content.get("custom_id"))

    def _shape(self, content: Mapping[str, Any]) -> Shape:
        """What a row is by its fields; a table may well have columns that are named `url`, `body` or `params`, and one that
        holds rows of several shapes has null in the columns of the others. Where a template makes prompts, all are plain.
        """
        if self.config.prompt_template is not None:
            return "plain"
        named = (self.config.prompt_column, self.config.messages_column)
        is_plain = any(content.get(column) is not None for column in named)
        is_bare = not any(column in content for column in named)
        has_body = isinstance(content.get("body"), dict)
        if (is_endpoint(content.get("url")) and (has_body or not is_plain)) or (has_body and is_bare):
            return "line"
        params = content.get("params")
        if not isinstance(params, dict) or is_plain:
            return "plain"
        return "params" if "messages" in params or (is_bare and _CONVERSATIONS not in content) else "plain"

    def _columns(self, content: Mapping[str, Any]) -> dict[str, str]:
        """The names that a plain row's own fields have for ours."""
        return {"messages": self._messages_column(content), "prompt": self.config.prompt_column}

    def _plain(self, row: Row, content: Mapping[str, Any]) -> Asked:
        if (template := self.config.prompt_template) is not None:
            fields = self._fields(template, content, row.up)
            content = prompted(template, content, row.up, self.config.prompt_column, fields)
        if parsed := _parsed_cells(content, is_table=row.has_text_cells):
            content = {**content, **parsed}
        messages, prompt = self._conversation(content, is_table=row.has_text_cells)
        given = {**content, "messages": messages, "prompt": prompt}
        plain = PlainRow.model_validate(given, strict=not row.has_text_cells)
        place = self._messages_column(content)
        if plain.messages is not None:
            turns = without_label(plain.messages)
        elif plain.prompt is not None:
            _check_text(plain.prompt, self.config.prompt_column)
            turns = [Message(role="user", content=plain.prompt)]
        else:
            raise RowError("no_prompt", self._no_prompt(content))
        own_system = plain.system if plain.system is not None and plain.system.strip() else None
        return Asked(plain, led(turns, own_system), tools=plain.tools, place=place)

    def _conversation(self, content: Mapping[str, Any], *, is_table: bool) -> tuple[Any, Any]:
        """A plain row's messages, or with None its prompt."""
        messages = None if self.config.prompt_template is not None else self._messages(content, strict=not is_table)
        return messages, content.get(self.config.prompt_column) if messages is None else None

    def _messages(self, content: Mapping[str, Any], *, strict: bool) -> Any:
        """The messages as they are, parsed where they stand as JSON text in one cell, ShareGPT's as OpenAI writes them."""
        column = self._messages_column(content)
        value = content.get(column)
        if isinstance(value, str) and value.lstrip().startswith("["):
            try:
                value = orjson.loads(value)
            except orjson.JSONDecodeError as error:
                raise RowError("malformed_json", f"{column}: not valid JSON: {error}") from error
        if not is_sharegpt(value):
            return value
        turns = sharegpt_turns(value, strict=strict)
        if picture := unseen(turns, dict(content)):
            raise RowError("invalid_request", f"{column}: it is about {picture!r}, which a text model does not see")
        return turns

    def _messages_column(self, content: Mapping[str, Any]) -> str:
        """Where a plain row has its messages: in the column named, or else in `conversations`, as ShareGPT calls it."""
        named = (self.config.messages_column, self.config.prompt_column)
        is_there = content.get(_CONVERSATIONS) is not None and all(content.get(column) is None for column in named)
        return _CONVERSATIONS if is_there else self.config.messages_column

    def _no_prompt(self, content: Mapping[str, Any]) -> str:
        columns = (self.config.prompt_column, self.config.messages_column)
        if there := [column for column in columns if column in content]:
            return f"{there[0]}: is empty"
        wanted = " or ".join(map(repr, columns))
        fields = ", ".join(map(repr, content))
        return f"no text in {wanted}; the row has {fields}: name one with --prompt-column, or several in --prompt-template"

    def _plain_id(self, row: Row, *, is_strict: bool = False) -> Any:
        """The id that a plain row brings, or None. Raises RowError when the column that must have it is not there."""
        content = {} if isinstance(row.content, Fault) else row.content
        if self.config.id_column is None:
            return next((content[column] for column in ID_COLUMNS if not is_blank(content.get(column))), None)
        try:
            return field_at(content if row.up is None else {**content, "up": row.up}, self.config.id_column)
        except LookupError:
            if not is_strict:
                return None
            columns = ", ".join(map(repr, content))
            raise RowError("no_id", f"no field {self.config.id_column!r} (--id-column); the row has {columns}") from None

    def _request(self, file: SourceFile, row: Row, custom_id: Any, asked: Asked) -> Request:
        self._check_model(asked.model)
        turns = None if asked.turns is None else led(asked.turns, self.config.system)
        text = asked.prompt if turns is None else _last_question(turns)
        _check_text(text, asked.place)
        name = identity(custom_id) or f"{file.name}:{row.line}"
        try:
            sampling = sampling_of(asked.parameters, self.defaults)
        except RowError as refused:
            raise asked.reworded(refused) from refused
        return Request(
            request_id=f"{file.source}/{name}",
            custom_id=name,
            source=file.source,
            file=file.name,
            line=row.line,
            messages=None if turns is None else msgspec.json.encode([turn.as_given() for turn in turns]).decode(),
            text=text,
            sampling=sampling,
            n=asked.parameters.n or 1,
            requested_model=asked.model,
            tools=tools_json(asked.tools),
            priority=self.priority,
            deadline=self.deadline,
        )

    def _check_model(self, model: str | None) -> None:
        if model is not None and self.served is not None and model.lower() not in self.served:
            raise RowError(
                "unknown_model",
                f"the row asks for model {model!r} and this run serves {self.model!r}; "
                f"to answer it all the same: --served-model-name {model}",
            )


def _opened(row: Row, content: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row whose `body` or `params` stands as JSON text in a table's cell, with the object itself there."""
    if not row.has_text_cells:
        return content
    opened: dict[str, Any] = {}
    for name in ("body", "params"):
        cell = content.get(name)
        if isinstance(cell, str) and cell.lstrip().startswith("{"):
            try:
                opened[name] = orjson.loads(cell)
            except orjson.JSONDecodeError:
                continue
    return {**content, **opened} if opened else content


def _parsed_cells(content: Mapping[str, Any], *, is_table: bool) -> dict[str, Any]:
    """Of a table's row the parameters that stand as JSON in their cells, of any row the tools: data sets of tool calls have
    them as text. A stop string may begin with a bracket itself, and `tools` may be a column of the user's own."""
    parsed: dict[str, Any] = {}
    for name in JSON_CELLS if is_table else ("tools",):
        cell = content.get(name)
        if isinstance(cell, str) and cell.lstrip().startswith(("[", "{")):
            try:
                parsed[name] = orjson.loads(cell)
            except orjson.JSONDecodeError as error:
                if name not in ("stop", "tools"):
                    raise RowError("malformed_json", f"{name}: not valid JSON: {error}") from error
    return parsed


def _last_question(turns: Sequence[Message]) -> str:
    asked = [turn.flat_text for turn in turns if turn.role == "user"]
    return asked[-1] if asked else ""


def _check_text(text: str, column: str) -> None:
    if not text.strip():
        raise RowError("empty_prompt", f"{column}: nothing is asked, the user's text is empty")
