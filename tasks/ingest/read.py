"""SourceReader: files of one source to parts of the two tables, a few chunks of rows in memory at a time.

While one chunk's prompts are tokenised, by a library that needs no interpreter, the next one's rows are looked at.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from hashlib import blake2b

import numpy as np

from tasks.core.errors import DamageError, InputError
from tasks.core.protocols import Tokenizer
from tasks.core.request import Reject, SamplingParams
from tasks.ingest.chunks import Reader, rejected
from tasks.ingest.draft import Chunk, Draft
from tasks.ingest.finding.sources import SourceFile, changed_since
from tasks.ingest.parts import Part
from tasks.ingest.rows import Fault
from tasks.ingest.seen import NEW, Seen
from tasks.ingest.shapes.validate import Validator
from tasks.ingest.tokens import TokenIds, tokenise
from tasks.storage.checksums import checksum
from tasks.storage.layout import Layout
from tasks.storage.parquet import REJECTS, REQUESTS, Constant, TableWriter, read_column, writing_table

_AHEAD = 2
_EXAMPLES_PER_REASON = 2
_FILE = 1 << 40
_ELSEWHERE = (1 << 62) - 1


class ClashError(Exception):
    """A part that was read earlier has an id in common with another file."""


class Meter:
    """How much has been done; told after every chunk."""

    def __init__(self, on_progress: Callable[[int, int], None]) -> None:
        self._on_progress = on_progress
        self._rows = 0
        self._size = 0

    def skip(self, size: int) -> None:
        """So many bytes need not be read."""
        self._size += size

    def read(self, size: int) -> None:
        """So many bytes more have been read."""
        self._size += size

    def done(self, num_rows: int) -> None:
        """So many rows more are in the tables."""
        self._rows += num_rows
        self._on_progress(self._rows, self._size)


class _Tables:
    """The two tables of a part while it is written, and the count of what went in."""

    def __init__(self, requests: TableWriter, open_rejects: Callable[[], TableWriter]) -> None:
        self._requests = requests
        self._open_rejects = open_rejects
        self.rejects: TableWriter | None = None
        self.reasons: Counter[str] = Counter()
        self.examples: list[tuple[str, str]] = []
        self.truncated = 0

    def add_requests(self, columns: dict[str, Sequence[object] | Constant], number: int) -> None:
        self._requests.extend(columns, number)

    def add_rejects(self, rejects: Iterable[Reject], ds: str) -> None:
        for reject in rejects:
            if self.rejects is None:
                self.rejects = self._open_rejects()
            self.rejects.append({"ds": ds} | {name: getattr(reject, name) for name in Reject.__slots__})
            self.reasons[reject.reason] += 1
            if self.reasons[reject.reason] <= _EXAMPLES_PER_REASON:
                place = f"{reject.source}/{reject.file} line {reject.line}"
                self.examples.append((reject.reason, f"{place}: {reject.message}"))

    @property
    def num_requests(self) -> int:
        return self._requests.num_rows


class SourceReader:
    """Reads one source's files by its rules; `begin` forgets the ids that were seen."""

    def __init__(
        self, source: str, validator: Validator, tokenizer: Tokenizer, layout: Layout, ds: str, meter: Meter
    ) -> None:
        self.meter = meter
        self._source = source
        self._validator = validator
        self._tokenizer = tokenizer
        self._layout = layout
        self._ds = ds
        self._reader = Reader(validator, tokenizer)
        self._json_of: dict[int, tuple[SamplingParams, str]] = {}
        self.begin()

    def begin(self) -> None:
        """Forget all ids."""
        self._seen = Seen()
        self._names: list[str] = []
        self._place_of: dict[str, int] = {}

    def take(self, part: Part) -> None:
        """Know the ids of a part that is there already. Raises ClashError when one of them was seen before."""
        for ids in read_column(part.requests_path, "custom_id"):
            if (self._seen.add(ids, np.full(len(ids), _ELSEWHERE)) != NEW).any():
                raise ClashError

    def read(self, files: Sequence[SourceFile], digests: Sequence[str], rules_id: str) -> tuple[Part, bool]:
        """The part that holds these files, and whether it would be the same without those read before it.

        Raises ClashError.
        """
        named = tuple((file.name, digest) for file, digest in zip(files, digests, strict=True))
        part_id = blake2b(repr((rules_id, self._ds, named)).encode(), digest_size=12).hexdigest()
        accepted = self._layout.requests_part(self._ds, self._source, part_id)
        refused = self._layout.rejects_part(self._ds, self._source, part_id)
        num_rows, is_alone, own = 0, True, len(self._names) * _FILE
        with ExitStack() as stack:
            requests = stack.enter_context(writing_table(accepted, REQUESTS))
            tables = _Tables(requests, lambda: stack.enter_context(writing_table(refused, REJECTS)))
            for chunk, outcomes in self._tokenised(self._chunks(files)):
                num_rows += chunk.num_rows
                is_alone &= self._write(chunk, outcomes, tables, own)
                self.meter.done(chunk.num_rows)
            reasons, num_requests = tables.reasons, tables.num_requests
        if num_rows != num_requests + reasons.total():
            raise DamageError(f"ingest lost count: {num_rows} rows, {num_requests} requests, {reasons} rejects")
        paths = [accepted, refused] if tables.rejects else [accepted]
        part = Part(
            part_id=part_id,
            ds=self._ds,
            files=named,
            rows=num_rows,
            requests=num_requests,
            truncated=tables.truncated,
            reject_reasons=dict(reasons),
            examples=tuple(tables.examples),
            tables=tuple(map(str, paths)),
            checksums=tuple(map(checksum, paths)),
        )
        return part, is_alone

    def _chunks(self, files: Iterable[SourceFile]) -> Iterator[Chunk]:
        for file in files:
            self._place_of[file.name] = len(self._names)
            self._names.append(file.name)
            yield from self._reader.chunks(file, self.meter.read)
            if changed_since(file):
                raise InputError(f"{file.shown} has changed while it was read: run again when it is whole")

    def _tokenised(self, chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, list[TokenIds | Fault]]]:
        """Each chunk with one outcome for each row that asks something, in order."""
        with ThreadPoolExecutor(1, "tokenise") as pool:
            waiting: deque[tuple[Chunk, Future[list[TokenIds | Fault]]]] = deque()
            for chunk in chunks:
                waiting.append(
                    (chunk, pool.submit(tokenise, chunk.drafts, self._tokenizer, self._validator.config.truncate_prompt))
                )
                if len(waiting) > _AHEAD:
                    done, future = waiting.popleft()
                    yield done, future.result()
            for done, future in waiting:
                yield done, future.result()

    def _write(self, chunk: Chunk, outcomes: Sequence[TokenIds | Fault], tables: _Tables, own: int) -> bool:
        """The chunk's rows into their tables; whether none of them is a duplicate of one before `own`."""
        rejects = list(chunk.rejects)
        kept: list[tuple[Draft, TokenIds]] = []
        for one, outcome in zip(chunk.drafts, outcomes, strict=True):
            if isinstance(outcome, Fault):
                rejects.append(rejected(one.place(self._source, chunk.file), outcome))
            else:
                kept.append((one, outcome))
        at = self._place_of[chunk.file] * _FILE
        places = np.fromiter((at + one.line for one, _ in kept), np.int64, len(kept))
        firsts = self._seen.add([one.custom_id for one, _ in kept], places)
        repeated = firsts != NEW
        if (firsts == _ELSEWHERE).any():
            raise ClashError
        if repeated.any():
            twice = [(kept[i][0], int(firsts[i])) for i in np.flatnonzero(repeated)]
            rejects += [rejected(one.place(self._source, chunk.file), self._again(one, first)) for one, first in twice]
            kept = [pair for pair, is_repeated in zip(kept, repeated, strict=True) if not is_repeated]
        if kept:
            tables.truncated += sum(one.truncated_tokens > 0 for one, _ in kept)
            tables.add_requests(self._columns(chunk.file, kept), len(kept))
        tables.add_rejects(sorted(rejects, key=lambda reject: reject.line), self._ds)
        return not (repeated & (firsts < own)).any()

    def _again(self, one: Draft, first: int) -> Fault:
        place = f"{self._names[first // _FILE]} line {first % _FILE}"
        return Fault("duplicate_id", f"the id was used before in this source, at {place}: {one.custom_id!r}")

    def _columns(self, file: str, kept: Sequence[tuple[Draft, TokenIds]]) -> dict[str, Sequence[object] | Constant]:
        drafts = [one for one, _ in kept]
        return {
            "ds": Constant(self._ds),
            "request_id": [f"{self._source}/{one.custom_id}" for one in drafts],
            "custom_id": [one.custom_id for one in drafts],
            "source": Constant(self._source),
            "file": Constant(file),
            "line": [one.line for one in drafts],
            "requested_model": [one.requested_model for one in drafts],
            "messages": [one.messages for one in drafts],
            "tools": [one.tools for one in drafts],
            "text": [one.text for one in drafts],
            "sampling": [self._json(one.sampling) for one in drafts],
            "n": [one.n for one in drafts],
            "max_tokens": [one.sampling.max_tokens for one in drafts],
            "priority": Constant(self._validator.priority),
            "deadline": Constant(self._validator.deadline),
            "truncated_tokens": [one.truncated_tokens for one in drafts],
            "prompt_tokens": [len(ids) for _, ids in kept],
            "prompt_token_ids": [ids for _, ids in kept],
        }

    def _json(self, sampling: SamplingParams) -> str:
        """The parameters as text; rows of the fast lane share their parameters, so most are known by identity."""
        known = self._json_of.get(id(sampling))
        if known is None:
            if len(self._json_of) >= 4096:
                self._json_of.clear()
            known = self._json_of[id(sampling)] = (sampling, sampling.to_json())
        return known[1]
