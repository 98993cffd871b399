"""Tables for people, on stdout."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from tasks.check import CheckReport
from tasks.core.dataset import Dataset
from tasks.core.manifest import Manifest
from tasks.night import Night
from tasks.status import RunStatus

if TYPE_CHECKING:
    from tasks.delivery import Delivery

_PIPE_WIDTH = 160


def _console() -> Console:
    """As wide as the terminal; into a file or a pipe, wide enough for most tables."""
    console = Console()
    return console if console.is_terminal else Console(width=_PIPE_WIDTH)


def print_all(what: RenderableType) -> None:
    """Something that rich can draw."""
    _console().print(what)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> None:
    """A query's answer; numbers to the right, NULL as in SQL."""
    table = Table(title=title, title_justify="left")
    for place, column in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[place], int | float | None) for row in rows)
        table.add_column(Text(column), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*[Text("NULL" if cell is None else str(cell)) for cell in row])
    _console().print(table)


def print_night(night: Night) -> None:
    """What a run did: counts, speed, reuse, and where to look."""
    manifest = night.manifest
    reuse = f"{manifest.prefix_hit_rate:.1%} of prompt tokens from the prefix cache"
    rows = [
        ("rows in", f"{manifest.rows:,}"),
        ("rejected", f"{manifest.rejects:,}"),
        ("answered", f"{manifest.results:,}{_shared(manifest)}"),
        ("failed", f"{manifest.failures:,}"),
        ("tokens", f"{manifest.prompt_tokens:,} in, {manifest.output_tokens:,} out"),
        ("cut at max_tokens", f"{manifest.cut_at_max_tokens:,}"),
        ("speed", f"{manifest.tokens_per_s:,.0f} output tokens/s"),
        ("prefix hit rate", reuse),
        ("kept from before", f"{manifest.resumed_tokens:,} tokens"),
        ("results", str(night.results)),
        ("database", str(night.database)),
    ]
    heading = "nothing left to do" if night.was_done else "done"
    table = Table(title=f"run {manifest.run_id}: {heading}", title_justify="left", show_header=False)
    for name, value in rows:
        table.add_row(Text(name), Text(value, overflow="fold"))
    _console().print(table)


def _shared(manifest: Manifest) -> str:
    """How many requests got the answer of another one, and why."""
    exact, near = manifest.duplicates - manifest.near_duplicates, manifest.near_duplicates
    return f", {exact:,} as exact duplicates" * bool(exact) + f", {near:,} as near-duplicates" * bool(near)


def print_status(statuses: Sequence[RunStatus]) -> None:
    """One line a run."""
    columns = ("run", "state", "answered", "tokens", "model", "started", "note")
    rows = [
        (
            status.manifest.run_id,
            status.state,
            f"{status.ended:,} of {status.sequences:,}",
            f"{status.journal_tokens:,}",
            status.manifest.model,
            status.manifest.started_at,
            status.owner or status.manifest.error or "",
        )
        for status in statuses
    ]
    print_table(columns, rows, title=None if rows else "no runs yet")


def print_dataset(dataset: Dataset) -> None:
    """What was read, and the first rows that were rejected."""
    console = _console()
    counts = f"{dataset.rows:,} rows of {dataset.files:,} files: {dataset.requests:,} requests, {dataset.rejects:,} rejected"
    console.print(f"dataset {dataset.dataset_id}: {counts}", highlight=False)
    for reason, number in sorted(dataset.reject_reasons.items()):
        console.print(f"  {number:,} x {reason}", highlight=False, markup=False)
    for example in dataset.examples:
        console.print(f"rejected: {example}", highlight=False, markup=False)


def print_check(report: CheckReport) -> None:
    """What was compared and found, in lines."""
    console = _console()
    console.print(
        f"run {report.run_id} ({report.state}): {report.ended:,} of {report.sequences:,} sequences ended, "
        f"{report.journal_tokens:,} tokens in the journal, {report.rows_compared:,} table rows compared",
        highlight=False,
    )
    for note in report.notes:
        console.print(f"note: {note}", highlight=False, markup=False)
    for problem in report.problems:
        console.print(f"PROBLEM: {problem}", highlight=False, markup=False)
    console.print(f"{len(report.problems)} problems" if report.problems else "healthy", highlight=False)


def print_delivery(delivery: "Delivery") -> None:
    """What was written, and where to."""
    counts = f"{delivery.answered:,} answered, {delivery.failed:,} failed, {delivery.rejected:,} rejected"
    console = _console()
    console.print(f"{delivery.path}: run {delivery.run_id}, {delivery.rows:,} rows: {counts}", highlight=False, markup=False)
    if delivery.errors_path:
        console.print(f"{delivery.errors_path}: those without an answer", highlight=False, markup=False)
