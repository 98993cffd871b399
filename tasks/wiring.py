"""Composition root: a Job in, real parts put together, the stages of the night as plain functions out.

What a stage makes lies in files, whole or not there, so that a stage that was done before is not done again. Device
modules and heavy libraries are imported inside the functions that need them.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.core.dataset import Dataset
from tasks.core.errors import DamageError, InputError, NightbatchError
from tasks.core.manifest import DONE, Manifest
from tasks.core.protocols import Tokenizer
from tasks.core.request import SamplingParams
from tasks.engine.models import resolve_encoder
from tasks.engine.supervisor import Report, Supervisor
from tasks.engine.tokenizer import ByteTokenizer, ModelTokenizer, context_length
from tasks.engine.triage import Orders
from tasks.governing import governing
from tasks.job import Job, now
from tasks.journal.replay import replay_run
from tasks.progress import Display, rate_of
from tasks.storage.atomic import read_json, replacing_dir, write_json
from tasks.storage.checksums import changed, failed_checksums, write_checksums
from tasks.storage.parquet import PLAN, Row, count_rows, read_rows
from tasks.storage.remote import redacted
from tasks.worker import WorkerSpec

if TYPE_CHECKING:
    from tasks.group.group import Predict
    from tasks.group.near import Candidate, Near

_model_tokenizer = lru_cache(maxsize=1)(ModelTokenizer)
_WORKER = [sys.executable, "-P", "-m", "tasks.worker"]
_ENGINE_ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}


@dataclass(frozen=True, slots=True)
class Shared:
    """How many requests get the answer of another one: of an exact duplicate, or of one that is near."""

    exact: int
    near: int


@dataclass(frozen=True, slots=True)
class Generation:
    """What a session of the engine gave: output tokens a second, and tokens found in the journal and kept."""

    tokens_per_s: float
    resumed_tokens: int


def ingest(job: Job, display: Display) -> Dataset:
    """Files to the requests and rejects tables, unless this very dataset is there already.

    Raises InputError when no row can be used, and NightbatchError when more were rejected than the settings allow.
    """
    dataset = read(job, display)
    if (refused := refusal(job, dataset)) is not None:
        raise refused
    return dataset


def read(job: Job, display: Display) -> Dataset:
    """The same, however few rows can be used."""
    return _known_dataset(job, display) or _ingest(job, display)


def refusal(job: Job, dataset: Dataset) -> NightbatchError | None:
    """Why no run begins with this dataset; None when one may."""
    examples = "".join(f"\n  {example}" for example in dataset.examples)
    if dataset.rows == 0:
        names = ", ".join(redacted(str(path)) for path in job.config.input.paths)
        return InputError(f"the input is empty: {names}")
    if dataset.requests == 0:
        return InputError(f"none of {dataset.rows} rows can be used:{examples}")
    allowed = job.config.input.max_reject_rate
    if dataset.reject_rate > allowed:
        share = f"{dataset.rejects} of {dataset.rows} rows were rejected"
        return NightbatchError(f"{share}, and --max-reject-rate allows {allowed:.0%}:{examples}")
    return None


def _known_dataset(job: Job, display: Display) -> Dataset | None:
    """The dataset, where it is there and as it was written; a damaged one is noted, and made anew by the caller."""
    try:
        if (found := read_json(job.layout.dataset_manifest(job.dataset_id))) is None:
            return None
        dataset = Dataset.from_dict(found)
        problem = next(filter(None, (changed(path, wanted) for path, wanted in dataset.sums)), None)
    except DamageError as error:
        problem = str(error)
    if problem is None:
        return dataset
    display.note(f"{problem}: read again from its input")
    return None


def _ingest(job: Job, display: Display) -> Dataset:
    from tasks.ingest.ingest import ingest as ingest_files
    from tasks.ingest.shapes.validate import Validator

    total = sum(file.path.stat().st_size for file, _ in job.files)
    validators = {
        name: Validator(of.rows, of.sampling, job.served_names, job.model.name, of.priority, of.deadline)
        for name, of in job.sources.items()
    }
    return ingest_files(
        job.files,
        validators.__getitem__,
        open_tokenizer(job),
        job.layout,
        tokens=job.tokens,
        dataset_id=job.dataset_id,
        ds=(job.config.logical_date or datetime.now(UTC).date()).isoformat(),
        on_progress=lambda rows, size: display.reading(rows, size, total),
    )


def _is_made(table: Path, display: Display) -> bool:
    """Whether a table of the run is there as it was written; a damaged one is noted, and made anew by the caller."""
    if not table.parent.exists():
        return False
    problem = next(failed_checksums(table.parent), None)
    if problem is not None:
        display.note(f"{problem}: made anew")
    return problem is None


def group(job: Job, dataset: Dataset, display: Display) -> Shared:
    """The groups table: a partition of the dataset's requests, duplicates named. Their numbers."""
    if not _is_made(job.run.groups, display):
        _group(job, dataset, display)
    copies = [row for row in read_rows(job.run.groups, ["duplicate_of", "similarity"]) if row["duplicate_of"] is not None]
    near = sum(row["similarity"] is not None for row in copies)
    return Shared(len(copies) - near, near)


def _group(job: Job, dataset: Dataset, display: Display) -> None:
    from tasks.group.group import group as group_requests

    near = partial(_find_near, job, dataset) if job.config.group.near_duplicates is not None else None
    with replacing_dir(job.run.groups.parent) as folder:
        group_requests(
            dataset.request_paths,
            folder / job.run.groups.name,
            folder / job.run.prompts.name,
            job.config.group,
            partial(_urgency, job),
            find_near=near,
            predict=_lengths(job),
            on_rows=lambda rows: display.grouping(rows, dataset.requests),
        )
        write_checksums(folder)


def _lengths(job: Job) -> "Predict | None":
    """What tells the lengths of answers; None when no earlier run of the model can teach them."""
    from tasks.group.predicted import predicted
    from tasks.group.static import open_static_encoder
    from tasks.storage.history import read_answers

    answers = read_answers(job.layout, job.model.name, job.config.group.max_learnt_answers, without=job.run.run_id)
    if answers is None:
        return None
    folder, vocabulary = None if job.is_echo else job.model.path, open_tokenizer(job).vocab_size
    return lambda arranged, prompts: predicted(arranged, prompts, answers, partial(open_static_encoder, folder, vocabulary))


def _urgency(job: Job, source: str) -> tuple[int, float]:
    return job.sources[source].urgency


def _find_near(job: Job, dataset: Dataset, source: str, ids: frozenset[str]) -> dict[str, "Near"]:
    from tasks.group.near import find_near_duplicates
    from tasks.group.semantic import SentenceEncoder

    threshold, encoder = job.config.group.near_duplicates or 1.0, job.config.group.encoder
    members = sorted(
        (one for one in _candidates(job, dataset, source) if one.request_id in ids), key=lambda one: one.request_id
    )
    return find_near_duplicates(members, lambda: SentenceEncoder(resolve_encoder(encoder).path), threshold)


def _candidates(job: Job, dataset: Dataset, source: str) -> Iterator["Candidate"]:
    """A source's requests, each with what tells it from others; other sources' parts are not read."""
    from tasks.group.near import Candidate, context_of

    folder = job.layout.requests_part(dataset.ds, source, "part").parent.name  # parts of earlier days are used again
    paths = [path for path in dataset.request_paths if path.parent.name == folder]
    for row in read_rows(paths, ["request_id", "source", "text", "n", "sampling", "messages", "tools"]):
        if row["source"] == source:
            context = context_of(row.pop("messages"), row.pop("tools"))
            yield Candidate(context=context, **{**row, "sampling": SamplingParams.from_json(row["sampling"])})


def plan(job: Job, dataset: Dataset, display: Display) -> int:
    """The plan table: every sequence of the night in order. Their number."""
    if not _is_made(job.run.plan, display):
        from tasks.group.group import ranks
        from tasks.plan.make import mix, sequences, write_plan
        from tasks.storage.planned import Labels, read_groups
        from tasks.storage.prompts import PromptFile

        groups = read_groups(job.run.groups)
        urgency = ranks(groups.sources, partial(_urgency, job))
        in_flight, blend = job.config.engine.max_num_seqs or 64, job.config.group.blend
        planned = sequences(groups, job.config.plan, urgency, in_flight, blend=blend)
        with PromptFile(job.run.prompts) as prompts:
            labels = Labels(prompts)
        with replacing_dir(job.run.plan.parent) as folder:
            write_plan(folder / job.run.plan.name, groups, labels, planned, lambda source: job.sources[source].sampling.seed)
            write_json(folder / job.run.mix.name, mix(groups, planned, in_flight))
            write_checksums(folder)
    return count_rows(job.run.plan)


class _Session:
    """What the engine's lives of one session report: the tokens that the first one found, and the fullest life."""

    def __init__(self) -> None:
        self.found_tokens: int | None = None
        self.fullest: Report = {}

    def hear(self, report: Report) -> None:
        if report["phase"] == "loading" and self.found_tokens is None:
            self.found_tokens = int(report["found_tokens"])
        self.fullest = max(self.fullest, report, key=lambda of: int(of.get("generated_tokens", 0)))


def generate(job: Job, num_sequences: int, display: Display) -> Generation:
    """Run what is left of the plan in an engine child, under a supervisor. Raises EngineError or Stopped."""
    spec = WorkerSpec(
        run_id=job.run.run_id,
        fingerprint=job.fingerprint,
        home=str(job.run.home),
        journals=str(job.run.journals),
        model=job.model.name if job.is_echo else str(job.model.path),
        dtype=job.config.model.dtype,
        max_model_len=1 if job.is_echo else context_length(job.model.path, job.config.model.max_model_len),
        num_sequences=num_sequences,
        engine=job.config.engine,
        journal=job.config.journal,
    )

    session = _Session()

    def give_orders(orders: Orders) -> None:
        write_json(job.run.engine_orders(spec.engine_index), orders.to_dict())

    with governing(job, num_sequences, display) as governor:

        def on_report(report: Report) -> None:
            session.hear(report)
            governor.tell(report)
            _announce(report, job, display)
            if "found_finished" in report:
                display.generating({**report, "card": governor.card}, num_sequences)

        command, log = [*_WORKER, str(spec.write())], job.run.engine_log(spec.engine_index)
        supervisor = Supervisor(
            command, _environment(), log, job.config.engine, on_report, give_orders, lambda: governor.reason_to_stop
        )
        last = supervisor.run()
    kept = int(last["found_finished_tokens"] + last.get("resumed_tokens", 0))  # of this session's own lives as well
    return Generation(rate_of(session.fullest), min(kept, session.found_tokens or 0))


def _environment() -> dict[str, str]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    defaults = {"OMP_NUM_THREADS": str(cores), "VLLM_LOGGING_LEVEL": "WARNING", "DO_NOT_TRACK": "1"}
    return defaults | os.environ | _ENGINE_ENVIRONMENT


def _announce(report: Report, job: Job, display: Display) -> None:
    match report["phase"]:
        case "loading":
            if kept := report["found_tokens"]:
                display.note(
                    f"resuming: {kept:,} tokens found in the journal, {report['found_finished']:,} answers complete"
                )
            display.stage("starting the engine")
        case "damage":
            word = "has a torn tail, as a kill leaves it" if report["is_torn_tail"] else "is damaged"
            display.note(f"the journal {word}: {report['reason']}; what it held there is generated again")
        case "restarting":
            display.note(f"engine {report['reason']}, starting it again; its last words: {report['last_words']}")
        case "suspects":
            those = _requests(len(report["keys"]))
            display.note(f"two deaths with the same {those} in flight: held back until the rest is done")
        case "trial" | "pool":
            those, others = _requests(len(report["keys"])), len(report["held"])
            display.note(
                f"running {those} of those held back and nothing else" + (f"; {others} more wait" if others else "")
            )
        case "probe":
            display.note("running a request that was answered before, to see whether the engine works")
        case "isolated":
            display.note(f"request {_name(report['key'], job)} isolated: {report['reason']}")


def _requests(number: int) -> str:
    return "1 request" if number == 1 else f"{number} requests"


def _name(key: int, job: Job) -> str:
    """The request of a sequence, as the tables have it."""
    rows = read_rows(job.run.plan, ["key", "request_id", "choice_index"])
    return next((f"{row['request_id']} (choice {row['choice_index']})" for row in rows if row["key"] == key), f"{key:016x}")


def collect(job: Job, dataset: Dataset, generation: Generation) -> Manifest:
    """The results and failures tables, and the manifest that says the run is done."""
    from tasks.collect.collect import collect as collect_run

    known = replay_run(job.run.journals, job.fingerprint)
    planned: dict[str, list[Row]] = {}
    for row in read_rows(job.run.plan, [name for name in PLAN.names if name != "prompt"]):
        planned.setdefault(row["request_id"], []).append(row)
    copies = [row for row in read_rows(job.run.groups, ["request_id", "duplicate_of", "similarity"]) if row["duplicate_of"]]
    collected = collect_run(
        read_rows(dataset.request_paths, ["request_id", "custom_id", "source", "file", "line", "n"]),
        planned,
        {row["request_id"]: row["duplicate_of"] for row in copies},
        {row["request_id"]: row["similarity"] for row in copies if row["similarity"] is not None},
        known.progress,
        open_tokenizer(job),
        job.run,
        job.model.name,
    )
    counts = {name: getattr(collected, name) for name in collected.__slots__}
    manifest = job.manifest() or job.begin()
    return job.record(
        manifest.changed(
            state=DONE,
            ended_at=now(),
            rows=dataset.rows,
            rejects=dataset.rejects,
            sequences=count_rows(job.run.plan),
            tokens_per_s=generation.tokens_per_s,
            resumed_tokens=generation.resumed_tokens,
            **counts,
        )
    )


def query(job: Job) -> Path:
    """The DuckDB database with its views; its path."""
    from tasks.query.views import build_database

    return build_database(job.layout)


def open_tokenizer(job: Job) -> Tokenizer:
    """The tokenizer of the job's model; ingest and collect share it."""
    given = job.config.model.max_model_len
    return ByteTokenizer(given) if job.is_echo else _model_tokenizer(job.model.path, given)
