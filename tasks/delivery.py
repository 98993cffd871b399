"""A finished run to the files that `nightbatch export` was asked for.

Every input row is in exactly one of the files, or nothing appears: what was written is counted against the manifest.
Memory is bounded by a batch of rows, whatever the run's size.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tasks.core.dataset import Dataset
from tasks.core.errors import ConfigError, DamageError, LockedError, NightbatchError
from tasks.core.manifest import DONE, RUNNING, Manifest
from tasks.core.protocols import Tokenizer
from tasks.engine.tokenizer import ByteTokenizer, ModelTokenizer
from tasks.export import openai
from tasks.export.columns import COLUMNS, Row
from tasks.export.logprobs import TokenText, token_name, token_text
from tasks.export.settings import OPENAI, Export
from tasks.export.tables import write_joined, write_rows
from tasks.export.writers import JsonLines
from tasks.ingest.reading.originals import originals
from tasks.job import ECHO
from tasks.progress import Display
from tasks.query.outcomes import Counts, Outcomes
from tasks.status import find_run, state_of
from tasks.storage.atomic import read_json, remove_files
from tasks.storage.checksums import changed, failed_checksums
from tasks.storage.layout import Layout, Run
from tasks.storage.outlet import is_stream, outlet

_SHOWN_EVERY = 1000


@dataclass(frozen=True, slots=True)
class Delivery:
    """What was written: counts of input rows by what became of them, and the files. `path` is None for stdout."""

    run_id: str
    format: str
    rows: int
    answered: int
    failed: int
    rejected: int
    path: str | None
    errors_path: str | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def deliver(layout: Layout, prefix: str, export: Export, display: Display) -> Delivery:
    """Write the answers of the run whose id begins so. Raises NightbatchError, and then leaves all files as they were."""
    run = find_run(layout, prefix)
    manifest = _finished(run)
    with display, ExitStack() as stack:
        display.stage("checking")
        dataset = _sound(layout, run, manifest)
        _check_places(export, dataset)
        scratch = stack.enter_context(TemporaryDirectory(prefix=".nightbatch-", dir=_scratch(export)))
        outcomes = Outcomes(run, dataset, export.source, Path(scratch))
        counts = outcomes.counts()
        _check_counts(counts, export, manifest, dataset)
        errors = None
        if export.format == OPENAI:
            errors = _write_batch(export, outcomes, counts, manifest, run, display)
        else:
            _write_table(export, outcomes, counts, dataset, display)
    return Delivery(
        run_id=run.run_id,
        format=export.format,
        rows=counts.rows,
        answered=counts.requests - counts.failed,
        failed=counts.failed,
        rejected=counts.rejects,
        path=str(export.out) if export.out else None,
        errors_path=str(errors) if errors else None,
    )


def _finished(run: Run) -> Manifest:
    manifest = Manifest.from_dict(read_json(run.manifest) or {})
    state = state_of(run, manifest)
    if state == RUNNING:
        raise LockedError(f"run {run.run_id} is still running; export it when it is done (`nightbatch status {run.run_id}`)")
    if state != DONE:
        how = "the command that began it goes on from where it is; export when it is done"
        raise NightbatchError(f"run {run.run_id} is {state}, not done: {how}")
    return manifest


def _scratch(export: Export) -> Path | None:
    """Where there is room for the output there is room for putting its rows in order."""
    if export.out is None or is_stream(export.out):
        return None
    return export.out.parent


def _sound(layout: Layout, run: Run, manifest: Manifest) -> Dataset:
    """The run's dataset. Raises DamageError when one of the tables is not as it was written."""
    path = layout.dataset_manifest(manifest.dataset_id)
    if (found := read_json(path)) is None:
        raise DamageError(f"{path} is missing: the run's requests are not there any more")
    dataset = Dataset.from_dict(found)
    problems = [*failed_checksums(run.results), *failed_checksums(run.failures)]
    problems += filter(None, (changed(part, wanted) for part, wanted in dataset.sums))
    if problems:
        raise DamageError(f"{problems[0]}; the command that began run {run.run_id} makes it again")
    return dataset


def _check_places(export: Export, dataset: Dataset) -> None:
    """Raises ConfigError where the output would take the place of something that it must not."""
    for path in filter(None, (export.out, export.errors)):
        if not path.parent.is_dir():
            raise ConfigError(f"no such folder: {path.parent}; make it first, or name a file in another")
        if path.is_dir():
            raise ConfigError(f"{path} is a folder; name a file in it")
        for file in dataset.inputs:
            if path.exists() and Path(file.path).exists() and path.samefile(file.path):
                raise ConfigError(f"{path} is an input file of this run; name another file with --out")


def _check_counts(counts: Counts, export: Export, manifest: Manifest, dataset: Dataset) -> None:
    """The tables against the manifest, and whether there is a place for what has no answer."""
    found = (counts.requests, counts.failed, counts.rejects)
    if export.source is None and found != (manifest.requests, manifest.failures, manifest.rejects):
        raise DamageError(f"the tables of run {manifest.run_id} do not have the manifest's counts: run `nightbatch check`")
    if export.source is not None and not counts.rows:
        sources = sorted({file.source for file in dataset.inputs})
        raise ConfigError(f"no rows of source {export.source!r} in run {manifest.run_id}; it has {', '.join(sources)}")
    if export.format == OPENAI and counts.errors and export.errors is None:
        raise ConfigError(f"{counts.errors:,} rows have no answer: name a file for them with --errors")


def _write_batch(
    export: Export, outcomes: Outcomes, counts: Counts, manifest: Manifest, run: Run, display: Display
) -> Path | None:
    """The output file and, where there are errors, the error file; its path. One of an earlier export is removed."""
    lines = openai.BatchFile.of(manifest, _texts(run, display))
    rows = _counted(outcomes.asked_rows(openai.SELECTED), counts, display)
    with ExitStack() as stack:
        answered = JsonLines(stack.enter_context(outlet(export.out)))
        failed = JsonLines(stack.enter_context(outlet(export.errors))) if counts.errors else answered
        num_errors = 0
        for choices in openai.by_request(rows):
            line, is_answer = lines.line(choices)
            (answered if is_answer else failed).append(line)
            num_errors += not is_answer
        if num_errors != counts.errors:
            raise DamageError(f"{num_errors} lines without an answer were written of {counts.errors}")
    if counts.errors:
        return export.errors
    if export.errors is not None and export.errors.is_file():
        remove_files([export.errors])
    return None


def _write_table(export: Export, outcomes: Outcomes, counts: Counts, dataset: Dataset, display: Display) -> None:
    files = originals(dataset, export.source) if export.join else []
    for file in files:
        file.check()
    rows = _counted(outcomes.rows(list(COLUMNS), in_order=export.in_order), counts, display)
    with outlet(export.out) as stream:
        if export.join:
            write_joined(stream, export.format, files, rows)
        else:
            write_rows(stream, export.format, rows)


def _counted(rows: Iterator[Row], counts: Counts, display: Display) -> Iterator[Row]:
    """The same rows. Raises DamageError at their end when they are not as many as there must be."""
    display.stage("putting rows in order")
    num_rows = num_choices = 0
    for row in rows:
        num_rows += not row["choice_index"]  # the first choice of a request, or a reject
        num_choices += 1
        if num_choices % _SHOWN_EVERY == 0:
            display.written(num_rows, counts.rows)
        yield row
    if (num_rows, num_choices) != (counts.rows, counts.choices):
        found = f"{num_rows} rows and {num_choices} choices"
        raise DamageError(f"the export has {found}, and {counts.rows} and {counts.choices} were expected")


def _texts(run: Run, display: Display) -> Callable[[int], TokenText]:
    """The text of one token after the other. The tokenizer is opened at the first, as most runs ask for none."""
    opened: list[Tokenizer | None] = []

    @lru_cache(maxsize=1 << 20)
    def text_of(token_id: int) -> TokenText:
        if not opened:
            opened.append(_tokenizer(run, display))
        text = opened[0].text([token_id]) if opened[0] else ""
        return token_text(text) if text else token_name(token_id)

    return text_of


def _tokenizer(run: Run, display: Display) -> Tokenizer | None:
    """The one of the run's model, where that still lies where it did; nothing is downloaded for it."""
    spec = read_json(run.engine_spec(0)) or {}
    model = str(spec.get("model", ""))
    if model.partition(":")[0] == ECHO:
        return ByteTokenizer()
    try:
        if Path(model).is_dir() and model:
            return ModelTokenizer(Path(model), spec.get("max_model_len"))
        reason = f"the model is not in {model}" if model else f"{run.engine_spec(0)} is missing"
    except ConfigError as error:
        reason = str(error)
    display.note(f"the tokens of log-probabilities are given as token_id:N, not as text: {reason}")
    return None
