"""A row to a Request or to the Fault that says why not. Pure; the tokens come later."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import ValidationError

from tasks.core.config import InputConfig, SamplingDefaults
from tasks.core.request import Request, SamplingParams
from tasks.ingest.protocol import BatchLine, ChatBody, CompletionBody, Message, Parameters
from tasks.ingest.rows import Fault, Row
from tasks.ingest.sources import SourceFile

_ID_COLUMNS = ("custom_id", "id", "request_id")
_ENDPOINTS = "/v1/chat/completions and /v1/completions"


@dataclass(frozen=True, slots=True)
class Validator:
    """The rules of one run. `served` are the lower-cased names that `body.model` may have; None allows any."""

    config: InputConfig
    defaults: SamplingDefaults
    served: frozenset[str] | None
    model: str

    def request(self, file: SourceFile, row: Row) -> Request | Fault:
        """The row as a request without token ids, or what is wrong with it."""
        if isinstance(row.content, Fault):
            return row.content
        try:
            if "body" in row.content or "url" in row.content:
                return self._batch_line(file, row, row.content)
            return self._plain(file, row, row.content)
        except ValidationError as error:
            return Fault("invalid_request", _first_error(error))
        except orjson.JSONDecodeError as error:
            return Fault("malformed_json", f"{self.config.messages_column}: not valid JSON: {error}")
        except _RowError as refused:
            return Fault(refused.reason, str(refused))

    def _batch_line(self, file: SourceFile, row: Row, content: Mapping[str, Any]) -> Request:
        line = BatchLine.model_validate(content, strict=True)
        if line.url == "/v1/chat/completions":
            chat = ChatBody.model_validate(line.body, strict=True)
            return self._chat(file, row, line.custom_id, chat.messages, chat, chat.model)
        if line.url == "/v1/completions":
            body = CompletionBody.model_validate(line.body, strict=True)
            self._check_model(body.model)
            return self._build(file, row, line.custom_id, None, body.prompt, body, body.model)
        raise _RowError("unsupported_endpoint", f"the endpoint {line.url!r} is not supported: {_ENDPOINTS} are")

    def _plain(self, file: SourceFile, row: Row, content: Mapping[str, Any]) -> Request:
        parameters = Parameters.model_validate(content, strict=not row.has_text_cells)
        messages, prompt = content.get(self.config.messages_column), content.get(self.config.prompt_column)
        if messages is not None:
            value = orjson.loads(messages) if isinstance(messages, str) and messages[:1] == "[" else messages
            turns = ChatBody.model_validate({"messages": value}, strict=True).messages
        elif isinstance(prompt, str):
            turns = [Message(role="user", content=prompt)]
            if isinstance(system := content.get("system"), str):
                turns.insert(0, Message(role="system", content=system))
        else:
            raise _RowError("no_prompt", self._no_prompt(content))
        return self._chat(file, row, self._plain_id(content), turns, parameters, None)

    def _no_prompt(self, content: Mapping[str, Any]) -> str:
        wanted = f"{self.config.prompt_column!r} or {self.config.messages_column!r}"
        return f"no text in {wanted}; the row has {', '.join(map(repr, content))}: name one with --prompt-column"

    def _plain_id(self, content: Mapping[str, Any]) -> Any:
        columns = (self.config.id_column,) if self.config.id_column else _ID_COLUMNS
        return next((content[column] for column in columns if content.get(column) is not None), None)

    def _chat(
        self, file: SourceFile, row: Row, custom_id: Any, turns: list[Message], body: Parameters, model: str | None
    ) -> Request:
        self._check_model(model)
        if self.config.system is not None and turns[0].role not in ("system", "developer"):
            turns = [Message(role="system", content=self.config.system), *turns]
        asked = [turn.flat_text for turn in turns if turn.role == "user"]
        kept = {"role", "content", "name"}
        messages = json.dumps([turn.model_dump(include=kept, exclude_none=True) for turn in turns], ensure_ascii=False)
        return self._build(file, row, custom_id, messages, asked[-1] if asked else "", body, model)

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
        if not text.strip():
            raise _RowError("empty_prompt", "the prompt is empty")
        name = _identity(custom_id) or f"{file.name}:{row.line}"
        sampling = _sampling(body, self.defaults)
        return Request(
            f"{file.source}/{name}",
            name,
            file.source,
            file.name,
            row.line,
            messages,
            text,
            sampling,
            body.n or 1,
            model,
        )

    def _check_model(self, model: str | None) -> None:
        if model is not None and self.served is not None and model.lower() not in self.served:
            raise _RowError(
                "unknown_model",
                f"the row asks for model {model!r} and this run serves {self.model!r}; "
                f"to answer it all the same: --served-model-name {model}",
            )


class _RowError(Exception):
    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def _identity(custom_id: Any) -> str | None:
    if isinstance(custom_id, bool) or not isinstance(custom_id, str | int | None):
        raise _RowError("invalid_id", f"an id must be text or a whole number, not {type(custom_id).__name__}")
    name = "" if custom_id is None else str(custom_id)
    return name if name.strip() else None


def _sampling(body: Parameters, defaults: SamplingDefaults) -> SamplingParams:
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    temperature = defaults.temperature if body.temperature is None else body.temperature
    max_tokens = body.max_completion_tokens or body.max_tokens or defaults.max_tokens
    if (body.min_tokens or 0) > max_tokens:
        raise _RowError("invalid_request", f"min_tokens {body.min_tokens} is more than max_tokens {max_tokens}")
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=body.min_tokens or 0,
        temperature=temperature,
        top_p=1.0 if body.top_p is None or temperature == 0 else body.top_p,
        top_k=0 if temperature == 0 else max(body.top_k or 0, 0),
        min_p=0.0 if temperature == 0 else body.min_p or 0.0,
        seed=None if temperature == 0 else body.seed,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        repetition_penalty=body.repetition_penalty or 1.0,
        stop=stop,
        ignore_eos=bool(body.ignore_eos),
    )


def _first_error(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    message = str(first["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}" if where else message
