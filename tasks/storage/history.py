"""The answers of earlier runs as arrays: what the length of answers is learnt from.

Newest runs first, a bounded sample of each: some row groups of every source's requests, evenly spaced, and the results that
belong to them. Answers given to duplicates are left out, as the engine did not generate them. A run that cannot be read is
noted and left out: history is a help, and no night waits for it.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tasks.core.errors import DamageError
from tasks.core.manifest import DONE
from tasks.storage.atomic import read_json
from tasks.storage.layout import Layout

_log = logging.getLogger(__name__)

_MAX_ROW_GROUPS = 64
"""Of one run, but one of each source at the least: half a second of reading."""
_RESULTS = ["request_id", "choice_index", "output_tokens", "finish_reason", "duplicate_of"]
_REQUESTS = ["request_id", "source", "prompt_token_ids"]


@dataclass(frozen=True, slots=True)
class Answers:
    """One row an answer. The prompt of row i is prompt_token_ids[offsets[i] : offsets[i + 1]]; lengths are in tokens.

    `was_cut`: the answer ended at its max_tokens, and would have been longer.
    """

    sources: NDArray[np.str_]
    output_tokens: NDArray[np.int32]
    was_cut: NDArray[np.bool_]
    prompt_token_ids: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @property
    def prompt_tokens(self) -> NDArray[np.int32]:
        return np.diff(self.offsets).astype(np.int32)


def read_answers(layout: Layout, model: str, max_rows: int, *, without: str = "") -> Answers | None:
    """At most `max_rows` answers of that model, of the newest finished runs but for `without`; None where there are none.

    The same files give the same rows in the same order.
    """
    tables: list[pa.Table] = []
    for manifest in _finished_runs(layout, model, without):
        if (left := max_rows - sum(table.num_rows for table in tables)) <= 0:
            break
        try:
            tables.append(_answers_of(layout, manifest, left))
        except (OSError, pa.ArrowException, DamageError, KeyError) as error:
            _log.warning("run %s is not learnt from: %s", manifest["run_id"], error)
    rows = pa.concat_tables(tables) if tables else None
    return _arrays(rows) if rows is not None and rows.num_rows else None


def _finished_runs(layout: Layout, model: str, without: str) -> list[dict[str, Any]]:
    """Manifests, newest first."""
    found = []
    for path in layout.runs.glob("*/manifest.json"):
        try:
            manifest = read_json(path)
        except (OSError, DamageError):
            continue
        if manifest and manifest.get("state") == DONE and manifest.get("model") == model and manifest["run_id"] != without:
            found.append(manifest)
    return sorted(found, key=lambda manifest: (manifest.get("ended_at") or "", manifest["run_id"]), reverse=True)


def _answers_of(layout: Layout, manifest: dict[str, Any], max_rows: int) -> pa.Table:
    """The sampled requests of a run, joined with their answers, in the order of their ids."""
    dataset = read_json(layout.dataset_manifest(manifest["dataset_id"]))
    if dataset is None:
        raise FileNotFoundError("its requests are no longer there")
    requests = _sample([_moved(layout, Path(path)) for path in dataset["request_parts"]], max_rows)
    results = _read_results(layout.run(manifest["run_id"]).results, requests["request_id"])
    results = results.sort_by([("request_id", "ascending"), ("choice_index", "ascending")])
    results = results.take(pa.array(_evenly(results.num_rows, max_rows)))
    asked = requests.take(pc.index_in(results["request_id"], value_set=requests["request_id"].combine_chunks()))
    return results.append_column("source", asked["source"]).append_column("prompt_token_ids", asked["prompt_token_ids"])


def _moved(layout: Layout, part: Path) -> Path:
    """Where a part lies if its data folder was moved."""
    return part if part.exists() else layout.data / Path(*part.parts[-4:])


def _sample(parts: Sequence[Path], max_rows: int) -> pa.Table:
    """Rows of evenly spaced row groups, of every source some."""
    by_source: dict[str, list[Path]] = {}
    for part in sorted(parts):
        by_source.setdefault(part.parent.name, []).append(part)
    groups_each = max(1, _MAX_ROW_GROUPS // max(1, len(by_source)))
    tables = []
    for of_source in by_source.values():
        places = list(_row_groups(of_source))
        chosen = [places[place] for place in _evenly(len(places), groups_each)]
        rows_each = max(1, max_rows // (len(by_source) * len(chosen)))
        for path, group in chosen:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                table = file.read_row_group(group, columns=_REQUESTS)
            tables.append(table.take(pa.array(_evenly(table.num_rows, rows_each))))
    return pa.concat_tables(tables)


def _row_groups(parts: Sequence[Path]) -> Iterator[tuple[Path, int]]:
    for part in parts:
        for group in range(pq.read_metadata(part).num_row_groups):
            yield part, group


def _read_results(folder: Path, request_ids: pa.ChunkedArray) -> pa.Table:
    """The generated answers of these requests."""
    wanted, found = request_ids.combine_chunks(), []
    for path in sorted(folder.glob("*.parquet")):
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for batch in file.iter_batches(columns=_RESULTS):
                is_wanted = pc.and_(pc.is_in(batch["request_id"], value_set=wanted), pc.is_null(batch["duplicate_of"]))
                found.append(batch.filter(pc.and_(is_wanted, pc.is_valid(batch["output_tokens"]))))
    if not found:
        raise FileNotFoundError("its results are no longer there")
    return pa.Table.from_batches(found).drop_columns(["duplicate_of"])


def _arrays(rows: pa.Table) -> Answers:
    ids = rows["prompt_token_ids"].combine_chunks()
    lengths = pc.list_value_length(ids).to_numpy(zero_copy_only=False)
    return Answers(
        np.asarray(rows["source"].to_pylist(), dtype=np.str_),
        rows["output_tokens"].to_numpy().astype(np.int32),
        pc.equal(rows["finish_reason"], "length").to_numpy(zero_copy_only=False).astype(np.bool_),
        ids.flatten().to_numpy().astype(np.int32),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
    )


def _evenly(number: int, at_most: int) -> NDArray[np.int64]:
    """Places from 0 to number - 1, evenly spaced, `at_most` so many."""
    count = min(number, at_most)
    return np.arange(count, dtype=np.int64) * number // max(1, count)
