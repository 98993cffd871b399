"""Verbs that look at runs: status, check, export, sql, telemetry."""

import math
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.verbs.shared import Checkpoints, Data, Json, existing, print_json
from tasks.core.config import PowerConfig
from tasks.core.errors import ConfigError
from tasks.storage.layout import Layout


def status(
    run_id: Annotated[str | None, typer.Argument(help="A run, or the beginning of its id; all runs if unset.")] = None,
    data: Data = Path("data"),
    checkpoints: Checkpoints = Path("checkpoints"),
    as_json: Json = False,
) -> int:
    """Say how far each run has come, from its manifest and its journal."""
    from tasks.report import print_status
    from tasks.status import run_statuses

    found = run_statuses(Layout(existing(data), checkpoints), run_id)
    if as_json:
        print_json([status.to_dict() for status in found])
    else:
        print_status(found)
    return 0


def check(
    run_id: Annotated[str, typer.Argument(help="The run, or the beginning of its id.")],
    data: Data = Path("data"),
    checkpoints: Checkpoints = Path("checkpoints"),
    as_json: Json = False,
) -> int:
    """Prove that a run's journal, plan, results and counts agree; changes nothing. Exit code 1 when they do not."""
    from tasks.check import check_run
    from tasks.report import print_check

    report = check_run(Layout(existing(data), checkpoints), run_id)
    if as_json:
        print_json(report.to_dict())
    else:
        print_check(report)
    return report.exit_code


def export(
    run_id: Annotated[str, typer.Argument(help="The run, or the beginning of its id.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write; - for stdout.")],
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="openai (a batch output file and error file), jsonl, csv or parquet (a row a choice); by the file's "
            "ending if unset, .jsonl being openai.",
        ),
    ] = None,
    order: Annotated[str, typer.Option(help="input, or any, which is faster for jsonl, csv and parquet.")] = "input",
    source: Annotated[str | None, typer.Option(help="Only the rows of this source.")] = None,
    join: Annotated[bool, typer.Option("--join", help="Put the answers beside the input's own columns.")] = False,
    errors: Annotated[
        Path | None, typer.Option(help="Where openai's error file goes; beside the output, as OUT.errors.jsonl, if unset.")
    ] = None,
    data: Data = Path("data"),
    checkpoints: Checkpoints = Path("checkpoints"),
    as_json: Json = False,
) -> int:
    """Write a finished run's answers to a file; every input row is in it, or in the error file.

    Example: nightbatch export adhoc-1f3a -o answers.jsonl
    """
    from tasks.delivery import deliver
    from tasks.export.settings import Export
    from tasks.progress import terminal_display
    from tasks.report import print_delivery

    to_stdout = str(out) == "-"
    if to_stdout and as_json:
        raise ConfigError("--json and -o - both mean stdout; choose one")
    asked = Export(None if to_stdout else out, form, errors, source, order, join)
    delivery = deliver(Layout(existing(data), checkpoints), run_id, asked, terminal_display())
    if as_json:
        print_json(delivery.to_dict())
    elif not to_stdout:
        print_delivery(delivery)
    return 0


def sql(
    statement: Annotated[str | None, typer.Argument(help="Any DuckDB statement over the views.")] = None,
    name: Annotated[str | None, typer.Option(help="One of the named queries instead; --name list shows them.")] = None,
    data: Data = Path("data"),
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array of rows on stdout.")] = False,
) -> int:
    """Query the views requests, results, rejects, failures and runs.

    Example: nightbatch sql "select source, count(*), sum(output_tokens) from results group by 1"
    """
    from tasks.query.views import named_queries, run_query
    from tasks.report import print_table

    queries = named_queries()
    if name == "list":
        print_table(["name", "query"], list(queries.items()))
        return 0
    if name is not None and name not in queries:
        raise ConfigError(f"--name is one of {', '.join(queries)}")
    statement = queries[name] if name else statement
    if statement is None or not statement.strip():
        raise ConfigError("give a statement, or --name with the name of a query")
    columns, rows = run_query(Layout(existing(data), data), statement)
    if as_json:
        print_json([dict(zip(columns, map(_json_value, row), strict=True)) for row in rows])
    else:
        print_table(columns, rows)
    return 0


def telemetry(
    run_id: Annotated[str, typer.Argument(help="The run, or the beginning of its id.")],
    picture: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="FILE", help="Draw temperature, clock, power and tokens over time: .png, .svg, .pdf."
        ),
    ] = None,
    line: Annotated[
        float, typer.Option("--max-temperature", metavar="CELSIUS", help="The line that seconds are counted above.")
    ] = PowerConfig().max_temperature_c,
    data: Data = Path("data"),
    checkpoints: Checkpoints = Path("checkpoints"),
    as_json: Json = False,
) -> int:
    """Say what a run's cards and engines went through: heat, power, energy, clocks, tokens, queue.

    Example: nightbatch telemetry adhoc-1f3a --plot night.png
    """
    from tasks.report import print_all
    from tasks.telemetry.plot import plot_telemetry
    from tasks.telemetry.report import rendered
    from tasks.telemetry.summary import summarize

    layout = Layout(existing(data), checkpoints)
    found = summarize(layout, run_id, line)
    if picture is not None:
        plot_telemetry(layout, run_id, picture, line)
    if as_json:
        print_json(found.to_dict())
    else:
        print_all(rendered(found))
    return 0


def _json_value(value: Any) -> Any:
    """A cell as JSON has it: decimals are numbers, and there is no NaN."""
    if isinstance(value, Decimal):
        value = float(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
