"""The model and the encoder: whether they are here, without unpacking or fetching any."""

from collections.abc import Callable, Iterator
from pathlib import Path

from tasks.core.errors import ConfigError
from tasks.doctor.finding import Finding, ok, problem, warning
from tasks.engine.models import whereabouts_of_encoder, whereabouts_of_model
from tasks.job import ECHO

PAGE = "model"


def models(model: str, encoder: str) -> Iterator[Finding]:
    """Where each lies: every run needs the model, and the encoder only one that looks for near-duplicates."""
    if model.partition(":")[0] == ECHO:
        yield ok(PAGE, f"{model}: a dry run, which needs no model")
    else:
        yield _model(model)
    yield _encoder(encoder)


def _model(name: str) -> Finding:
    return _found(
        name, whereabouts_of_model, lambda reason: problem(PAGE, f"the model: {reason}", "give another with --model")
    )


def _encoder(name: str) -> Finding:
    def missing(reason: str) -> Finding:
        return warning(PAGE, f"the encoder, which only --near-duplicates needs: {reason}", "give another with --encoder")

    return _found(name, whereabouts_of_encoder, missing)


def _found(name: str, where: Callable[[str], Path | None], missing: Callable[[str], Finding]) -> Finding:
    try:
        path = where(name)
    except ConfigError as error:
        return missing(str(error))
    if path is None:
        return warning(PAGE, f"{name} is not on this machine: the first run downloads it", f"hf download {name}")
    later = ", unpacked by the first run (300 MB, about 10 s)" if path.is_file() else ""
    return ok(PAGE, f"{name} in {path}{later}")
