"""Prove that a run's journal, plan and tables say the same; reads only, repairs nothing.

A torn tail is no problem by itself: it is what a kill leaves. It becomes one when a sequence of a finished run has no end.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tasks.core.dataset import Dataset
from tasks.core.errors import DamageError
from tasks.core.manifest import DONE, Manifest
from tasks.core.request import Progress
from tasks.journal.replay import replay_run
from tasks.journal.segments import segments
from tasks.status import DAMAGED, find_run, state_of
from tasks.storage.atomic import read_json
from tasks.storage.checksums import changed, failed_checksums
from tasks.storage.layout import Layout, Run
from tasks.storage.parquet import Row, read_rows

_MAX_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What was compared, what is noteworthy, and what is wrong."""

    run_id: str
    state: str
    sequences: int
    ended: int
    journal_tokens: int
    rows_compared: int
    notes: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        return 1 if self.problems else 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def check_run(layout: Layout, prefix: str) -> CheckReport:
    """Compare everything that is there of the run whose id begins so. Raises ConfigError when there is no such run."""
    run = find_run(layout, prefix)
    try:
        manifest = Manifest.from_dict(read_json(run.manifest) or {})
        known = replay_run(run.journals, manifest.fingerprint)
    except DamageError as error:
        return CheckReport(run.run_id, DAMAGED, 0, 0, 0, 0, (), (f"{error}; the same command as before writes it anew",))
    problems = [*_damaged_files(layout, run, manifest)]
    plan = _plan(run, problems)
    problems += [f"damaged: {damage}" for damage in known.damages if not damage.is_torn_tail]
    problems += _at_most(_strangers(plan, known.progress))
    num_compared = 0
    if manifest.state == DONE and not segments(run.journals):
        problems.append(f"there is no journal in {run.journals}: nothing to compare with (is --checkpoints right?)")
    elif manifest.state == DONE:
        results, failures = (_rows(folder, problems) for folder in (run.results, run.failures))
        num_compared = len(results) + len(failures)
        problems += _at_most(_without_end(plan, known.progress))
        problems += _at_most(_differences([*results, *failures], plan, known.progress))
        problems += _miscounts(manifest, results, failures)
    return CheckReport(
        run.run_id,
        state_of(run, manifest),
        len(plan),
        known.num_final,
        known.num_tokens,
        num_compared,
        tuple(f"{damage} (what a kill leaves)" for damage in known.damages if damage.is_torn_tail),
        tuple(problems),
    )


def _damaged_files(layout: Layout, run: Run, manifest: Manifest) -> Iterator[str]:
    """What fails its checksum: the dataset's parts, and the run's tables as far as they are there."""
    path = layout.dataset_manifest(manifest.dataset_id)
    try:
        if (found := read_json(path)) is not None:
            yield from filter(None, (changed(part, wanted) for part, wanted in Dataset.from_dict(found).sums))
        elif run.plan.exists():
            yield f"{path} is missing: the run's requests are not there any more"
    except DamageError as error:
        yield str(error)
    for folder in (run.groups.parent, run.plan.parent, run.results, run.failures):
        if folder.exists() or manifest.state == DONE:
            yield from failed_checksums(folder)


def _at_most(problems: Iterator[str]) -> Iterator[str]:
    """The first problems of a kind, and how many more there are."""
    yield from islice(problems, _MAX_PROBLEMS)
    if more := sum(1 for _ in problems):
        yield f"... and {more:,} more of this kind"


def _plan(run: Run, problems: list[str]) -> dict[int, Row]:
    """The planned sequences by key; none when the run was stopped before it had a plan."""
    rows = _readable([run.plan] if run.plan.exists() else [], problems, ["key", "request_id", "choice_index"])
    return {row["key"]: row for row in rows}


def _rows(folder: Path, problems: list[str]) -> list[Row]:
    return _readable(sorted(folder.glob("*.parquet")), problems)


def _readable(paths: list[Path], problems: list[str], columns: list[str] | None = None) -> list[Row]:
    """All rows, or none and one problem more when a file is damaged."""
    try:
        return list(read_rows(paths, columns))
    except DamageError as error:
        problems.append(str(error))
        return []


def _strangers(plan: Mapping[int, Row], progress: Mapping[int, Progress]) -> Iterator[str]:
    for key in progress.keys() - plan.keys():
        yield f"the journal has a sequence {key:016x} that is not in the plan"


def _without_end(plan: Mapping[int, Row], progress: Mapping[int, Progress]) -> Iterator[str]:
    for key, row in plan.items():
        if key not in progress or not progress[key].is_final:
            yield f"{row['request_id']} choice {row['choice_index']}: planned, and without an end in the journal"


def _differences(rows: list[Row], plan: Mapping[int, Row], progress: Mapping[int, Progress]) -> Iterator[str]:
    """Rows of the tables against the journal, a duplicate against its original; each planned choice once."""
    keys = {(row["request_id"], row["choice_index"]): key for key, row in plan.items()}
    seen: set[tuple[str, int]] = set()
    for row in rows:
        place = (row["request_id"], row["choice_index"])
        if place in seen:
            yield f"{place[0]} choice {place[1]}: twice in the tables"
        seen.add(place)
        original = (row.get("duplicate_of") or place[0], place[1])
        known = progress.get(keys.get(original, -1))
        if known is None:
            if original in keys or not row.get("error"):
                yield f"{place[0]} choice {place[1]}: in the tables, and not in the journal"
        elif row.get("output_token_ids") != (None if known.error else list(known.token_ids)):
            yield f"{place[0]} choice {place[1]}: the table's tokens are not the journal's"
    for request_id, choice in sorted(keys.keys() - seen):
        yield f"{request_id} choice {choice}: planned, and in neither table"


def _miscounts(manifest: Manifest, results: list[Row], failures: list[Row]) -> Iterator[str]:
    tokens = sum(row["output_tokens"] for row in results)
    if tokens != manifest.output_tokens:
        yield f"the results hold {tokens:,} output tokens, and the manifest says {manifest.output_tokens:,}"
    if manifest.rows != manifest.requests + manifest.rejects or manifest.requests != manifest.results + manifest.failures:
        yield f"the manifest's counts do not add up: {manifest.rows} rows, {manifest.requests} requests"
    answered = {row["request_id"] for row in results} - {row["request_id"] for row in failures}
    if len(answered) != manifest.results:
        yield f"the results hold {len(answered):,} requests, and the manifest says {manifest.results:,}"
