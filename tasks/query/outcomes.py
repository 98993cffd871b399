"""What became of every input row of a finished run, from its tables and its dataset's, one choice a row.

DuckDB puts the rows in the order of the input, and on disk what does not fit into its memory, so that a run of any size is
read in the memory of a batch.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from tasks.core.dataset import Dataset
from tasks.core.errors import DamageError, NightbatchError
from tasks.query.views import quoted, table
from tasks.storage.layout import Run
from tasks.storage.parquet import FAILURES, REJECTS, REQUESTS, RESULTS

_BATCH_ROWS = 2048
_MEMORY = "1GB"
_MAX_THREADS = 4
_IN_ORDER = "ORDER BY source, file, line, request_id, choice_index"
_OUTCOMES = """
WITH accepted AS (
    SELECT source, request_id, n, prompt_tokens AS asked_tokens, messages IS NULL AS is_completion FROM ({requests})
),
outcomes AS (
    SELECT *, NULL AS reason FROM ({results})
    UNION ALL BY NAME SELECT * FROM ({failures})
    UNION ALL BY NAME SELECT source, file, line, custom_id, 'rejected' AS status, reason, message AS error FROM ({rejects})
)
SELECT {columns} FROM outcomes LEFT JOIN accepted USING (source, request_id) {condition} {order}
"""


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
        requests, rejects = dataset.request_paths, [Path(part) for part in dataset.reject_parts]
        self._run = run
        self._tables = {
            "requests": table(requests, REQUESTS),
            "rejects": table(rejects, REJECTS),
            "results": table(sorted(run.results.glob("*.parquet")), RESULTS),
            "failures": table(sorted(run.failures.glob("*.parquet")), FAILURES),
        }
        self._condition = "" if source is None else f"WHERE source = {quoted(source)}"
        self._scratch = scratch

    def counts(self) -> "Counts":
        """What the rows will add up to, each table counted by itself."""
        tables = (
            "(SELECT count(*) FROM ({requests}) {condition})",
            "(SELECT coalesce(sum(n), 0) FROM ({requests}) {condition})",
            "(SELECT count(DISTINCT (source, request_id)) FROM ({failures}) {condition})",
            "(SELECT count(*) FROM ({rejects}) {condition})",
        )
        sql = f"SELECT {', '.join(tables)}".format(**self._tables, condition=self._condition)
        try:
            with self._connection() as connection:
                ((requests, choices, failed, rejects),) = connection.execute(sql).fetchall()
        except duckdb.Error as error:
            raise self._explained(error) from error
        return Counts(requests, failed, rejects, choices + rejects)

    def rows(self, columns: Sequence[str], *, in_order: bool = True) -> Iterator[dict[str, Any]]:
        """The choices with these columns, in the input's order or in any; a failed or rejected row has what it has."""
        sql = _OUTCOMES.format(
            **self._tables,
            columns=", ".join(columns),
            condition=self._condition,
            order=_IN_ORDER if in_order else "",
        )
        try:
            with self._connection() as connection:
                for batch in connection.sql(sql).to_arrow_reader(_BATCH_ROWS):
                    yield from batch.to_pylist()
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
            return NightbatchError(f"no room in {self._scratch} for putting the rows in order: {words}")
        return DamageError(f"the tables of run {self._run.run_id} cannot be read: {words}")
