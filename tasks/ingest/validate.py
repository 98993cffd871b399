"""A row to a Request or to the Fault that says why not. Pure; the tokens come later."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import orjson
from pydantic import ValidationError

from tasks.core.config import RowConfig, SamplingDefaults
from tasks.core.request import Request
from tasks.ingest.protocol import (
    JSON_CELLS,
    NOT_HONOURED,
    BatchLine,
    ChatBody,
    CompletionBody,
    Message,
    Parameters,
    PlainRow,
    first_error,
)
from tasks.ingest.records import field_at
from tasks.ingest.rows import Fault, Row, RowError
from tasks.ingest.sampling import sampling_of
from tasks.ingest.sources import SourceFile
from tasks.ingest.template import prompted

ID_COLUMNS = ("custom_id", "id", "request_id")
MAX_ID_CHARS = 512
NOT_PLAIN = (*NOT_HONOURED, "url", "body", "method")
"""Fields that a plain row may have, but not without a closer look."""

_ENDPOINTS = "/v1/chat/completions and /v1/completions"


@dataclass(frozen=True, slots=True)
class Validator:
    """The rules of one source. `served` are the lower-cased names that `body.model` may have; None allows any."""

    config: RowConfig
    defaults: SamplingDefaults
    served: frozenset[str] | None
    model: str
    priority: int = 0
    deadline: datetime | None = None

    @property
    def identity(self) -> str:
        """All that shapes what becomes of a row, as text that is the same in every process."""
        served = None if self.served is None else sorted(self.served)
        return repr((self.config, self.defaults, served, self.model, self.priority, self.deadline))

    def request(self, file: SourceFile, row: Row) -> Request | Fault:
        """The row as a request without token ids, or what is wrong with it."""
        if isinstance(row.content, Fault):
            return row.content
        try:
            if self._is_batch_line(row.content):
                return self._batch_line(file, row, row.content)
            return self._plain(file, row, row.content)
        except ValidationError as error:
            columns = {"messages": self.config.messages_column, "prompt": self.config.prompt_column}
            return Fault("invalid_request", first_error(error, {} if self._is_batch_line(row.content) else columns))
        except RowError as refused:
            return Fault(refused.reason, str(refused))
        except RecursionError:
            return Fault("malformed_json", "nested too deeply")

    def shown_id(self, row: Row) -> str | None:
        """The id that the row brings, as far as it can be made out."""
        if isinstance(row.content, Fault):
            return None
        given = row.content.get("custom_id") if self._is_batch_line(row.content) else self._plain_id(row)
        is_shown = isinstance(given, str | int) and not isinstance(given, bool)
        return str(given)[:MAX_ID_CHARS] if is_shown else None

    def _is_batch_line(self, content: Mapping[str, Any]) -> bool:
        """Whether it is a line of an OpenAI batch file; a table may well have columns that are named `url` or `body`.

        Where a template makes the prompts, no row is.
        """
        if self.config.prompt_template is not None:
            return False
        url = content.get("url")
        if isinstance(url, str) and url.startswith("/v1/"):
            return True
        is_plain = self.config.prompt_column in content or self.config.messages_column in content
        return isinstance(content.get("body"), dict) and not is_plain

    def _batch_line(self, file: SourceFile, row: Row, content: Mapping[str, Any]) -> Request:
        line = BatchLine.model_validate(content, strict=True)
        if line.url == "/v1/chat/completions":
            chat = ChatBody.model_validate(line.body, strict=True)
            self._check_model(chat.model)
            turns = _led(chat.messages, self.config.system)
            return self._chat(file, row, line.custom_id, turns, chat, chat.model)
        if line.url == "/v1/completions":
            body = CompletionBody.model_validate(line.body, strict=True)
            self._check_model(body.model)
            _check_text(body.prompt, "prompt")
            return self._build(file, row, line.custom_id, None, body.prompt, body, body.model)
        raise RowError("unsupported_endpoint", f"the endpoint {line.url!r} is not supported: {_ENDPOINTS} are")

    def _plain(self, file: SourceFile, row: Row, content: Mapping[str, Any]) -> Request:
        custom_id = self._plain_id(row, is_strict=True)
        if self.config.prompt_template is not None:
            content = prompted(self.config.prompt_template, content, row.up, self.config.prompt_column)
        if row.has_text_cells:
            content = {**content, **_parsed_cells(content)}
        messages = self._messages(content) if self.config.prompt_template is None else None
        prompt = content.get(self.config.prompt_column) if messages is None else None
        given = {**content, "messages": messages, "prompt": prompt}
        plain = PlainRow.model_validate(given, strict=not row.has_text_cells)
        if plain.messages is not None:
            turns = plain.messages
        elif plain.prompt is not None:
            _check_text(plain.prompt, self.config.prompt_column)
            turns = [Message(role="user", content=plain.prompt)]
        else:
            raise RowError("no_prompt", self._no_prompt(content))
        has_system = plain.system is not None and plain.system.strip()
        turns = _led(turns, plain.system if has_system else self.config.system)
        return self._chat(file, row, custom_id, turns, plain, None)

    def _messages(self, content: Mapping[str, Any]) -> Any:
        """The messages as they are, or parsed where they stand as JSON text in one cell."""
        value = content.get(self.config.messages_column)
        if not isinstance(value, str) or not value.lstrip().startswith("["):
            return value
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise RowError("malformed_json", f"{self.config.messages_column}: not valid JSON: {error}") from error

    def _no_prompt(self, content: Mapping[str, Any]) -> str:
        columns = (self.config.prompt_column, self.config.messages_column)
        if there := [column for column in columns if column in content]:
            return f"{there[0]}: is empty"
        wanted = " or ".join(map(repr, columns))
        return f"no text in {wanted}; the row has {', '.join(map(repr, content))}: name one with --prompt-column"

    def _plain_id(self, row: Row, *, is_strict: bool = False) -> Any:
        """The id that a plain row brings, or None. Raises RowError when the column that must have it is not there."""
        content = {} if isinstance(row.content, Fault) else row.content
        if self.config.id_column is None:
            return next((content[column] for column in ID_COLUMNS if not _is_blank(content.get(column))), None)
        try:
            return field_at(content if row.up is None else {**content, "up": row.up}, self.config.id_column)
        except LookupError:
            if not is_strict:
                return None
            columns = ", ".join(map(repr, content))
            raise RowError("no_id", f"no field {self.config.id_column!r} (--id-column); the row has {columns}") from None

    def _chat(
        self, file: SourceFile, row: Row, custom_id: Any, turns: list[Message], body: Parameters, model: str | None
    ) -> Request:
        asked = [turn.flat_text for turn in turns if turn.role == "user"]
        text = asked[-1] if asked else ""
        _check_text(text, self.config.messages_column)
        messages = msgspec.json.encode([turn.as_given() for turn in turns]).decode()
        return self._build(file, row, custom_id, messages, text, body, model)

    def _build(
        self,
        file: SourceFile,
        row: Row,
        custom_id: Any,
        messages: str | None,
        text: str,
        body: Parameters,
        model: str | None,
    ) -> Request:
        name = _identity(custom_id) or f"{file.name}:{row.line}"
        return Request(
            request_id=f"{file.source}/{name}",
            custom_id=name,
            source=file.source,
            file=file.name,
            line=row.line,
            messages=messages,
            text=text,
            sampling=sampling_of(body, self.defaults),
            n=body.n or 1,
            requested_model=model,
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


def _parsed_cells(content: Mapping[str, Any]) -> dict[str, Any]:
    """Of a table's row the parameters that stand as JSON in their cells. A stop string may begin with a bracket itself."""
    parsed: dict[str, Any] = {}
    for name in JSON_CELLS:
        cell = content.get(name)
        if isinstance(cell, str) and cell.lstrip().startswith(("[", "{")):
            try:
                parsed[name] = orjson.loads(cell)
            except orjson.JSONDecodeError as error:
                if name != "stop":
                    raise RowError("malformed_json", f"{name}: not valid JSON: {error}") from error
    return parsed


def _led(turns: list[Message], system: str | None) -> list[Message]:
    """The turns with a system prompt in front, unless they bring their own or there is none."""
    if system is None or turns[0].role in ("system", "developer"):
        return turns
    return [Message(role="system", content=system), *turns]


def _check_text(text: str, column: str) -> None:
    if not text.strip():
        raise RowError("empty_prompt", f"{column}: nothing is asked, the user's text is empty")


def _is_blank(custom_id: Any) -> bool:
    return custom_id is None or (isinstance(custom_id, str) and not custom_id.strip())


def _identity(custom_id: Any) -> str | None:
    """The id as text, or None where the row has none."""
    if _is_blank(custom_id):
        return None
    if isinstance(custom_id, bool) or not isinstance(custom_id, str | int):
        raise RowError("invalid_id", f"the id must be text or a whole number, not {type(custom_id).__name__}")
    name = str(custom_id)
    if "\0" in name or len(name) > MAX_ID_CHARS:
        raise RowError("invalid_id", f"the id must be at most {MAX_ID_CHARS} characters, without a NUL among them")
    return name
