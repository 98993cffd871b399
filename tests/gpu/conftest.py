"""The stub driver for tests: built once, a state of its own for each test."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.gpu.stub import CompilerMissingError, Stub, build

MakeStub = Callable[..., Stub]


@pytest.fixture(scope="session")
def stub_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return build(tmp_path_factory.mktemp("nvml"))
    except CompilerMissingError as error:
        pytest.skip(str(error))


@pytest.fixture
def make_stub(stub_library: Path, tmp_path: Path) -> Iterator[MakeStub]:
    """A stub of so many cards; each says in what it differs from an H100."""
    made: list[Stub] = []

    def make(*cards: dict[str, Any]) -> Stub:
        (folder := tmp_path / f"stub{len(made)}").mkdir()
        made.append(Stub(folder, cards or ({},), library=stub_library))
        return made[-1]

    yield make
    for stub in made:
        stub.close()


@pytest.fixture
def stub(make_stub: MakeStub) -> Stub:
    return make_stub()


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Gives this process the stub's driver, as if it had started with it; or another library."""

    def load(stub: Stub, library: Path | None = None) -> None:
        monkeypatch.setenv("NVML_STUB_STATE", str(stub.path))
        monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(library or stub.library)))
        monkeypatch.setattr(pynvml, "_nvmlLib_refcount", 0)
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})

    return load


@pytest.fixture
def python(stub: Stub) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts an interpreter of its own on the stub, with this code; what still lives when the test ends is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, **more: str) -> "subprocess.Popen[str]":
        environment = os.environ | stub.environment | more
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.PIPE}
        started.append(subprocess.Popen([sys.executable, "-c", code], env=environment, text=True, **pipes))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        with process:
            pass
