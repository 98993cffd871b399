"""`--merge-near-duplicates`: asked for it merges and says so; else nothing of it is seen."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.core.config import Config, GroupConfig, InputConfig, ModelConfig
from tasks.job import open_job

ECHO = ("--model", "echo", "--max-tokens", "8")
PROMPTS = ("How do I block my card?", "how do I block my card", "How do I block my card?", "Where is my parcel?")


@pytest.fixture
def prompts(write_jsonl: Callable[..., Path]) -> str:
    """Four questions: one, the same in other letters, the same again, and another one."""
    return str(write_jsonl([{"id": f"r{i}", "prompt": prompt} for i, prompt in enumerate(PROMPTS)]))


def test_merging_is_counted_and_recorded(cli: Any, prompts: str) -> None:
    """The merged request has the other's answer and the cosine; the counts are in the summary, the JSON and the view."""
    plain = cli.json("run", prompts, *ECHO)
    done = cli("run", prompts, *ECHO, "--merge-near-duplicates", "0.98")
    assert done.returncode == 0, done.stderr
    assert "1 exact duplicates answered once, 1 near-duplicates merged into others; 2 sequences" in " ".join(
        done.stderr.split()
    )
    assert "4, 1 as exact duplicates, 1 as near-duplicates" in done.stdout
    merged = cli.json("run", prompts, *ECHO, "--merge-near-duplicates", "0.98")
    assert (merged["was_done"], merged["duplicates"], merged["near_duplicates"], merged["results"]) == (True, 2, 1, 4)
    assert (plain["duplicates"], plain["near_duplicates"]) == (1, 0)
    assert merged["dataset_id"] == plain["dataset_id"]
    rows = cli.sql(f"from results where run_id = '{merged['run_id']}' order by custom_id")
    assert [row["duplicate_of"] for row in rows] == [None, "in/r0", "in/r0", None]
    assert [row["similarity"] is None for row in rows] == [True, False, True, True]
    assert 0.98 <= rows[1]["similarity"] < 1
    assert len({row["output_text"] for row in rows[:3]}) == 1
    assert cli.sql("select sum(near_duplicates) as n from runs") == [{"n": 1}]
    assert cli("check", merged["run_id"]).returncode == 0


def test_the_threshold_is_part_of_the_runs_name(prompts: str) -> None:
    """Another threshold or encoder gives other answers, and so another run; without a threshold grouping changes none."""

    def run_id(**group: Any) -> str:
        config = Config(InputConfig((Path(prompts),)), model=ModelConfig("echo"), group=GroupConfig(**group))
        return open_job(config).run.run_id

    assert run_id(near_duplicates=1) == run_id(near_duplicates=1.0)
    assert run_id() == run_id(max_learnt_answers=3, encoder="other")
    other = run_id(near_duplicates=0.98, encoder="other")
    assert len({run_id(), run_id(near_duplicates=0.98), run_id(near_duplicates=1.0), other}) == 4


@pytest.mark.parametrize("threshold", ["0", "1.5", "-1", "nan"])
def test_a_threshold_that_is_none(cli: Any, prompts: str, threshold: str) -> None:
    """A cosine that cannot be reached, or always is, is refused in one line."""
    done = cli("run", prompts, *ECHO, f"--merge-near-duplicates={threshold}")
    assert done.returncode == 2
    assert "near_duplicates must be a cosine above 0 and at most 1, not" in done.stderr
