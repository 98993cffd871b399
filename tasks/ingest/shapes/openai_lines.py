"""Lines of OpenAI batch files: which endpoint a line is for, and what it asks of the two oldest ones."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel

from tasks.ingest.rows import RowError
from tasks.ingest.shapes.asked import Asked
from tasks.ingest.shapes.protocol import ChatBody, CompletionBody

ENDPOINTS = ("chat/completions", "completions", "responses", "messages")
SUPPORTED = "/v1/chat/completions, /v1/completions, /v1/responses and /v1/messages"


class BatchLine(BaseModel):
    """One line of an OpenAI batch file; the body is checked by its endpoint's own model."""

    custom_id: Any = None
    method: Literal["POST"] | None = None
    url: str
    body: dict[str, Any]


@lru_cache(maxsize=1024)
def endpoint_of(url: str) -> str | None:
    """The endpoint that a URL means: whole or a path, with /v1 or without. None where it means none of them for sure."""
    path = _path(url)
    if path is None:
        return None
    path = path.strip("/")
    return next((name for name in ENDPOINTS if path in (name, f"v1/{name}") or path.endswith(f"/v1/{name}")), None)


def is_endpoint(url: Any) -> bool:
    """Whether a row's `url` is of an API, be it one that is not supported."""
    return isinstance(url, str) and (url.startswith("/v1/") or endpoint_of(url) is not None)


def unsupported_endpoint(url: str) -> RowError:
    """The refusal of a line for another endpoint; of its URL the path alone, as the rest may hold a key."""
    path = _path(url)
    shown = f"the endpoint {path!r}" if path is not None else "this URL"
    return RowError("unsupported_endpoint", f"{shown} is not supported: {SUPPORTED} are")


def chat_asked(body: Mapping[str, Any]) -> Asked:
    """What a body of /v1/chat/completions asks. A last turn of the assistant stands, as it does there."""
    chat = ChatBody.model_validate(body, strict=True)
    return Asked(chat, chat.messages, model=chat.model, tools=chat.tools)


def completion_asked(body: Mapping[str, Any]) -> Asked:
    """What a body of /v1/completions asks: its text is read as it is, without a chat template."""
    completion = CompletionBody.model_validate(body, strict=True)
    return Asked(completion, None, completion.prompt, completion.model, place="prompt")


def _path(url: str) -> str | None:
    """The path alone; None where a query or another scheme makes it a URL of another kind."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    is_plain = parts.scheme in ("", "http", "https") and not parts.query and not parts.fragment
    return parts.path if is_plain else None
