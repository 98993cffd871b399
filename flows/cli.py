"""The `nightbatch` command: thin; every verb is a flow or a query. Heavy imports wait until a verb needs them.

Exit codes: 0 all good, 1 some rows failed or too many were rejected, 2 a mistake of the user's, 75 put down and resumable.
Results go to stdout, everything else to stderr.
"""

import json
import math
import signal
import sys
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasks.core.errors import ConfigError, NightbatchError, in_words
from tasks.interrupt import STOPPING, Interrupted, Interrupter
from tasks.options import Answers, Engine, Groups, Places, Power, Rows, config_of, takes
from tasks.storage.layout import Layout

if TYPE_CHECKING:
    from tasks.night import Night

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Offline LLM batch inference: files in, answers in Parquet out, resumable to the token, queried in DuckDB.",
)

_RESUMABLE = ("run", "nightly")
_USERS_MISTAKES = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError, FileExistsError)

Data = Annotated[Path, typer.Option("--data", help="Root of requests, results and the DuckDB database.")]
Checkpoints = Annotated[Path, typer.Option("--checkpoints", help="Root of the token journals that a resume reads.")]
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON value on stdout.")]


@app.command()
@takes(rows=Rows, answers=Answers, groups=Groups, engine=Engine, power=Power, places=Places)
def run(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES...",
            help="Files, folders (one of folders is an inbox of sources), patterns, URLs, or - for stdin.",
        ),
    ],
    rows: Rows,
    answers: Answers,
    groups: Groups,
    engine: Engine,
    power: Power,
    places: Places,
    as_json: Json = False,
) -> int:
    """Answer every row of these files, now, in this process and without a server.

    Reads OpenAI and Anthropic batch files, and JSON, CSV, Parquet or text with prompts, chats or, by a template, any
    columns: docs/input.md. Run the same command again to go on after an interruption; when all is done it does nothing.

    Examples: nightbatch run requests.jsonl --max-tokens 128;
    nightbatch run tickets.csv --prompt-template "Subject: {{ subject }} / {{ body }}"
    """
    from tasks import wiring
    from tasks.night import run_night
    from tasks.progress import terminal_display

    config = config_of(files, rows, places, answers, engine, groups, power)
    return _conclude(run_night(config, wiring, terminal_display()), as_json)


@app.command()
@takes(rows=Rows, answers=Answers, places=Places)
def ingest(
    files: Annotated[list[str], typer.Argument(metavar="FILES...", help="Files, folders, patterns or URLs, as for run.")],
    rows: Rows,
    answers: Answers,
    places: Places,
    as_json: Json = False,
) -> int:
    """Read these files and say what is in them: the first stage of run, which finds its work done later.

    Example: nightbatch ingest tickets.csv --prompt-column body
    """
    from tasks import wiring
    from tasks.job import open_job
    from tasks.progress import terminal_display
    from tasks.report import print_dataset

    with terminal_display() as display:
        job = open_job(config_of(files, rows, places, answers), display.note)
        dataset = wiring.read(job, display)
        wiring.query(job)
    if as_json:
        _print_json(dataset.counts)
    else:
        print_dataset(dataset)
    refusal = wiring.refusal(job, dataset)
    if refusal is None:
        return 0
    sys.stderr.write(f"nightbatch: {refusal}\n")
    return refusal.exit_code


@app.command()
@takes(rows=Rows, answers=Answers, groups=Groups, engine=Engine, places=Places)
def plan(
    files: Annotated[list[str], typer.Argument(metavar="FILES...", help="Files, folders, patterns or URLs, as for run.")],
    rows: Rows,
    answers: Answers,
    groups: Groups,
    engine: Engine,
    places: Places,
    picture: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Also draw lengths by source and what orders reach: .png, .svg, .pdf."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Say what a run of these files would be, without an engine: rejects, lengths, what prompts share, time.

    Reads, groups and plans as run would, and sends the plan, the input's own order and a plain sort through a simulated
    engine, beside the least that any order can reach.

    Examples: nightbatch plan requests.jsonl --max-tokens 128; nightbatch plan data/inbox --plot night.png
    """
    from tasks.forecast.forecast import forecast
    from tasks.forecast.plot import check_plot, plot
    from tasks.progress import terminal_display
    from tasks.report import print_all

    if picture is not None:
        check_plot(picture)
    with terminal_display() as display:
        found = forecast(config_of(files, rows, places, answers, engine, groups), display)
    if picture is not None:
        plot(found, picture)
    if as_json:
        _print_json(found.to_dict())
    else:
        from tasks.forecast.report import rendered

        print_all(rendered(found))
    return 0 if found.refusal is None else 1


@app.command()
@takes(rows=Rows, answers=Answers, groups=Groups, engine=Engine, power=Power, places=Places)
def nightly(
    rows: Rows,
    answers: Answers,
    groups: Groups,
    engine: Engine,
    power: Power,
    places: Places,
    inbox: Annotated[
        str, typer.Option(help="Folder with one sub-folder of input files for each source; also a URL.")
    ] = "data/inbox",
    logical_date: Annotated[
        datetime | None, typer.Option("--date", formats=["%Y-%m-%d"], help="The night that is meant; undated if unset.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Run the nightly flow over an inbox, in this process and without a server.

    The scheduled way is the deployment nightly/nightly; see the README.
    """
    from tasks import wiring
    from tasks.night import run_night
    from tasks.progress import terminal_display

    night = logical_date.date() if logical_date else None
    config = replace(config_of([inbox], rows, places, answers, engine, groups, power), logical_date=night)
    return _conclude(run_night(config, wiring, terminal_display()), as_json)


@app.command()
def status(
    run_id: Annotated[str | None, typer.Argument(help="A run, or the beginning of its id; all runs if unset.")] = None,
    data: Data = Path("data"),
    checkpoints: Checkpoints = Path("checkpoints"),
    as_json: Json = False,
) -> int:
    """Say how far each run has come, from its manifest and its journal."""
    from tasks.report import print_status
    from tasks.status import run_statuses

    found = run_statuses(Layout(_existing(data), checkpoints), run_id)
    if as_json:
        _print_json([status.to_dict() for status in found])
    else:
        print_status(found)
    return 0


@app.command()
def check(
    run_id: Annotated[str, typer.Argument(help="The run, or the beginning of its id.")],
    data: Data = Path("data"),
    checkpoints: Checkpoints = Path("checkpoints"),
    as_json: Json = False,
) -> int:
    """Prove that a run's journal, plan, results and counts agree; changes nothing. Exit code 1 when they do not."""
    from tasks.check import check_run
    from tasks.report import print_check

    report = check_run(Layout(_existing(data), checkpoints), run_id)
    if as_json:
        _print_json(report.to_dict())
    else:
        print_check(report)
    return report.exit_code


@app.command()
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
    delivery = deliver(Layout(_existing(data), checkpoints), run_id, asked, terminal_display())
    if as_json:
        _print_json(delivery.to_dict())
    elif not to_stdout:
        print_delivery(delivery)
    return 0


@app.command()
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
    columns, rows = run_query(Layout(_existing(data), data), statement)
    if as_json:
        _print_json([dict(zip(columns, map(_json_value, row), strict=True)) for row in rows])
    else:
        print_table(columns, rows)
    return 0


def _existing(data: Path) -> Path:
    if not data.is_dir():
        raise ConfigError(f"no such folder: {data}; run something first, or name the right one with --data")
    return data


def _json_value(value: Any) -> Any:
    """A cell as JSON has it: decimals are numbers, and there is no NaN."""
    if isinstance(value, Decimal):
        value = float(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _conclude(night: "Night", as_json: bool) -> int:
    from tasks.report import print_night

    if as_json:
        _print_json(night.to_dict())
    else:
        print_night(night)
    return night.manifest.exit_code


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Entry point: turns every outcome into one clear line and an exit code."""
    Interrupter().install()
    usage_error = typer.BadParameter.__base__ or typer.BadParameter
    try:
        arguments = sys.argv[1:] or ["--help"]
        if arguments == ["--version"]:
            sys.stdout.write(f"nightbatch {version('nightbatch')}\n")
            return 0
        return int(typer.main.get_command(app).main(arguments, standalone_mode=False) or 0)
    except NightbatchError as error:
        return _say(str(error), error.exit_code)
    except Interrupted:
        for number in STOPPING:  # on its way out Python gives them their default, and one more would change the exit code
            signal.signal(number, signal.SIG_IGN)
        if sys.argv[1:2] and sys.argv[1] not in _RESUMABLE:
            return _say("stopped", 75)
        return _say("put down; everything generated is kept, and the same command goes on from there", 75)
    except BrokenPipeError:
        return 0
    except OSError as error:
        return _say(in_words(error), 2 if isinstance(error, _USERS_MISTAKES) else 1)
    except Exception as error:
        if not isinstance(error, usage_error):
            raise
        return _say(f"{error.format_message().rstrip('.')}; see nightbatch --help", 2)  # type: ignore[attr-defined]


def _say(message: str, exit_code: int) -> int:
    """The one line of an outcome that is no result; with --json as an object too, so that stdout is never empty."""
    sys.stderr.write(f"nightbatch: {message}\n")
    if "--json" in sys.argv:
        _print_json({"error": message, "exit_code": exit_code})
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
