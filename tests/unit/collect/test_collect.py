"""Collect: every request in results or failures, or a loud error."""

from array import array
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tasks.collect.collect import Collected, collect
from tasks.core.errors import DamageError
from tasks.core.request import FinishReason, Progress
from tasks.engine.tokenizer import ByteTokenizer
from tasks.storage.layout import Run


def ended(text: str, reason: FinishReason = FinishReason.STOP, **more: Any) -> Progress:
    return Progress(array("i", [byte + 1 for byte in text.encode()]), reason, **more)


def request(name: str, n: int = 1) -> dict[str, Any]:
    return {"request_id": f"s/{name}", "custom_id": name, "source": "s", "file": "in.jsonl", "line": 1, "n": n}


def planned(name: str, key: int, choice: int = 0, sampling: str = '{"max_tokens":8}') -> dict[str, Any]:
    row = {"request_id": f"s/{name}", "key": key, "choice_index": choice, "batch_id": 0, "bucket": 256}
    return row | {"prompt_tokens": 10, "sampling": sampling}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run("run-1", tmp_path / "home", tmp_path / "journals")


def gather(
    run: Run, requests: list[Any], plan: list[Any], progress: dict[int, Progress], copies: Any = None, near: Any = None
) -> Collected:
    by_request: dict[str, list[Any]] = {}
    for row in plan:
        by_request.setdefault(row["request_id"], []).append(row)
    return collect(requests, by_request, copies or {}, near or {}, progress, ByteTokenizer(), run, "m")


def table(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder).to_pylist()
    return rows


def test_each_choice_is_in_one_table(run: Run) -> None:
    """Answers, a failure and a request with one failed choice: counted by request, filed by choice."""
    requests = [request("a"), request("b"), request("c", n=2)]
    plan = [planned("a", 1), planned("b", 2), planned("c", 3, 0), planned("c", 4, 1)]
    progress = {1: ended("hi", cached_tokens=4), 2: Progress(error="no"), 3: ended("x"), 4: Progress(error="no")}
    counts = gather(run, requests, plan, progress)
    assert (counts.requests, counts.results, counts.failures) == (3, 1, 2)
    assert [(r["custom_id"], r["choice_index"], r["output_text"]) for r in table(run.results)] == [
        ("a", 0, "hi"),
        ("c", 0, "x"),
    ]
    assert [(r["custom_id"], r["choice_index"], r["error"]) for r in table(run.failures)] == [("b", 0, "no"), ("c", 1, "no")]
    assert table(run.results)[0]["cached_tokens"] == 4
    assert {r["status"] for r in table(run.results)} == {"completed"}


def test_duplicates_share_an_answer(run: Run) -> None:
    """A duplicate has a row of its own with the original's answer, and says whose it is."""
    counts = gather(run, [request("a"), request("b")], [planned("a", 1)], {1: ended("hi")}, {"s/b": "s/a"})
    rows = table(run.results)
    assert [(row["custom_id"], row["output_text"], row["duplicate_of"]) for row in rows] == [
        ("a", "hi", None),
        ("b", "hi", "s/a"),
    ]
    assert (counts.duplicates, counts.output_tokens, counts.prompt_tokens, counts.engine_prompt_tokens) == (1, 4, 20, 10)


def test_near_duplicates_say_how_near(run: Run) -> None:
    """A request that was merged has the other's answer and the cosine; exact duplicates and originals have none."""
    requests, copies = [request("a"), request("b"), request("c")], {"s/b": "s/a", "s/c": "s/a"}
    counts = gather(run, requests, [planned("a", 1)], {1: ended("hi")}, copies, {"s/c": 0.75})
    assert [
        (row["custom_id"], row["output_text"], row["duplicate_of"], row["similarity"]) for row in table(run.results)
    ] == [
        ("a", "hi", None, None),
        ("b", "hi", "s/a", None),
        ("c", "hi", "s/a", 0.75),
    ]
    assert (counts.results, counts.duplicates, counts.near_duplicates, counts.engine_prompt_tokens) == (3, 2, 1, 10)


@pytest.mark.parametrize(
    ("plan", "progress"),
    [([], {}), ([planned("a", 1)], {}), ([planned("a", 1)], {1: Progress(array("i", [5]))})],
    ids=["not planned", "not begun", "not ended"],
)
def test_anything_missing_is_an_error_and_nothing_is_written(
    run: Run, plan: list[Any], progress: dict[int, Progress]
) -> None:
    """A request without a plan, or without an end in the journal, stops collect before any table appears."""
    with pytest.raises(DamageError, match="s/a"):
        gather(run, [request("a")], plan, progress)
    assert not run.results.exists()
    assert not run.failures.exists()


def test_collecting_twice_gives_the_same_bytes(run: Run) -> None:
    """Collect is idempotent."""
    first, second = (
        [
            (
                gather(run, [request("a")], [planned("a", 1)], {1: ended("hi")}),
                (run.results / "part-00000.parquet").read_bytes(),
            )
        ]
        for _ in range(2)
    )
    assert first == second
