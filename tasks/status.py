"""How far each run has come, from its manifest, its lock and its journal; reads only."""

from dataclasses import asdict, dataclass
from typing import Any

from tasks.core.errors import ConfigError, DamageError
from tasks.core.manifest import DONE, RUNNING, Manifest
from tasks.journal.replay import replay_run
from tasks.storage.atomic import read_json
from tasks.storage.layout import Layout, Run
from tasks.storage.lock import holder, is_locked
from tasks.storage.parquet import count_rows

INTERRUPTED, DAMAGED = "interrupted", "damaged"


@dataclass(frozen=True, slots=True)
class RunStatus:
    """`state` is the manifest's, or "interrupted" when it says running and no process is, or "damaged" when the manifest
    itself is. Counts are of sequences."""

    manifest: Manifest
    state: str
    owner: str | None
    sequences: int
    ended: int
    journal_tokens: int

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        return {**values.pop("manifest"), **values}


def run_statuses(layout: Layout, prefix: str | None) -> list[RunStatus]:
    """All runs, or those whose id begins so, oldest first. Raises ConfigError when a named run is not there."""
    manifests = sorted(layout.runs.glob("*/manifest.json"))
    runs = [path.parent.name for path in manifests if path.parent.name.startswith(prefix or "")]
    if prefix is not None and not runs:
        raise ConfigError(f"no run {prefix!r} in {layout.runs}")
    statuses = [_status(layout.run(run_id)) for run_id in runs]
    return sorted(statuses, key=lambda status: status.manifest.started_at)


def find_run(layout: Layout, prefix: str) -> Run:
    """The one run whose id begins so. Raises ConfigError when there is none, or more than one."""
    found = sorted(path.parent.name for path in layout.runs.glob("*/manifest.json") if path.parent.name.startswith(prefix))
    if prefix in found:
        return layout.run(prefix)
    if len(found) != 1:
        which = f"{len(found)} runs begin with {prefix!r}" if found else f"no run {prefix!r}"
        raise ConfigError(f"{which} in {layout.runs}; `nightbatch status` lists them")
    return layout.run(found[0])


def state_of(run: Run, manifest: Manifest) -> str:
    """The manifest's state, unless it says running and nobody is."""
    return INTERRUPTED if manifest.state == RUNNING and not is_locked(run.lock) else manifest.state


def _status(run: Run) -> RunStatus:
    try:
        return _sound_status(run, Manifest.from_dict(read_json(run.manifest) or {}))
    except DamageError as error:
        unknown = Manifest(run.run_id, "", "", "", "", "", None, "", error=str(error))
        return RunStatus(unknown, DAMAGED, None, 0, 0, 0)


def _sound_status(run: Run, manifest: Manifest) -> RunStatus:
    planned = count_rows(run.plan) if run.plan.exists() else 0
    if manifest.state == DONE:
        return RunStatus(manifest, DONE, None, planned, planned, manifest.output_tokens)
    known, state = replay_run(run.journals, manifest.fingerprint), state_of(run, manifest)
    owner = holder(run.lock) if state == RUNNING else None
    return RunStatus(manifest, state, owner, planned, known.num_final, known.num_tokens)
