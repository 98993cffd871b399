"""What the doctor found, for people: a line each, and below it what to do."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tasks.doctor.finding import Finding, Fitness, State

_STYLES = {State.OK: "green", State.WARNING: "yellow", State.PROBLEM: "bold red"}


def rendered(fitness: Fitness) -> RenderableType:
    """All findings and the verdict."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in fitness.findings:
        table.add_row(Text(finding.state.value, style=_STYLES[finding.state]), finding.page, _words(finding))
    return Group(table, Text(_verdict(fitness)))


def _words(finding: Finding) -> Text:
    return Text(finding.what + (f"\n-> {finding.remedy}" if finding.remedy else ""))


def _verdict(fitness: Fitness) -> str:
    problems, warnings = (len(fitness.of(state)) for state in (State.PROBLEM, State.WARNING))
    counts = [
        f"{number} {word}{'s' * (number != 1)}" for number, word in ((problems, "problem"), (warnings, "warning")) if number
    ]
    verdict = "not fit for runs" if problems else "fit for runs"
    return f"{verdict}: {', '.join(counts)}" if counts else verdict
