"""Answers of earlier runs: the newest of the same model, with their prompts, and nothing that is damaged or foreign."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tasks.core.manifest import DONE, FAILED
from tasks.storage.atomic import write_json
from tasks.storage.history import read_answers
from tasks.storage.layout import Layout
from tasks.storage.parquet import REQUESTS, RESULTS, writing_table

Answer = tuple[str, str, Sequence[int], int, str]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "data", tmp_path / "checkpoints")


def write_run(layout: Layout, name: str, ended_at: str, answers: Sequence[Answer], **manifest: Any) -> None:
    """A finished run; answers are (source, request id, prompt's ids, output tokens, finish reason)."""
    parts = []
    for source in sorted({answer[0] for answer in answers}):
        part = layout.requests_part("2026-01-02", source, f"{name}-{source}")
        with writing_table(part, REQUESTS) as table:
            for of, request_id, ids, _, _ in answers:
                if of == source:
                    table.append({"request_id": request_id, "source": of, "prompt_token_ids": ids})
        parts.append(str(part))
    write_json(layout.dataset_manifest(f"d-{name}"), {"request_parts": parts})
    with writing_table(layout.run(name).results / "part-0.parquet", RESULTS) as table:
        for of, request_id, _, number, reason in reversed(answers):
            row = {"request_id": request_id, "source": of, "choice_index": 0, "output_tokens": number}
            table.append(row | {"finish_reason": reason, "duplicate_of": "x" if number < 0 else None})
    known = {"run_id": name, "model": "m", "state": DONE, "dataset_id": f"d-{name}", "ended_at": ended_at}
    write_json(layout.run(name).manifest, known | manifest)


def test_answers_come_with_their_prompts(layout: Layout) -> None:
    """Rows by id, each with its own prompt and whether it was cut; duplicates are left out."""
    rows = [("b", "b/1", [7, 8], 5, "stop"), ("a", "a/2", [1], 64, "length"), ("a", "a/1", [2, 3, 4], 9, "stop")]
    write_run(layout, "r1", "2026-01-01", [*rows, ("a", "a/3", [9], -1, "stop")])
    found = read_answers(layout, "m", 100)
    assert found is not None
    assert found.sources.tolist() == ["a", "a", "b"]
    assert found.output_tokens.tolist() == [9, 64, 5]
    assert found.was_cut.tolist() == [False, True, False]
    assert found.prompt_token_ids.tolist() == [2, 3, 4, 1, 7, 8]
    assert found.prompt_tokens.tolist() == [3, 1, 2]


def test_the_newest_runs_of_the_model_count(layout: Layout) -> None:
    """Not those of another model, not unfinished ones, not the run itself, and no more rows than asked for."""
    for night in range(3):
        write_run(layout, f"r{night}", f"2026-01-0{night}", [("s", f"s/{i}", [i], night, "stop") for i in range(20)])
    write_run(layout, "other", "2026-02-01", [("s", "s/1", [1], 77, "stop")], model="other")
    write_run(layout, "failed", "2026-02-01", [("s", "s/1", [1], 88, "stop")], state=FAILED)
    write_run(layout, "self", "2026-02-01", [("s", "s/1", [1], 99, "stop")])
    found = read_answers(layout, "m", 30, without="self")
    assert found is not None
    assert sorted(found.output_tokens.tolist()) == [1] * 10 + [2] * 20
    assert read_answers(layout, "unheard of", 30) is None


def test_every_source_is_sampled(layout: Layout) -> None:
    """A small source beside a large one is not lost, and the sample is spread over the large one."""
    large = [("large", f"l/{i:05d}", [i], i, "stop") for i in range(9000)]
    write_run(layout, "r", "2026-01-01", [*large, ("small", "s/1", [1], 5, "stop")])
    found = read_answers(layout, "m", 200)
    assert found is not None
    assert found.sources.tolist().count("small") == 1
    lengths = found.output_tokens[found.sources == "large"]
    assert 90 <= len(lengths) <= 200
    assert lengths.max() > 8500
    assert lengths.min() < 500


def test_a_damaged_run_is_left_out(layout: Layout, caplog: pytest.LogCaptureFixture) -> None:
    """It is named in the log, and the others are read."""
    write_run(layout, "good", "2026-01-01", [("s", "s/1", [1], 3, "stop")])
    for name in ("bad", "gone", "lost"):
        write_run(layout, name, "2026-01-02", [("s", "s/1", [1], 4, "stop")])
    (layout.run("bad").results / "part-0.parquet").write_bytes(b"PAR1 not")
    layout.dataset_manifest("d-gone").unlink()
    (layout.run("lost").results / "part-0.parquet").unlink()
    layout.run("torn").home.mkdir(parents=True)
    layout.run("torn").manifest.write_text("{")
    found = read_answers(layout, "m", 10)
    assert found is not None
    assert found.output_tokens.tolist() == [3]
    assert all(f"run {name} is not learnt from" in caplog.text for name in ("bad", "gone", "lost"))


def test_a_data_folder_that_was_moved(layout: Layout, tmp_path: Path) -> None:
    """Requests are found where the folder is now."""
    write_run(layout, "r", "2026-01-01", [("s", "s/1", [1, 2], 3, "stop")])
    layout.data.rename(tmp_path / "moved")
    moved = Layout(tmp_path / "moved", tmp_path)
    assert json.loads(moved.dataset_manifest("d-r").read_text())["request_parts"][0].startswith(str(layout.data))
    found = read_answers(moved, "m", 10)
    assert found is not None
    assert found.prompt_token_ids.tolist() == [1, 2]
