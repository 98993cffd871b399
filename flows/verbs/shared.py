"""What several verbs take and print."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tasks.core.errors import ConfigError

Data = Annotated[Path, typer.Option("--data", help="Root of requests, results and the DuckDB database.")]
Checkpoints = Annotated[Path, typer.Option("--checkpoints", help="Root of the token journals that a resume reads.")]
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON value on stdout.")]


def existing(data: Path) -> Path:
    if not data.is_dir():
        raise ConfigError(f"no such folder: {data}; run something first, or name the right one with --data")
    return data


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()
