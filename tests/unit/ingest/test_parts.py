"""Reading a folder again: what is known is not read, what has changed is, and ids are still unique over all of it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tasks.core.config import RowConfig, SamplingDefaults
from tasks.core.dataset import Dataset
from tasks.engine.tokenizer import ByteTokenizer
from tasks.ingest.finding.sources import digest_file, discover
from tasks.ingest.ingest import ingest
from tasks.ingest.parts import packs
from tasks.ingest.shapes.validate import Validator
from tasks.storage.layout import Layout
from tasks.storage.parquet import read_rows

Put = Callable[..., Path]


class RememberingTokenizer(ByteTokenizer):
    """Remembers what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.prompts: list[str] = []

    def encode(self, prompts: Sequence[str], *, rendered: Sequence[bool]) -> list[list[int]]:
        self.prompts += [prompt.removeprefix("user: ").partition("\n")[0] for prompt in prompts]
        return super().encode(prompts, rendered=rendered)


@pytest.fixture
def again(tmp_path: Path, layout: Layout) -> Callable[..., tuple[list[str], Dataset]]:
    """Ingests the folder s; which texts were tokenised for it, and the dataset."""

    def run(ds: str = "2026-01-02", **options: Any) -> tuple[list[str], Dataset]:
        tokenizer = RememberingTokenizer()
        validator = Validator(RowConfig(**options), SamplingDefaults(), None, "m")
        files = [(file, digest_file(file)) for file in discover([tmp_path / "in" / "s"], None)]
        rules: dict[str, Any] = {"validator_of": lambda _: validator, "tokenizer": tokenizer, "tokens": "bytes"}
        return tokenizer.prompts, ingest(files, layout=layout, dataset_id="d1", ds=ds, **rules)

    return run


def texts(dataset: Dataset) -> list[str]:
    return sorted(row["text"] for row in read_rows(dataset.request_paths))


def row(id: str, prompt: str) -> dict[str, str]:
    return {"id": id, "prompt": prompt}


def test_only_new_files_are_read(put: Put, again: Any) -> None:
    """A file more, on another day: the others' rows are there without being read again."""
    put("s/b.jsonl", row("1", "one"), row("2", "two"))
    put("s/c.csv", "id,prompt", "3,three", "4,")
    assert again()[0] == ["one", "two", "three"]
    put("s/a.jsonl", row("5", "five"))
    read, dataset = again(ds="2026-01-03")
    assert read == ["five"]
    assert (dataset.rows, dataset.requests, dataset.reject_reasons) == (5, 4, {"no_prompt": 1})
    assert texts(dataset) == ["five", "one", "three", "two"]
    assert len(dataset.examples) == 1
    assert {file.name for file in dataset.inputs} == {"a.jsonl", "b.jsonl", "c.csv"}


def test_a_changed_file_is_read_again(put: Put, again: Any) -> None:
    """Bytes decide, not names and times; what shared a part with the file is read again with it."""
    put("s/a.jsonl", row("1", "one"))
    put("s/b.jsonl", row("2", "two"))
    again()
    put("s/b.jsonl", row("2", "TWO"))
    read, dataset = again()
    assert "TWO" in read
    assert texts(dataset) == ["TWO", "one"]


def test_other_rules_read_again(put: Put, again: Any) -> None:
    """What was made of a row under other settings is not used."""
    put("s/a.jsonl", row("1", "one"))
    again()
    read, dataset = again(system="Be brief.")
    assert (len(read), texts(dataset)) == (1, ["one"])


def test_a_damaged_part_is_read_again(put: Put, again: Any) -> None:
    """A table that is not as it was written does not count."""
    put("s/a.jsonl", row("1", "one"), "bad")
    _, dataset = again()
    for path in (dataset.request_paths[0], Path(dataset.reject_parts[0])):
        path.write_bytes(b"PAR1")
        assert again()[0] == ["one"]
        path.unlink()
        assert again()[0] == ["one"]


def test_a_damaged_record_is_no_record(put: Put, again: Any, layout: Layout) -> None:
    """A record that cannot be read costs reading the files again."""
    put("s/a.jsonl", row("1", "one"))
    again()
    [record] = layout.parts.rglob("*.json")
    record.write_text("{")
    assert again()[0] == ["one"]


def test_ids_are_unique_over_old_and_new_files(put: Put, again: Any) -> None:
    """A new file that repeats an old one's id: the first in the files' order counts, as if all were new."""
    put("s/b.jsonl", row("1", "old"), row("2", "two"))
    again()
    put("s/a.jsonl", row("1", "new"))
    _, dataset = again()
    assert texts(dataset) == ["new", "two"]
    [reject] = read_rows([Path(part) for part in dataset.reject_parts])
    assert (reject["reason"], reject["file"]) == ("duplicate_id", "b.jsonl")
    assert "a.jsonl line 1" in reject["message"]


def test_a_duplicate_of_a_file_that_is_gone_counts_again(put: Put, again: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part with a row that was rejected for an earlier part's sake is not used without that part."""
    monkeypatch.setattr("tasks.ingest.parts._MAX_FILES", 1)
    first = put("s/a.jsonl", row("1", "first"))
    put("s/b.jsonl", row("1", "second"))
    assert texts(again()[1]) == ["first"]
    first.unlink()
    assert texts(again()[1]) == ["second"]


def test_a_part_is_used_with_all_its_files_only(put: Put, again: Any) -> None:
    """When one of two files that share a part is gone, the other's rows are there and no more."""
    put("s/a.jsonl", row("1", "one"))
    second = put("s/b.jsonl", row("2", "two"))
    again()
    second.unlink()
    assert texts(again()[1]) == ["one"]


def test_packs_are_neighbours_of_bounded_size() -> None:
    """Small files go together in order, a large one alone, and none is left out."""
    mb = 1 << 20
    assert [list(pack) for pack in packs([30 * mb, 30 * mb, 30 * mb, 300 * mb, 0, 0])] == [[0, 1], [2], [3], [4, 5]]
    assert [len(pack) for pack in packs([1] * 25_000)] == [10_000, 10_000, 5000]
    assert list(packs([])) == []
