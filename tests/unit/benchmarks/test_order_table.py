"""What is said of measured rounds: ratios round by round, judged by the bad end, and files of rounds that add up."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

REPOSITORY = Path(__file__).parent.parent.parent.parent
NAMES = ("S1", "S2", "S3", "S4", "S5")


@pytest.fixture(scope="module")
def table() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(REPOSITORY))
        from benchmarks import order_table

        yield order_table


def measured(seconds: dict[str, list[float]], cacheable: int = 1000) -> dict[str, Any]:
    """A suite in which each order took so long in each round."""
    counts = {"queried": 5000, "hit": 998, "preemptions": 0, "steps": 9}
    rounds = {order: [{**counts, "seconds": one} for one in runs] for order, runs in seconds.items()}
    facts = {"requests": 1, "prompt_tokens": 5000, "output_tokens": 1, "cacheable_tokens": cacheable, "num_blocks": 9}
    return {**facts, "rounds": rounds}


ROUNDS = {"ours": [1.0, 2, 1], "ours again": [1.0, 2, 1], "arrival": [4.0, 8, 2.9], "ideal": [1.0, 2, 1]}
ROUNDS |= {"sort": [1.5, 3, 1.5], "buckets": [1.2, 2.4, 1.2]}


def test_goals_are_judged_by_the_bad_end(table: ModuleType) -> None:
    """A speed-up whose interval begins below three misses goal 2, though its median is four."""
    found = {(one.goal, one.measure): one for one in table.results({"S1": measured(ROUNDS)})}
    speed_up = found["2", "S1: speed, ours / arrival"]
    assert (speed_up.value, speed_up.low, speed_up.passed) == (4, 2.9, False)
    assert found["3a", "S1: cached tokens, ours / optimum"].value == 0.998
    assert found["3b", "S1: ideal time / ours"].passed


def test_the_geomean_needs_all_suites(table: ModuleType) -> None:
    """Goal 4 is a mean over five suites, of each round; it is not given for fewer."""
    suites = {name: measured(ROUNDS) for name in NAMES}
    found = {one.measure: one for one in table.results(suites)}
    sort, buckets = found["S1-S5: geomean of speed, ours / sort"], found["S1-S5: geomean of speed, ours / buckets"]
    assert (sort.value, sort.passed) == (pytest.approx(1.5), True)
    assert (buckets.value, buckets.passed) == (pytest.approx(1.2), False)
    del suites["S2"]
    assert not [one for one in table.results(suites) if "geomean" in one.measure]


def test_tables_name_every_order(table: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """With times and their noise, and without times."""
    suites = {"S3": measured(ROUNDS, cacheable=0)}
    table.print_table(suites)
    assert "noise: ours / ours 1.0000 [1.0000, 1.0000]" in capsys.readouterr().out
    table.print_counts(suites)
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()[1:]] == [
        "arrival",
        "sort",
        "buckets",
        "ours",
        "ideal",
    ]
    assert not [one for one in table.results(suites) if one.goal == "3a"]


def test_rounds_add_up_in_a_file(table: ModuleType, tmp_path: Path) -> None:
    """New rounds come behind those of the file; rounds of other work are refused by name."""
    from benchmarks.order import merged

    path, suite = tmp_path / "rounds.json", {"S1": measured(ROUNDS)}
    assert merged(path, suite) == suite
    path.write_text(json.dumps(suite))
    both = merged(path, {"S1": measured(ROUNDS), "S3": measured(ROUNDS)})
    assert [run["seconds"] for run in both["S1"]["rounds"]["arrival"]] == [4.0, 8, 2.9, 4.0, 8, 2.9]
    assert both["S3"] == measured(ROUNDS)
    with pytest.raises(ValueError, match="different S1"):
        merged(path, {"S1": measured(ROUNDS, cacheable=7)})
