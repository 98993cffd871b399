"""What the README tells a reader to type exists."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from flows.cli import app

REPOSITORY = Path(__file__).parent.parent
DOCS = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


def commands() -> list[tuple[str, str]]:
    """(file, line) of every command in a shell block, continuation lines joined."""
    found = []
    for path in DOCS:
        for block in re.findall(r"```sh\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL):
            lines = block.replace("\\\n", " ").splitlines()
            found += [(path.name, line.strip()) for line in lines if line.strip() and not line.strip().startswith("#")]
    return found


def words_of(program: str) -> list[list[str]]:
    return [words for _, line in commands() if (words := shlex.split(line, comments=True))[:1] == [program]]


def test_there_are_commands() -> None:
    """The README shows make, nightbatch and prefect."""
    assert all(words_of(program) for program in ("make", "nightbatch", "prefect"))


@pytest.mark.parametrize("words", words_of("make"), ids=" ".join)
def test_make_targets_exist(words: list[str]) -> None:
    """Every make target is in the Makefile."""
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in words[1:])


@pytest.mark.parametrize("words", words_of("nightbatch"), ids=" ".join)
def test_nightbatch_verbs_and_options_exist(words: list[str]) -> None:
    """Every verb is a verb, and every option one of that verb's."""
    group = typer.main.get_command(app)
    command = group.commands[words[1]]  # type: ignore[attr-defined]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    assert {word for word in words[2:] if word.startswith("--")} <= known


def test_deployments_exist() -> None:
    """Every deployment that is run is in prefect.yaml."""
    text = (REPOSITORY / "prefect.yaml").read_text(encoding="utf-8")
    runs = [words for words in words_of("prefect") if words[1:3] == ["deployment", "run"]]
    assert runs
    for words in runs:
        flow, name = words[3].split("/")
        assert f"name: {name}" in text
        assert f"flows/{flow}.py:{flow}" in text


def test_files_that_are_named_exist() -> None:
    """Links and sample paths lead somewhere."""
    for path in DOCS:
        for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
            assert target.startswith("http") or (path.parent / target).exists(), f"{path.name}: {target}"
    paths = [word for words in words_of("nightbatch") for word in words if word.startswith("data/samples")]
    assert all((REPOSITORY / path).exists() for path in paths)
