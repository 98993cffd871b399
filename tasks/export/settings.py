"""What an export is asked for, checked once; a bad value raises ConfigError and names its option."""

from dataclasses import dataclass
from pathlib import Path

from tasks.core.errors import ConfigError

OPENAI, JSONL, CSV, PARQUET = "openai", "jsonl", "csv", "parquet"
FORMATS = (OPENAI, JSONL, CSV, PARQUET)
ORDERS = ("input", "any")
_BY_SUFFIX = {".jsonl": OPENAI, ".ndjson": OPENAI, ".csv": CSV, ".parquet": PARQUET, ".pq": PARQUET}


@dataclass(frozen=True, slots=True)
class Export:
    """`out` is None for stdout. Rows are joined to the input's own columns with `join`."""

    out: Path | None
    given_format: str | None = None
    given_errors: Path | None = None
    source: str | None = None
    order: str = "input"
    join: bool = False

    def __post_init__(self) -> None:
        if self.given_format is not None and self.given_format not in FORMATS:
            raise ConfigError(f"--format must be one of {', '.join(FORMATS)}, not {self.given_format!r}")
        if self.order not in ORDERS:
            raise ConfigError(f"--order must be input or any, not {self.order!r}")
        if self.join and self.format == OPENAI:
            raise ConfigError("--join puts answers beside the input's columns: choose --format jsonl, csv or parquet")
        if self.given_errors is not None and self.format != OPENAI:
            raise ConfigError(f"--errors is for --format openai; with {self.format} every row is in the one file")
        if self.errors is not None and self.errors == self.out:
            raise ConfigError("--errors and --out name the same file; the answers need one of their own")

    @property
    def format(self) -> str:
        """As asked for, or by the file's ending: .jsonl is a batch output file, unless it is to be joined."""
        if self.given_format is not None:
            return self.given_format
        by_suffix = OPENAI if self.out is None else _BY_SUFFIX.get(self.out.suffix.lower())
        if by_suffix is None:
            raise ConfigError(f"{self.out}: the ending is none of {', '.join(_BY_SUFFIX)}; name the shape with --format")
        return JSONL if self.join and by_suffix == OPENAI else by_suffix

    @property
    def in_order(self) -> bool:
        """The choices of one request stand in one line, and a row beside its input, only when they come together."""
        return self.order == "input" or self.join or self.format == OPENAI

    @property
    def errors(self) -> Path | None:
        """The file for requests without an answer; None where there is none to be told from the output's name."""
        if self.given_errors is not None or self.format != OPENAI or self.out is None:
            return self.given_errors
        return self.out.with_name(f"{self.out.stem}.errors{self.out.suffix}")
