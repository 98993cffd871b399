"""Input files to the `requests` and `rejects` tables of one dataset.

Every row of every file is in exactly one of the two, with its file and line; asserted before the dataset's manifest,
which is written last and makes the dataset exist, says so. Memory is bounded by a chunk of rows and the set of ids.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice

from tasks.core.dataset import Dataset
from tasks.core.errors import DamageError
from tasks.core.protocols import Tokenizer
from tasks.core.request import Reject, Request
from tasks.ingest.rows import Fault, Row, read_csv, read_jsonl, unsupported
from tasks.ingest.sources import SourceFile
from tasks.ingest.tokens import tokenise
from tasks.ingest.validate import Validator
from tasks.storage.atomic import write_json
from tasks.storage.layout import Layout
from tasks.storage.parquet import REJECTS, REQUESTS, TableWriter, writing_table

_CHUNK = 512
_NUM_EXAMPLES = 5

Located = tuple[SourceFile, Row]


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


def ingest(
    files: Sequence[SourceFile],
    validator: Validator,
    tokenizer: Tokenizer,
    layout: Layout,
    *,
    dataset_id: str,
    ds: str,
    on_rows: Callable[[int], None] = lambda _: None,
) -> Dataset:
    """Read all files into the two tables; `on_rows` hears how many rows are done. `ds` is the tables' date partition."""
    count = _Count()
    parts = []
    for source, of_source in groupby(files, key=lambda file: file.source):
        accepted = layout.requests_part(ds, source, dataset_id)
        refused = layout.rejects_part(ds, source, dataset_id)
        with writing_table(accepted, REQUESTS) as requests, writing_table(refused, REJECTS) as rejects:
            for outcome in _outcomes(of_source, validator, tokenizer, count, on_rows):
                count.add(outcome)
                _write(outcome, requests, rejects, ds)
        parts.append((str(accepted), str(refused)))
    if count.rows != count.requests + count.reasons.total():
        raise DamageError(f"ingest lost count: {count.rows} rows, {count.requests} requests, {count.reasons} rejects")
    dataset = Dataset(
        dataset_id,
        ds,
        len(files),
        count.rows,
        count.requests,
        dict(count.reasons),
        tuple(count.examples),
        tuple(accepted for accepted, _ in parts),
        tuple(refused for _, refused in parts),
    )
    write_json(layout.dataset_manifest(dataset_id), dataset.to_dict())
    return dataset


def _outcomes(
    files: Iterable[SourceFile],
    validator: Validator,
    tokenizer: Tokenizer,
    count: _Count,
    on_rows: Callable[[int], None],
) -> Iterator[Request | Reject]:
    """One source's rows, each as its request or its reject, in file order."""
    seen: dict[str, str] = {}
    located = ((file, row) for file in files for row in _rows(file, validator.config.format))
    while chunk := list(islice(located, _CHUNK)):
        checked = [_once(validator.request(file, row), seen) for file, row in chunk]
        tokenised = iter(tokenise([outcome for outcome in checked if isinstance(outcome, Request)], tokenizer))
        for (file, row), outcome in zip(chunk, checked, strict=True):
            last = next(tokenised) if isinstance(outcome, Request) else outcome
            yield _reject(file, row, last) if isinstance(last, Fault) else last
        count.rows += len(chunk)
        on_rows(count.rows)


def _rows(file: SourceFile, given_format: str | None) -> Iterator[Row]:
    match given_format or file.format:
        case "jsonl":
            return read_jsonl(file.path)
        case "csv":
            return read_csv(file.path, delimiter=None)
        case "tsv":
            return read_csv(file.path, delimiter="\t")
        case _:
            return iter([unsupported(file.path)])


def _once(outcome: Request | Fault, seen: dict[str, str]) -> Request | Fault:
    """The first row with an id is the request; a later one is a fault that names the first."""
    if isinstance(outcome, Fault):
        return outcome
    place = f"{outcome.file} line {outcome.line}"
    first = seen.setdefault(outcome.request_id, place)
    if first is place:
        return outcome
    return Fault("duplicate_id", f"the id {outcome.custom_id!r} was used before in this source, at {first}")


def _reject(file: SourceFile, row: Row, fault: Fault) -> Reject:
    custom_id = None if isinstance(row.content, Fault) else row.content.get("custom_id")
    shown = None if custom_id is None else str(custom_id)
    return Reject(file.source, file.name, row.line, row.byte_offset, shown, fault.reason, fault.message, row.raw)


def _write(outcome: Request | Reject, requests: TableWriter, rejects: TableWriter, ds: str) -> None:
    if isinstance(outcome, Reject):
        rejects.append({"ds": ds} | {name: getattr(outcome, name) for name in Reject.__slots__})
        return
    columns = ("request_id", "custom_id", "source", "file", "line", "requested_model", "messages", "text", "n")
    requests.append(
        {"ds": ds, "sampling": outcome.sampling.to_json(), "max_tokens": outcome.sampling.max_tokens}
        | {"prompt_tokens": len(outcome.prompt_token_ids), "prompt_token_ids": outcome.prompt_token_ids}
        | {name: getattr(outcome, name) for name in columns}
    )
