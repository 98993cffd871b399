"""Input files to the `requests` and `rejects` tables of one dataset.

Every row of every file is in exactly one of the two, with its file and line; asserted before any table appears. The
dataset's manifest is written last and makes the dataset exist. Memory is bounded by a chunk of rows and the set of ids.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path

from tasks.core.dataset import Dataset, InputFile
from tasks.core.errors import DamageError
from tasks.core.protocols import Tokenizer
from tasks.core.request import Reject, Request
from tasks.ingest import checker
from tasks.ingest.formats import read_file
from tasks.ingest.rows import Fault, Row, as_unicode
from tasks.ingest.sources import SourceFile
from tasks.ingest.tokens import prompt_of, tokenise
from tasks.ingest.validate import Validator
from tasks.storage.atomic import write_json
from tasks.storage.checksums import checksum
from tasks.storage.layout import Layout
from tasks.storage.parquet import REJECTS, REQUESTS, TableWriter, writing_table

_CHUNK_ROWS = 512
_CHUNK_CHARS = 8_000_000
_NUM_EXAMPLES = 5
_MAX_MESSAGE_CHARS = 500


@dataclass(slots=True)
class _Count:
    """What has been seen of the dataset so far."""

    rows: int = 0
    requests: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def add(self, outcome: Request | Reject) -> None:
        if isinstance(outcome, Request):
            self.requests += 1
            return
        self.reasons[outcome.reason] += 1
        if len(self.examples) < _NUM_EXAMPLES:
            self.examples.append(f"{outcome.source}/{outcome.file} line {outcome.line}: {outcome.message}")


@dataclass(frozen=True, slots=True)
class _Screened:
    """A row that was looked at by itself: where it stands, and its request with the prompt to tokenise or its fault."""

    place: Reject
    asked: tuple[Request, str] | Fault


def ingest(
    files: Sequence[SourceFile],
    validator_of: Callable[[str], Validator],
    tokenizer: Tokenizer,
    layout: Layout,
    *,
    dataset_id: str,
    ds: str,
    on_rows: Callable[[int], None] = lambda _: None,
) -> Dataset:
    """Read all files into the two tables, each source by its own rules; `on_rows` hears how many rows are done. `ds` is the
    tables' date partition."""
    count = _Count()
    parts: list[tuple[Path, Path]] = []
    with ExitStack() as tables:  # so that the parts appear together, when all rows of all sources are in them
        tables.callback(checker.close)
        for source, of_source in groupby(sorted(files, key=_source_of), key=_source_of):
            accepted, refused = layout.requests_part(ds, source, dataset_id), layout.rejects_part(ds, source, dataset_id)
            requests = tables.enter_context(writing_table(accepted, REQUESTS))
            rejects = tables.enter_context(writing_table(refused, REJECTS))
            for outcome in _outcomes(of_source, validator_of(source), tokenizer, count, on_rows):
                count.add(outcome)
                _write(outcome, requests, rejects, {"dataset_id": dataset_id, "ds": ds})
            requests.flush()
            rejects.flush()
            parts.append((accepted, refused))
        if count.rows != count.requests + count.reasons.total():
            raise DamageError(f"ingest lost count: {count.rows} rows, {count.requests} requests, {count.reasons} rejects")
    dataset = Dataset(
        dataset_id=dataset_id,
        ds=ds,
        files=len(files),
        rows=count.rows,
        requests=count.requests,
        reject_reasons=dict(count.reasons),
        examples=tuple(count.examples),
        request_parts=tuple(str(accepted) for accepted, _ in parts),
        reject_parts=tuple(str(refused) for _, refused in parts),
        inputs=tuple(InputFile(file.source, file.name, as_unicode(str(file.path)), "") for file in files),
        rows_of={source: asdict(validator_of(source).config) for source in {file.source: None for file in files}},
        checksums=tuple(checksum(part) for part in (*(one for one, _ in parts), *(other for _, other in parts))),
    )
    write_json(layout.dataset_manifest(dataset_id), dataset.to_dict())
    return dataset


def _source_of(file: SourceFile) -> str:
    return file.source


def _outcomes(
    files: Iterable[SourceFile],
    validator: Validator,
    tokenizer: Tokenizer,
    count: _Count,
    on_rows: Callable[[int], None],
) -> Iterator[Request | Reject]:
    """One source's rows, each as its request or its reject, in file order."""
    seen: dict[str, str] = {}
    rows = ((file, row) for file in files for row in read_file(file, validator.config))
    for chunk in _chunks(_screen(file, row, validator, tokenizer) for file, row in rows):
        tokenised = iter(tokenise([one.asked for one in chunk if not isinstance(one.asked, Fault)], tokenizer))
        for one in chunk:
            outcome = one.asked if isinstance(one.asked, Fault) else _once(next(tokenised), seen)
            yield _rejected(one.place, outcome) if isinstance(outcome, Fault) else outcome
        count.rows += len(chunk)
        on_rows(count.rows)


def _screen(file: SourceFile, row: Row, validator: Validator, tokenizer: Tokenizer) -> _Screened:
    """What can be said of a row before its tokens are known; its content, which may be large, is let go."""
    place = Reject(file.source, file.name, row.line, row.byte_offset, validator.shown_id(row), "", "", row.raw)
    request = validator.request(file, row)
    if isinstance(request, Fault):
        return _Screened(place, request)
    prompt = prompt_of(request, tokenizer)
    return _Screened(place, prompt if isinstance(prompt, Fault) else (request, prompt))


def _chunks(screened: Iterable[_Screened]) -> Iterator[list[_Screened]]:
    """Rows in numbers that are worth a call of the tokenizer and fit into memory."""
    chunk: list[_Screened] = []
    num_chars = 0
    for one in screened:
        chunk.append(one)
        num_chars += 0 if isinstance(one.asked, Fault) else len(one.asked[1])
        if len(chunk) >= _CHUNK_ROWS or num_chars >= _CHUNK_CHARS:
            yield chunk
            chunk, num_chars = [], 0
    if chunk:
        yield chunk


def _once(outcome: Request | Fault, seen: dict[str, str]) -> Request | Fault:
    """The first request with an id is the request; a later one is a fault that names the first."""
    if isinstance(outcome, Fault):
        return outcome
    place = f"{outcome.file} line {outcome.line}"
    first = seen.setdefault(outcome.request_id, place)
    if first is place:
        return outcome
    return Fault("duplicate_id", f"the id was used before in this source, at {first}: {outcome.custom_id!r}")


def _rejected(place: Reject, fault: Fault) -> Reject:
    message = fault.message
    if len(message) > _MAX_MESSAGE_CHARS:  # it may quote the row
        message = f"{message[: _MAX_MESSAGE_CHARS - 1]}…"
    return replace(place, reason=fault.reason, message=message)


def _write(outcome: Request | Reject, requests: TableWriter, rejects: TableWriter, of: dict[str, str]) -> None:
    if isinstance(outcome, Reject):
        rejects.append(of | {name: getattr(outcome, name) for name in Reject.__slots__})
        return
    columns = (
        *("request_id", "custom_id", "source", "file", "line", "requested_model", "messages", "tools", "text", "n"),
        *("priority", "deadline", "truncated_tokens"),
    )
    requests.append(
        of
        | {"sampling": outcome.sampling.to_json(), "max_tokens": outcome.sampling.max_tokens}
        | {"prompt_tokens": len(outcome.prompt_token_ids), "prompt_token_ids": outcome.prompt_token_ids}
        | {name: getattr(outcome, name) for name in columns}
    )
