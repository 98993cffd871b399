"""Verbs about the machine: doctor, power."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from flows.verbs.shared import Checkpoints, Data, Json, print_json
from tasks.core.config import ModelConfig
from tasks.storage.layout import Layout


def doctor(
    model: Annotated[str, typer.Option("--model", help="The model that is to answer.")] = ModelConfig().name,
    data: Data = Path("data"),
    checkpoints: Checkpoints = Path("checkpoints"),
    as_json: Json = False,
) -> int:
    """Say whether this machine is fit for a run, and what to do where it is not. Changes nothing, starts no engine.

    Software, model, disks, memory, processor, clock, GPU and its permissions, Prefect. Exit code 1 when a run cannot work.
    """
    from tasks.doctor.examine import examine
    from tasks.doctor.report import rendered
    from tasks.report import print_all

    found = examine(Layout(data, checkpoints), model=model)
    if as_json:
        print_json(found.to_dict())
    else:
        print_all(rendered(found))
    return found.exit_code


power = typer.Typer(rich_markup_mode=None, help="What nightbatch has set on this machine's GPUs.")


@power.callback()
def _power() -> None:
    """What nightbatch has set on this machine's GPUs."""


@power.command()
def restore(as_json: Json = False) -> int:
    """Put back clocks and power limits that a dead process left lowered. A living one keeps its own.

    Every start of a run does the same; this is for timers, for the end of a service, and for people. Exit code 1 when a
    card could not be put back.
    """
    from tasks.governor.helper import open_card
    from tasks.governor.lease import state_dir
    from tasks.governor.restore import restore_all

    done = restore_all(state_dir(), open_card)
    if as_json:
        print_json([{"uuid": one.uuid, "outcome": one.outcome.value, "text": one.text} for one in done])
    else:
        sys.stdout.write("".join(f"{one}\n" for one in done) or "nothing is left to put back\n")
    return int(any(one.failed for one in done))
