"""The whole room: every row in exactly one of two tables, which appear together and whole, or not at all."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tasks.core.config import RowConfig, SamplingDefaults
from tasks.core.dataset import Dataset
from tasks.engine.tokenizer import ByteTokenizer
from tasks.ingest.finding.sources import digest_file, discover
from tasks.ingest.ingest import ingest
from tasks.ingest.shapes.validate import Validator
from tasks.storage.atomic import read_json
from tasks.storage.layout import Layout
from tasks.storage.parquet import REJECTS, REQUESTS, read_rows

Rows = list[dict[str, Any]]
Chat = Callable[..., str]
Put = Callable[..., Path]
Read = Callable[..., tuple[Rows, Rows]]

REPOSITORY = Path(__file__).parents[3]


class FailingTokenizer(ByteTokenizer):
    """Fails at the prompt that says so."""

    def encode(self, prompts: Sequence[str], *, rendered: Sequence[bool]) -> list[list[int]]:
        if any("fail here" in prompt for prompt in prompts):
            raise RuntimeError("the tokenizer is gone")
        return super().encode(prompts, rendered=rendered)


def ingest_all(folder: Path, layout: Layout, **options: Any) -> Dataset:
    validator = Validator(RowConfig(), SamplingDefaults(), None, "m")
    given: dict[str, Any] = {"tokenizer": ByteTokenizer(), "files": discover([folder], None)} | options
    given["files"] = [(file, digest_file(file)) for file in given["files"]]
    return ingest(validator_of=lambda _: validator, layout=layout, tokens="", dataset_id="d1", ds="2026-01-02", **given)


def files_under(folder: Path) -> list[str]:
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())


def test_rows_are_requests_and_rejects(put: Put, chat: Chat, layout: Layout, tmp_path: Path) -> None:
    """Over all files of all sources the counts add up, by reason too, and the manifest on disk says what is returned."""
    put("a/x.jsonl", chat("1", "hi"), "broken", chat("1", "again"), "", chat("2", ""))
    put("a/y.csv", "id,prompt", "3,hi", "4", "5,")
    put("b/z.tsv", "id\tprompt", "1\thi")
    put("b/notes.xlsx", "hi")
    dataset = ingest_all(tmp_path / "in", layout)
    assert (dataset.files, dataset.rows, dataset.requests, dataset.rejects) == (4, 9, 3, 6)
    assert dataset.reject_reasons == {
        "malformed_json": 1,
        "duplicate_id": 1,
        "empty_prompt": 1,
        "malformed_csv": 1,
        "no_prompt": 1,
        "unsupported_format": 1,
    }
    assert dataset.examples[0].startswith("a/x.jsonl line 2: not valid JSON")
    assert len(dataset.examples) == 5
    assert Dataset.from_dict(read_json(layout.dataset_manifest("d1")) or {}) == dataset


def test_parts_have_the_declared_schema(put: Put, layout: Layout, tmp_path: Path) -> None:
    """Every part has the whole schema, also where a source has no requests at all; without rejects it has no such part."""
    put("good/a.jsonl", '{"prompt": "hi"}')
    put("bad/a.jsonl", "broken")
    put("none/a.csv", "id,prompt")
    dataset = ingest_all(tmp_path / "in", layout)
    assert [pq.read_schema(part) for part in dataset.request_parts] == [REQUESTS] * 3
    assert [pq.read_schema(part) for part in dataset.reject_parts] == [REJECTS]
    folders = [Path(part).parent.relative_to(layout.data).as_posix() for part in dataset.request_parts]
    assert folders == [f"requests/ds=2026-01-02/source={source}" for source in ("bad", "good", "none")]
    assert Path(dataset.reject_parts[0]).parent == layout.data / "rejects/ds=2026-01-02/source=bad"


def test_a_request_is_stored_whole(put: Put, read: Read) -> None:
    """Every column of both tables is filled as documented."""
    good = {"custom_id": "a", "url": "/v1/completions", "body": {"model": "m", "prompt": "hi", "n": 2, "max_tokens": 9}}
    [request], [reject] = read(put("in.jsonl", good, '{"custom_id": "b", "prompt": ""}'))
    assert request == {
        "ds": "2026-01-02",
        "request_id": "in/a",
        "custom_id": "a",
        "source": "in",
        "file": "in.jsonl",
        "line": 1,
        "requested_model": "m",
        "messages": None,
        "tools": None,
        "text": "hi",
        "sampling": '{"max_tokens":9}',
        "n": 2,
        "max_tokens": 9,
        "priority": 0,
        "deadline": None,
        "truncated_tokens": 0,
        "prompt_tokens": 2,
        "prompt_token_ids": [105, 106],
    }
    assert reject == {
        "ds": "2026-01-02",
        "source": "in",
        "file": "in.jsonl",
        "line": 2,
        "byte_offset": len(json.dumps(good)) + 1,
        "custom_id": "b",
        "reason": "empty_prompt",
        "message": "prompt: nothing is asked, the user's text is empty",
        "raw": '{"custom_id": "b", "prompt": ""}',
    }


def test_rows_keep_the_order_of_the_files(put: Put, read: Read) -> None:
    """Over more rows than one chunk holds, both tables are in file and line order."""
    for name in ("s/a.jsonl", "s/b.jsonl"):
        put(name, *("bad" if i % 10 == 0 else {"id": f"{name}{i}", "prompt": f"p{i}"} for i in range(1300)))
    requests, rejects = read(put("s/c.jsonl").parent)
    assert [(row["file"], row["line"]) for row in requests] == sorted((row["file"], row["line"]) for row in requests)
    assert [(row["file"], row["line"]) for row in rejects] == sorted((row["file"], row["line"]) for row in rejects)
    assert all(row["text"] == f"p{row['line'] - 1}" for row in requests)
    assert (len(requests), len(rejects)) == (2340, 260)


def test_progress_is_told_in_rows_and_bytes(put: Put, layout: Layout) -> None:
    """`on_progress` hears growing counts, and at last those of all rows."""
    heard: list[tuple[int, int]] = []
    path = put("in.jsonl", *({"prompt": "hi"} if i % 3 else "bad" for i in range(5000)))
    ingest_all(path, layout, on_progress=lambda *counts: heard.append(counts))
    assert heard == sorted(heard)
    assert (len(heard) > 1, heard[-1][0]) == (True, 5000)


def test_order_of_files_does_not_matter(put: Put, layout: Layout, tmp_path: Path) -> None:
    """Files of one source are one part, also when those of another are given between them."""
    for name in ("a/1.jsonl", "b/1.jsonl", "a/2.jsonl"):
        put(name, '{"prompt": "hi"}')
    files = sorted(discover([tmp_path / "in"], None), key=lambda file: file.name)
    dataset = ingest_all(tmp_path / "in", layout, files=files)
    assert [len(list(read_rows(Path(part)))) for part in dataset.request_parts] == [2, 1]


def test_an_error_in_the_middle_leaves_whole_parts_only(put: Put, layout: Layout, tmp_path: Path) -> None:
    """When reading fails in a later source there is no dataset and no half file; what was read before is not read again."""
    put("a/x.jsonl", '{"prompt": "hi"}')
    put("b/x.jsonl", *[{"prompt": "hi"}] * 2000, {"prompt": "fail here"})
    with pytest.raises(RuntimeError, match="the tokenizer is gone"):
        ingest_all(tmp_path / "in", layout, tokenizer=FailingTokenizer())
    [part] = (layout.data / "requests").glob("ds=*/source=*/*")
    assert part.parent.name == "source=a"
    assert not layout.dataset_manifest("d1").exists()
    (tmp_path / "in" / "b" / "x.jsonl").write_text("")
    assert str(part) in ingest_all(tmp_path / "in", layout, tokenizer=FailingTokenizer()).request_parts


def test_an_interrupt_leaves_nothing(put: Put, layout: Layout) -> None:
    """Ctrl-C while rows are read is as good as not having begun, and beginning again works."""

    def interrupt(num_rows: int, size: int) -> None:
        raise KeyboardInterrupt

    path = put("in.jsonl", '{"prompt": "hi"}')
    with pytest.raises(KeyboardInterrupt):
        ingest_all(path, layout, on_progress=interrupt)
    assert files_under(layout.data) == []
    assert ingest_all(path, layout).requests == 1


def test_the_manifest_is_last(put: Put, layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the manifest is written, every part that it names is there."""
    seen: list[list[str]] = []

    def looking(path: Path, value: Any) -> None:
        seen.append([part for part in (*value["request_parts"], *value["reject_parts"]) if Path(part).exists()])

    monkeypatch.setattr("tasks.ingest.ingest.write_json", looking)
    dataset = ingest_all(put("in.jsonl", '{"prompt": "hi"}'), layout)
    assert seen == [[*dataset.request_parts, *dataset.reject_parts]]
    assert read_json(layout.dataset_manifest("d1")) is None


def test_doing_it_again_gives_the_same_bytes(put: Put, chat: Chat, layout: Layout, tmp_path: Path) -> None:
    """Two readings of the same files give equal parts and manifest."""
    put("a/x.jsonl", chat("1", "hi"), "broken", chat("2", "yo", temperature=0.5))
    put("b/y.csv", "prompt", "hi")

    def contents() -> dict[str, bytes]:
        ingest_all(tmp_path / "in", layout)
        return {name: (layout.data / name).read_bytes() for name in files_under(layout.data)}

    assert contents() == contents()


def test_no_rows_at_all(put: Put, layout: Layout) -> None:
    """Empty files are a dataset of no rows: whether that is an error is for the caller to say."""
    dataset = ingest_all(put("in.jsonl"), layout)
    assert (dataset.rows, dataset.requests, dataset.rejects, dataset.reject_rate) == (0, 0, 0, 0.0)


def test_the_samples(layout: Layout) -> None:
    """Every row of the samples is a request, but for a cut line and a long row that are there on purpose."""
    dataset = ingest_all(REPOSITORY / "data" / "samples", layout)
    assert dataset.reject_reasons == {"malformed_json": 1, "prompt_too_long": 1}
    assert "unexpected end of data" in dataset.examples[0]
    assert dataset.requests > 100


def test_a_long_message_of_a_reject_is_clipped(put: Put, chat: Chat, read: Read) -> None:
    """What a reject quotes of a row is bounded, its id too."""
    _, [reject] = read(put("in.jsonl", chat("x" * 5000, "hi", model="y" * 5000)), served=["smol"])
    assert len(reject["message"]) == 500
    assert reject["message"].endswith("…")
    assert reject["custom_id"] == "x" * 512
