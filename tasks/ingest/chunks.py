"""A file to Chunks: every row looked at, by the fast lane or by itself, and its prompt rendered. In bounded memory."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

from tasks.core.protocols import Tokenizer
from tasks.core.request import Reject, Request
from tasks.ingest.draft import Chunk, Draft, draft
from tasks.ingest.fast import FastLane
from tasks.ingest.finding.sources import SourceFile
from tasks.ingest.reading.blocks import Block
from tasks.ingest.reading.formats import read_file_in_blocks
from tasks.ingest.rows import Fault, Row
from tasks.ingest.shapes.validate import Validator

_CHUNK_ROWS = 2048
_CHUNK_CHARS = 1_000_000
_MAX_MESSAGE_CHARS = 500


class Reader:
    """Reads the files of one source by its rules."""

    def __init__(self, validator: Validator, tokenizer: Tokenizer) -> None:
        self._validator = validator
        self._tokenizer = tokenizer
        self._lane = FastLane(validator, tokenizer)

    def chunks(self, file: SourceFile, on_bytes: Callable[[int], None]) -> Iterator[Chunk]:
        """The rows of a file in order, some thousand at a time."""
        chunk = Chunk(file.name)
        for read in read_file_in_blocks(file, self._validator.config, on_bytes):
            if isinstance(read, Block):
                yield self._block(file, read)
                continue
            self._add(chunk, file, read)
            if chunk.num_rows >= _CHUNK_ROWS or chunk.num_chars >= _CHUNK_CHARS:
                yield chunk
                chunk = Chunk(file.name)
        if chunk.num_rows:
            yield chunk

    def _block(self, file: SourceFile, block: Block) -> Chunk:
        chunk = Chunk(file.name)
        offsets = block.offsets
        known = self._lane.drafts(block.lines, block.first_line, offsets, file.name)
        for place, one in enumerate(known):
            if one is not None:
                chunk.drafts.append(one)
            elif row := block.row(place, offsets[place]):
                self._add(chunk, file, row)
        return chunk

    def _add(self, chunk: Chunk, file: SourceFile, row: Row) -> None:
        """One row, looked at by itself; its content, which may be large, is let go."""
        place = Reject(file.source, file.name, row.line, row.byte_offset, self._validator.shown_id(row), "", "", row.raw)
        outcome = self._draft(file, row, place)
        if isinstance(outcome, Fault):
            chunk.rejects.append(rejected(place, outcome))
            return
        chunk.drafts.append(outcome)
        chunk.num_chars += len(outcome.prompt)

    def _draft(self, file: SourceFile, row: Row, place: Reject) -> Draft | Fault:
        request = self._validator.request(file, row)
        if isinstance(request, Fault):
            return request
        try:
            prompt = self._prompt(request)
        except ValueError as error:
            return Fault("chat_template", f"the model's chat template refuses these messages: {error}")
        return draft(request, place, prompt)

    def _prompt(self, request: Request) -> str:
        if request.messages is None:
            return request.text
        tools = json.loads(request.tools) if request.tools else None
        return self._tokenizer.render(json.loads(request.messages), tools)


def rejected(place: Reject, fault: Fault) -> Reject:
    """The row as a reject, for this reason."""
    message = fault.message
    if len(message) > _MAX_MESSAGE_CHARS:  # it may quote the row
        message = f"{message[: _MAX_MESSAGE_CHARS - 1]}…"
    return replace(place, reason=fault.reason, message=message)
