"""Manifest: what a run is, how far it has come and what came out; the row of the `runs` view."""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

RUNNING, STOPPED, FAILED, DONE = "running", "stopped", "failed", "done"


@dataclass(frozen=True, slots=True)
class Manifest:
    """rows = requests + rejects and, when done, requests = results + failures, counted in requests.

    Token sums are over the results table, duplicates of it included; `engine_prompt_tokens` leaves them out. Near-duplicates
    are among the duplicates.
    `tokens_per_s` is output tokens by second of the last session that generated any, model loading left out.
    `resumed_tokens` were found in the journal by that session and kept, whole answers included. Times are ISO 8601, UTC.
    """

    run_id: str
    fingerprint: str
    dataset_id: str
    model: str
    dtype: str
    software: str
    logical_date: str | None
    started_at: str
    state: str = RUNNING
    ended_at: str | None = None
    error: str | None = None
    rows: int = 0
    requests: int = 0
    rejects: int = 0
    results: int = 0
    failures: int = 0
    duplicates: int = 0
    near_duplicates: int = 0
    sequences: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    engine_prompt_tokens: int = 0
    cut_at_max_tokens: int = 0
    resumed_tokens: int = 0
    tokens_per_s: float = 0.0

    @property
    def prefix_hit_rate(self) -> float:
        """Prompt tokens that came out of the prefix cache, as a share of those that went to the engine."""
        return self.cached_tokens / self.engine_prompt_tokens if self.engine_prompt_tokens else 0.0

    @property
    def exit_code(self) -> int:
        """0 when every request has its answer, 1 when some failed."""
        return 1 if self.failures else 0

    def changed(self, **values: Any) -> "Manifest":
        return replace(self, **values)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> "Manifest":
        """The manifest of a file written by this version or an older one."""
        known = {field.name for field in fields(Manifest)}
        return Manifest(**{name: value for name, value in values.items() if name in known})
