"""Dataset: what ingest leaves behind, by reference: counts and the paths of its Parquet parts."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file that was read: its source, its name within the source, where it lay, and the BLAKE2b of its bytes.

    Of what is no local file the path is that of its copy, and the origin says what it is a copy of; the format is what was
    found out where the name does not say it.
    """

    source: str
    name: str
    path: str
    digest: str
    origin: str | None = None
    format: str | None = None


@dataclass(frozen=True, slots=True)
class Dataset:
    """rows = requests + rejects, always. `examples` are the first few rejects, for people; `truncated` is the number of
    requests whose prompts were cut to fit the model's context."""

    dataset_id: str
    ds: str
    files: int
    rows: int
    requests: int
    reject_reasons: dict[str, int]
    examples: tuple[str, ...]
    request_parts: tuple[str, ...]
    reject_parts: tuple[str, ...]
    inputs: tuple[InputFile, ...] = ()
    rows_of: dict[str, dict[str, Any]] = field(default_factory=dict)
    """How each source's rows were read, as the fields of RowConfig."""
    truncated: int = 0
    checksums: tuple[str, ...] = ()
    """SHA-256 of the request parts, then of the reject parts."""

    @property
    def rejects(self) -> int:
        return sum(self.reject_reasons.values())

    @property
    def reject_rate(self) -> float:
        return self.rejects / self.rows if self.rows else 0.0

    @property
    def request_paths(self) -> list[Path]:
        return [Path(part) for part in self.request_parts]

    @property
    def sums(self) -> list[tuple[Path, str]]:
        """Each part with the checksum that it must have; one without any is given one that it cannot have."""
        parts = [Path(part) for part in (*self.request_parts, *self.reject_parts)]
        return [(part, self.checksums[i] if i < len(self.checksums) else "") for i, part in enumerate(parts)]

    @property
    def counts(self) -> dict[str, Any]:
        """For `--json`: what was counted, and the name to look the rows up by."""
        names = ("dataset_id", "files", "rows", "requests", "rejects", "reject_reasons", "truncated")
        return {name: getattr(self, name) for name in names}

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> "Dataset":
        """The dataset of a manifest written by `to_dict`."""
        lists = {name: tuple(values.get(name, ())) for name in ("examples", "request_parts", "reject_parts", "checksums")}
        inputs = tuple(InputFile(**file) for file in values.get("inputs", ()))
        rows_of = {
            source: {key: tuple(value) if isinstance(value, list) else value for key, value in rows.items()}
            for source, rows in values.get("rows_of", {}).items()
        }
        return Dataset(**{**values, **lists, "inputs": inputs, "rows_of": rows_of})
