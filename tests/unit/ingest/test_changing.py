"""Files that change while they are read are no input: the error names the file, and no table is left of it."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tasks.core.errors import InputError
from tasks.engine.tokenizer import ByteTokenizer
from tasks.storage.layout import Layout

Put = Callable[..., Path]
Read = Callable[..., Any]


class Meddler(ByteTokenizer):
    """Does something to the input in the middle of its reading."""

    def __init__(self, meddle: Callable[[], object]) -> None:
        super().__init__()
        self._meddle: Callable[[], object] | None = meddle

    def encode(self, prompts: Sequence[str], *, rendered: Sequence[bool]) -> list[list[int]]:
        if self._meddle is not None:
            self._meddle()
            self._meddle = None
        return super().encode(prompts, rendered=rendered)


def _append(path: Path) -> None:
    with path.open("a") as file:
        file.write('{"prompt": "one more"}\n')


def _replace(path: Path) -> None:
    path.with_suffix(".new").write_text('{"prompt": "another"}\n' * 5000)
    path.with_suffix(".new").replace(path)


@pytest.mark.parametrize(
    "meddle",
    [_append, lambda path: os.truncate(path, 70_000), _replace, Path.unlink],
    ids=["appended to", "cut off", "replaced", "removed"],
)
def test_a_file_that_changes_while_it_is_read(
    put: Put, read: Read, layout: Layout, meddle: Callable[[Path], object]
) -> None:
    """Whatever happens to it, the command ends with the file's name and there is no part; read again, it is whole."""
    lines = [{"prompt": f"question {i}"} for i in range(5000)]
    put("s/a.jsonl", {"prompt": "other"})
    path = put("s/b.jsonl", *lines)
    with pytest.raises(InputError, match=r"s/b\.jsonl has changed while it was read"):
        read(path.parent, tokenizer=Meddler(lambda: meddle(path)))
    assert [file for file in layout.data.rglob("*") if file.is_file()] == []
    put("s/b.jsonl", *lines)
    assert len(read(path.parent)[0]) == 5001


@pytest.mark.parametrize("name", ["in.parquet", "in.csv.gz"])
def test_a_file_of_another_kind(put: Put, read: Read, layout: Layout, name: str) -> None:
    """Damage that shows while the file is read is not taken for its content when the file has changed."""
    path = put(name, b"PAR1" if name.endswith("parquet") else b"\x1f\x8b", b"x" * 100)
    other = put("a.jsonl", *({"prompt": f"hi {i}"} for i in range(30_000)))  # more than is read ahead
    with pytest.raises(InputError, match=f"{name} has changed while it was read"):
        read(other, path, source="s", tokenizer=Meddler(lambda: path.write_bytes(b"PAR1")))
    assert not list(layout.data.rglob("*.parquet"))
