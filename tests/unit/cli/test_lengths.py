"""The lengths of answers, learnt from earlier runs through the command."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ECHO = ("--model", "echo")
WriteJsonl = Callable[..., Path]


@pytest.fixture
def night(cli: Any, write_jsonl: WriteJsonl) -> Callable[[str], dict[str, int]]:
    """Runs a hundred questions each of two sources, of which one is answered at length, and of a third that no other night
    has; the predicted lengths by source, -1 for none."""

    def run(name: str) -> dict[str, int]:
        for source, length in (("brief", 1), ("long", 60), (f"only-{name}", 1)):
            how = {"method": "POST", "url": "/v1/completions"}
            body = {"min_tokens": length, "max_tokens": 200}
            rows = [{"custom_id": str(i), **how, "body": {**body, "prompt": f"{name} {source} {i}"}} for i in range(100)]
            write_jsonl(rows, f"{name}/{source}/x.jsonl")
        found = cli.json("run", str(cli.home / name), *ECHO)
        plan = f"read_parquet('{cli.data}/runs/{found['run_id']}/plan/*.parquet')"
        rows = cli.sql(f"select source, median(coalesce(predicted_tokens, -1))::int as n from {plan} group by source")
        return {row["source"]: row["n"] for row in rows}

    return run


def test_lengths_are_learnt_from_the_night_before(cli: Any, night: Callable[[str], dict[str, int]]) -> None:
    """The first night knows no length; the second one those of the sources that the first one had, of the size that they
    have, and the dry run says how many are predicted."""
    assert night("monday") == {"brief": -1, "long": -1, "only-monday": -1}
    answered = cli.sql("select source, median(output_tokens)::int as n from results group by source")
    actual = {row["source"]: row["n"] for row in answered}
    known = night("tuesday")
    assert known["only-tuesday"] == -1
    assert abs(known["brief"] - actual["brief"]) <= 10
    assert abs(known["long"] - actual["long"]) <= 10
    assert known["long"] > known["brief"] + 40
    assert cli.json("plan", str(cli.home / "tuesday"), *ECHO)["num_predicted"] >= 200
