"""How far each run has come, from its manifest, its lock and its journal; reads only."""

from dataclasses import asdict, dataclass
from typing import Any

from tasks.core.errors import ConfigError
from tasks.core.manifest import DONE, RUNNING, Manifest
from tasks.journal.replay import replay_run
from tasks.storage.atomic import read_json
from tasks.storage.layout import Layout, Run
from tasks.storage.lock import holder, is_locked
from tasks.storage.parquet import count_rows

INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class RunStatus:
    """`state` is the manifest's, or "interrupted" when it says running and no process is. Counts are of sequences."""

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


def _status(run: Run) -> RunStatus:
    manifest = Manifest.from_dict(read_json(run.manifest) or {})
    planned = count_rows(run.plan) if run.plan.exists() else 0
    if manifest.state == DONE:
        return RunStatus(manifest, DONE, None, planned, planned, manifest.output_tokens)
    owned = is_locked(run.lock)
    known = replay_run(run.journals, manifest.fingerprint)
    state = INTERRUPTED if manifest.state == RUNNING and not owned else manifest.state
    return RunStatus(manifest, state, holder(run.lock) if owned else None, planned, known.num_final, known.num_tokens)
