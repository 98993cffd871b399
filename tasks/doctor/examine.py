"""All pages, one after the other."""

from collections.abc import Callable, Iterable, Iterator

from tasks.core.config import GroupConfig, ModelConfig
from tasks.doctor.answering import PAGE as MODEL
from tasks.doctor.answering import models
from tasks.doctor.finding import Finding, Fitness, warning
from tasks.doctor.gpu import PAGE as GPU
from tasks.doctor.gpu import Cards, judge_cards, leases
from tasks.doctor.look import look_at_cards
from tasks.doctor.machine import CLOCK, DISK, MEMORY, PROCESSOR, clock, disks, memory, processor
from tasks.doctor.orchestration import PAGE as PREFECT
from tasks.doctor.orchestration import prefect
from tasks.doctor.software import PAGE as SOFTWARE
from tasks.doctor.software import software
from tasks.governor.lease import state_dir
from tasks.governor.rights import read_rights
from tasks.storage.layout import Layout

_MODEL, _ENCODER = ModelConfig().name, GroupConfig().encoder


def examine(
    layout: Layout, *, model: str = _MODEL, encoder: str = _ENCODER, look: Callable[[], Cards] = look_at_cards
) -> Fitness:
    """Look at everything that a run of this model with these folders depends on. Changes nothing, and loads no engine."""
    cards = _cards(look)
    pages: tuple[tuple[str, Callable[[], Iterable[Finding]]], ...] = (
        (SOFTWARE, lambda: software(has_gpu=bool(cards.found))),
        (MODEL, lambda: models(model, encoder)),
        (DISK, lambda: disks(layout)),
        (MEMORY, memory),
        (PROCESSOR, processor),
        (CLOCK, clock),
        (GPU, lambda: judge_cards(cards, read_rights().why_not)),
        (GPU, lambda: leases(state_dir())),
        (PREFECT, prefect),
    )
    return Fitness(tuple(finding for name, page in pages for finding in _all_of(name, page)))


def _cards(look: Callable[[], Cards]) -> Cards:
    try:
        return look()
    except Exception as error:  # as below
        return Cards(reason=f"the look at the driver failed: {type(error).__name__}: {error}", is_ill=True)


def _all_of(name: str, page: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """A page's findings. On a sick machine a look itself may fail, in any way."""
    try:
        yield from page()
    except Exception as error:  # whatever it is, the other pages are wanted
        yield warning(name, f"could not be looked at: {type(error).__name__}: {error}", "look at it by hand")
