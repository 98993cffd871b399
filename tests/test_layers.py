"""The house plan of docs/architecture.md, as assertions."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
MODULES = sorted([*(REPOSITORY / "tasks").rglob("*.py"), *(REPOSITORY / "flows").rglob("*.py")])
BLOCKED = ("prefect", "vllm", "torch", "pynvml")
NEEDS_A_DOOR = {
    "tasks.steps",
    "tasks.engine.vllm",
    "tasks.engine.params",
    "tasks.engine.history",
    "tasks.engine.sampling",
    "tasks.governor.nvml",
    "flows.nightly",
    "flows.adhoc",
}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")


def isolated(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=120, check=False)


def test_imports_go_downwards_only() -> None:
    """import-linter finds every contract of pyproject.toml kept."""
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout


def test_core_works_without_prefect_vllm_and_nvml() -> None:
    """Every module but the few doors can be imported while the device and workflow libraries are not there."""
    names = [name for path in MODULES if (name := module_name(path)) not in NEEDS_A_DOOR]
    block = f"import sys; sys.modules.update(dict.fromkeys({BLOCKED!r}))"
    done = isolated(f"{block}; import importlib; [importlib.import_module(name) for name in {names!r}]")
    assert done.returncode == 0, done.stderr


def test_our_packages_are_the_ones_imported() -> None:
    """`flows` and `tasks` come from this repository, not from another distribution of that name."""
    done = isolated("import flows, tasks; print(flows.__file__); print(tasks.__file__)")
    assert [Path(line).parent.parent for line in done.stdout.split()] == [REPOSITORY, REPOSITORY]


def test_light_verbs_import_no_heavy_library() -> None:
    """The command line answers `--help`, `status` and a finished run without torch, vLLM, transformers or Prefect."""
    heavy = ("torch", "vllm", "transformers", "prefect", "sentence_transformers", "sklearn", "numba")
    done = isolated(f"import sys, flows.cli, tasks.wiring, tasks.status; print([m for m in {heavy!r} if m in sys.modules])")
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_files_and_functions_are_small(path: Path) -> None:
    """No file over 400 lines, no function over 60."""
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 400
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            first = node.body[0]
            documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(node.body) > 1
            start = node.body[1].lineno if documented else first.lineno
            assert (node.end_lineno or start) - start < 60, f"{node.name} in {path.name}"
