"""Dataset: what ingest leaves behind, by reference: counts and the paths of its Parquet parts."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Dataset:
    """rows = requests + rejects, always. `examples` are the first few rejects, for people."""

    dataset_id: str
    ds: str
    files: int
    rows: int
    requests: int
    reject_reasons: dict[str, int]
    examples: tuple[str, ...]
    request_parts: tuple[str, ...]
    reject_parts: tuple[str, ...]

    @property
    def rejects(self) -> int:
        return sum(self.reject_reasons.values())

    @property
    def reject_rate(self) -> float:
        return self.rejects / self.rows if self.rows else 0.0

    @property
    def request_paths(self) -> list[Path]:
        return [Path(part) for part in self.request_parts]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> "Dataset":
        """The dataset of a manifest written by `to_dict`."""
        lists = {name: tuple(values[name]) for name in ("examples", "request_parts", "reject_parts")}
        return Dataset(**{**values, **lists})
