"""Verbs that work on input files: run, ingest, plan, nightly."""

import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.verbs.shared import Json, print_json
from tasks.options import Answers, Engine, Groups, Places, Power, Rows, config_of, takes

if TYPE_CHECKING:
    from tasks.night import Night


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
        print_json(dataset.counts)
    else:
        print_dataset(dataset)
    refusal = wiring.refusal(job, dataset)
    if refusal is None:
        return 0
    sys.stderr.write(f"nightbatch: {refusal}\n")
    return refusal.exit_code


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
    price: Annotated[
        float | None,
        typer.Option("--price-per-kwh", min=0, help="Also say what its energy costs, where power has been measured."),
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
        found = forecast(config_of(files, rows, places, answers, engine, groups), display, price_per_kwh=price)
    if picture is not None:
        plot(found, picture)
    if as_json:
        print_json(found.to_dict())
    else:
        from tasks.forecast.report import rendered

        print_all(rendered(found))
    return 0 if found.refusal is None else 1


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


def _conclude(night: "Night", as_json: bool) -> int:
    from tasks.report import print_night

    if as_json:
        print_json(night.to_dict())
    else:
        print_night(night)
    return night.manifest.exit_code
