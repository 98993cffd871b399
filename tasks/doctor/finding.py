"""What the doctor says: one finding a line, each with what to do about it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class State(StrEnum):
    """A warning is something that a run may get into trouble with; with a problem none can work."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `page` is what it belongs to; `remedy` says what to do; empty when all is well."""

    page: str
    state: State
    what: str
    remedy: str = ""


def ok(page: str, what: str) -> Finding:
    return Finding(page, State.OK, what)


def warning(page: str, what: str, remedy: str) -> Finding:
    return Finding(page, State.WARNING, what, remedy)


def problem(page: str, what: str, remedy: str) -> Finding:
    return Finding(page, State.PROBLEM, what, remedy)


@dataclass(frozen=True, slots=True)
class Fitness:
    """All findings, in the order of their pages."""

    findings: tuple[Finding, ...]

    def of(self, state: State) -> Sequence[Finding]:
        """Those that are so."""
        return [finding for finding in self.findings if finding.state is state]

    @property
    def exit_code(self) -> int:
        """1 when a problem keeps runs from working."""
        return 1 if self.of(State.PROBLEM) else 0

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        counts = {f"{state.value}s": len(self.of(state)) for state in (State.PROBLEM, State.WARNING)}
        return {"fit": not self.exit_code, **counts, "findings": [asdict(finding) for finding in self.findings]}
