"""Draft: a request as far as it is known before its tokens are. Chunk: what was made of some rows of a file."""

from dataclasses import dataclass, field

import msgspec

from tasks.core.request import Reject, Request, SamplingParams
from tasks.ingest.rows import raw_text


class Draft(msgspec.Struct, gc=False):
    """A request with the text to tokenise, and the row that it came from; made a million times, so a small struct.

    `raw` is the row's own text or its bytes, `shown_id` the id that it brought. The other fields are those of Request.
    """

    line: int
    byte_offset: int | None
    raw: str | bytes
    shown_id: str | None
    custom_id: str
    messages: str | None
    tools: str | None
    text: str
    sampling: SamplingParams
    n: int
    requested_model: str | None
    prompt: str
    truncated_tokens: int = 0

    @property
    def request(self) -> Request:
        """What is asked, without its place and its tokens."""
        return Request(
            request_id="",
            custom_id=self.custom_id,
            source="",
            file="",
            line=self.line,
            messages=self.messages,
            text=self.text,
            sampling=self.sampling,
            tools=self.tools,
        )

    def place(self, source: str, file: str) -> Reject:
        """The row as a reject whose reason is still to be said."""
        raw = self.raw if isinstance(self.raw, str) else raw_text(self.raw)
        return Reject(source, file, self.line, self.byte_offset, self.shown_id, "", "", raw)


def draft(request: Request, place: Reject, prompt: str) -> Draft:
    """The request of a row that was looked at by itself."""
    return Draft(
        line=request.line,
        byte_offset=place.byte_offset,
        raw=place.raw,
        shown_id=place.custom_id,
        custom_id=request.custom_id,
        messages=request.messages,
        tools=request.tools,
        text=request.text,
        sampling=request.sampling,
        n=request.n,
        requested_model=request.requested_model,
        prompt=prompt,
    )


@dataclass(slots=True)
class Chunk:
    """Some rows of one file, in order: those that ask something, and those that were rejected."""

    file: str
    drafts: list[Draft] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    num_chars: int = 0

    @property
    def num_rows(self) -> int:
        return len(self.drafts) + len(self.rejects)
