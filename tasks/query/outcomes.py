"""What became of every input row of a finished run, from its tables and its dataset's, one choice a row.

The results lie in the input's order as a rule, and are then read as they lie. What is not in order DuckDB puts in order, and
on disk what does not fit into its memory, so that a run of any size is read in the memory of a batch.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tasks.core.dataset import Dataset
from tasks.core.errors import DamageError, NightbatchError
from tasks.query.views import quoted, table
from tasks.storage.layout import Run
from tasks.storage.parquet import FAILURES, REJECTS, REQUESTS, RESULTS

_BATCH_ROWS = 1024
_PIECE_BYTES = 1 << 20
_MEMORY = "512MB"
_MAX_THREADS = 4
_REJECTED = {
    **{name: name for name in ("source", "file", "line", "custom_id", "reason")},
    "status": "'rejected'",
    "error": "message",
}

Row = dict[str, Any]
_Place = tuple[str, str, int, int]


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests, those of them that failed, and rejects, which are input rows; `choices` are the rows that come of them."""

    requests: int
    failed: int
    rejects: int
    choices: int

    @property
    def rows(self) -> int:
        return self.requests + self.rejects

    @property
    def errors(self) -> int:
        """Input rows without an answer."""
        return self.failed + self.rejects


class Outcomes:
    """The rows of one run, of one source where that is given; `scratch` is an existing folder for what is being sorted."""

    def __init__(self, run: Run, dataset: Dataset, source: str | None, scratch: Path) -> None:
        self._run = run
        self._results = sorted(run.results.glob("*.parquet"))
        self._tables = {
            "requests": table(dataset.request_paths, REQUESTS),
            "rejects": table([Path(part) for part in dataset.reject_parts], REJECTS),
            "results": table(self._results, RESULTS),
            "failures": table(sorted(run.failures.glob("*.parquet")), FAILURES),
        }
        self._source = source
        self._condition = "" if source is None else f"WHERE source = {quoted(source)}"
        self._scratch = scratch

    def counts(self) -> Counts:
        """What the rows will add up to, each table counted by itself."""
        tables = (
            "(SELECT count(*) FROM ({requests}) {condition})",
            "(SELECT coalesce(sum(n), 0) FROM ({requests}) {condition})",
            "(SELECT count(DISTINCT (source, request_id)) FROM ({failures}) {condition})",
            "(SELECT count(*) FROM ({rejects}) {condition})",
        )
        sql = f"SELECT {', '.join(f'{one} AS c{i}' for i, one in enumerate(tables))}"
        (row,) = self._selected(sql.format(**self._tables, condition=self._condition))
        requests, choices, failed, rejects = (int(value) for value in row.values())
        return Counts(requests, failed, rejects, choices + rejects)

    def rows(self, columns: Sequence[str], *, in_order: bool = True) -> Iterator[Row]:
        """The choices with these columns, in the input's order or in any; a failed or rejected row has what it has."""
        failures = {name: name for name in FAILURES.names}
        others = (self._other("failures", failures, columns), self._other("rejects", _REJECTED, columns))
        if not in_order:
            return chain(self._as_they_lie(columns), *others)
        if self._lie_in_order():
            return merge(self._as_they_lie(columns), *others, key=_place)
        return merge(self._other("results", {name: name for name in RESULTS.names}, columns), *others, key=_place)

    def asked_rows(self, columns: Sequence[str]) -> Iterator[Row]:
        """The choices in the input's order, with what their request asked for: `n`, and whether it `is_completion`."""
        names = "source, file, line, n, messages IS NULL AS is_completion"
        sql = f"SELECT {names} FROM ({self._tables['requests']}) {self._condition} ORDER BY source, file, line"
        asked, request = self._selected(sql), None
        for row in self.rows(columns):
            if row["status"] == "rejected":
                yield row
                continue
            while request is None or _line(request) < _line(row):
                if (request := next(asked, None)) is None:
                    break
            if request is None or _line(request) != _line(row):
                raise DamageError(f"run {self._run.run_id}: {row['request_id']} has an outcome and is no request")
            yield {**row, "n": request["n"], "is_completion": request["is_completion"]}

    def _lie_in_order(self) -> bool:
        places = map(_place, self._as_they_lie(("source", "file", "line", "choice_index")))
        return all(one <= other for one, other in pairwise(places))

    def _as_they_lie(self, columns: Sequence[str]) -> Iterator[Row]:
        """The results in their table's own order."""
        missing = dict.fromkeys(columns)
        try:
            for part in self._results:
                with pq.ParquetFile(part) as file:
                    there = [name for name in dict.fromkeys(["source", *columns]) if name in file.schema_arrow.names]
                    for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=there):
                        yield from ({**missing, **row} for row in _pieces(self._chosen(batch)))
        except (pa.ArrowException, OSError) as error:
            raise self._explained(error) from error

    def _chosen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if self._source is None else batch.filter(pc.equal(batch["source"], self._source))

    def _other(self, name: str, known: dict[str, str], columns: Sequence[str]) -> Iterator[Row]:
        """A table's rows in the input's order, with NULL in the columns that it does not have."""
        wanted = ", ".join(f'{known.get(column, "NULL")} AS "{column}"' for column in columns)
        order = "ORDER BY source, file, line" + ", choice_index" * ("choice_index" in known)
        return self._selected(f"SELECT {wanted} FROM ({self._tables[name]}) {self._condition} {order}")

    def _selected(self, sql: str) -> Iterator[Row]:
        try:
            with self._connection() as connection:
                for batch in connection.sql(sql).to_arrow_reader(_BATCH_ROWS):
                    yield from _pieces(batch)
        except (duckdb.Error, OSError) as error:
            raise self._explained(error) from error

    def _connection(self) -> duckdb.DuckDBPyConnection:
        threads = min(_MAX_THREADS, os.cpu_count() or 1)
        settings: dict[str, str | bool | int | float | list[str]] = {
            "temp_directory": str(self._scratch),
            "memory_limit": _MEMORY,
            "threads": threads,
            "preserve_insertion_order": False,
        }
        return duckdb.connect(":memory:", config=settings)

    def _explained(self, error: Exception) -> NightbatchError:
        words = str(error).splitlines()[0] if str(error) else type(error).__name__
        if isinstance(error, duckdb.OutOfMemoryException) or "No space left" in words:
            return NightbatchError(f"no room in memory or in {self._scratch} for putting the rows in order: {words}")
        return DamageError(f"the tables of run {self._run.run_id} cannot be read: {words}")


def _pieces(batch: pa.RecordBatch) -> Iterator[Row]:
    """The rows of a batch as Python has them, a few at a time where log-probabilities make them large."""
    step = max(1, _PIECE_BYTES * batch.num_rows // (batch.nbytes + 1))
    for start in range(0, batch.num_rows, step):
        yield from _lean(batch.slice(start, step)).to_pylist()


def _lean(piece: pa.RecordBatch) -> pa.RecordBatch:
    """Without token ids where no row has log-probabilities, the one thing that they are needed for."""
    names = piece.schema.names
    if "output_token_ids" in names and "logprobs" in names and piece["logprobs"].null_count == piece.num_rows:
        place = names.index("output_token_ids")
        nothing = pa.nulls(piece.num_rows, piece.schema.field(place).type)
        return piece.set_column(place, piece.schema.field(place), nothing)
    return piece


def _place(row: Row) -> _Place:
    """Where a choice stands in the input's order."""
    return row["source"], row["file"], row["line"], row["choice_index"] or 0


def _line(row: Row) -> tuple[str, str, int]:
    return row["source"], row["file"], row["line"]
