"""The dry run: what it says, beside what is counted by hand, and that it leaves no run behind."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WriteJsonl = Callable[..., Path]

ECHO = ("--model", "echo", "--max-tokens", "5")
BLOCK = 32


def least(prompts: list[str], block_size: int = BLOCK) -> int:
    """The bound, from the set of all full blocks; a byte is a token."""
    seen: set[bytes] = set()
    computed = 0
    for prompt in sorted({prompt.encode() for prompt in prompts}):
        blocks = [prompt[:end] for end in range(block_size, len(prompt) + 1, block_size)]
        computed += len(prompt) - block_size * sum(block in seen for block in blocks if len(block) < len(prompt))
        seen.update(blocks)
    return computed


@pytest.fixture
def documents(write_jsonl: WriteJsonl) -> tuple[Path, list[str]]:
    """Forty documents of 320 bytes behind one instruction, each asked six times, all mixed; one row is no JSON."""
    rng = random.Random(5)
    about = "Answer the question about the text as briefly as you can. "
    texts = ["".join(rng.choices("abcdefgh ", k=320)) for _ in range(40)]
    prompts = [f"{about}{text} Question {i}: why?" for text in texts for i in range(6)]
    rng.shuffle(prompts)
    prompts.append(prompts[7])
    how = {"method": "POST", "url": "/v1/completions"}  # no chat template around it
    rows = [{"custom_id": str(i), **how, "body": {"prompt": prompt, "max_tokens": 5}} for i, prompt in enumerate(prompts)]
    return write_jsonl([*rows, "{"], "books.jsonl"), prompts


def test_the_numbers(cli: Any, documents: tuple[Path, list[str]]) -> None:
    """Counts, buckets, duplicates and the bound are as counted by hand; in a small cache our order reaches the bound, and
    the input's order is far from it."""
    path, prompts = documents
    blocks = ("--kv-cache-memory-bytes", "1", "--max-num-seqs", "4")  # the echo model has no KV of known size
    found = cli.json("plan", str(path), *ECHO, "--block-size", "32", *blocks)
    assert (found["rows"], found["requests"], found["rejects"], found["files"]) == (242, 241, 1, 1)
    assert (found["duplicates"], found["sequences"], found["reject_reasons"]) == (1, 240, {"malformed_json": 1})
    assert found["prompt_tokens"] == sum(len(prompt) for prompt in {*prompts})
    assert found["output_tokens"] == 240 * 5
    assert found["buckets"] == {"256": 0, "512": 240, "1024": 0, "2048": 0, "over": 0}
    assert found["ideal_prefill_tokens"] == least(prompts)
    assert found["planned_prefill_tokens"] == found["ideal_prefill_tokens"]
    assert found["ideal_prefill_tokens"] <= found["sorted_prefill_tokens"] <= found["arrival_prefill_tokens"]
    (source,) = found["sources"]
    assert (source["source"], source["requests"], source["duplicates"]) == ("books", 241, 1)
    top = source["prefixes"][0]
    assert top["num_requests"] == 240
    assert "as briefly as you can." in top["text"]
    assert (found["speed_up"], found["energy_kwh"]) == (None, None)


def test_a_small_cache(cli: Any, documents: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for a quarter of the documents the input's order computes most of them again, and ours none."""
    from tasks.core.config import Config, EngineConfig, InputConfig, ModelConfig, RowConfig, SamplingDefaults
    from tasks.forecast import forecast
    from tasks.progress import LogDisplay

    monkeypatch.setattr("tasks.engine.defaults._ASSUMED_TOKENS", 10 * 12 * BLOCK)
    path, _ = documents
    config = Config(
        InputConfig((path,), rows=RowConfig()),
        data=cli.data,
        checkpoints=cli.checkpoints,
        model=ModelConfig("echo"),
        sampling=SamplingDefaults(max_tokens=5),
        engine=EngineConfig(max_num_seqs=4, block_size=BLOCK),
    )
    found = forecast.forecast(config, LogDisplay())
    assert found.planned.prefill_tokens == found.ideal_prefill_tokens
    assert found.arrival.prefill_tokens > 2 * found.ideal_prefill_tokens
    assert found.planned.peak_kv_tokens <= 10 * 12 * BLOCK


def test_nothing_is_left_but_what_was_read(cli: Any, documents: tuple[Path, list[str]]) -> None:
    """No run is known afterwards; a run of the same files reads them no more, and plans the same number of sequences."""
    path, _ = documents
    found = cli.json("plan", str(path), *ECHO)
    assert cli.json("status") == []
    assert not [*(cli.data / "runs").glob("*"), *(cli.data / "tmp").glob("plan-*"), *cli.checkpoints.glob("*")]
    parts = {part: part.stat().st_mtime_ns for part in (cli.data / "requests").rglob("*.parquet")}
    assert cli.json("run", str(path), *ECHO)["sequences"] == found["sequences"]
    assert {part: part.stat().st_mtime_ns for part in (cli.data / "requests").rglob("*.parquet")} == parts


def test_tables_and_a_picture(cli: Any, documents: tuple[Path, list[str]]) -> None:
    """People get tables that name the bound, and a picture; a picture of an unknown kind is refused before all work."""
    path, _ = documents
    done = cli("plan", str(path), *ECHO, "--plot", str(cli.home / "night.png"))
    assert done.returncode == 0, done.stderr
    for words in ("1 malformed_json", "what orders reach", "the bound", "as in the input", "times are not known", "books"):
        assert words in done.stdout, words
    assert (cli.home / "night.png").read_bytes().startswith(b"\x89PNG")
    done = cli("plan", str(path), *ECHO, "--plot", "night.jpg")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--plot night.jpg: the file must end in one of .png, .svg, .pdf" in done.stderr


def test_too_many_rejects(cli: Any, write_jsonl: WriteJsonl) -> None:
    """A file that a run would refuse is judged all the same; the exit code is 1, and the note says why."""
    path = write_jsonl([{"prompt": "a"}, "{", "{"])
    done = cli("plan", str(path), *ECHO)
    assert done.returncode == 1
    assert "a run would stop before the engine starts: 2 of 3 rows were rejected" in " ".join(done.stdout.split())


def test_a_long_night_is_an_estimate_that_keeps_to_the_bound(cli: Any, write_jsonl: WriteJsonl) -> None:
    """Where more is planned than is simulated, and all that is shared is in one corner, the plan's order and a plain sort
    reach the bound, the input's order is not below it, and the tables say that they are estimates."""
    how = {"method": "POST", "url": "/v1/completions"}
    texts = [f"a{i:05d}" for i in range(7000)]
    texts += [f"m {'x' * 3000} {document} question {i}" for document in range(20) for i in range(10)]
    rows = [{"custom_id": str(i), **how, "body": {"prompt": text, "max_tokens": 5}} for i, text in enumerate(texts)]
    path = write_jsonl(rows)
    found = cli.json("plan", str(path), *ECHO)
    assert found["is_sampled"]
    assert found["planned_prefill_tokens"] == found["ideal_prefill_tokens"] == found["sorted_prefill_tokens"]
    assert found["arrival_prefill_tokens"] >= found["ideal_prefill_tokens"]
    assert found["planned_hit_rate"] == pytest.approx(found["ideal_hit_rate"])
    assert "estimated from twelve windows" in " ".join(cli("plan", str(path), *ECHO).stdout.split())


def test_caches_of_any_size(cli: Any, documents: tuple[Path, list[str]]) -> None:
    """A cache in which the longest sequence does not fit is refused, with one in which it does; a boundless one is cut."""
    from tasks.core.config import EngineConfig
    from tasks.core.errors import ConfigError
    from tasks.engine.defaults import likely_shape
    from tasks.forecast.forecast import _fitting
    from tasks.plan.make import rows_of
    from tasks.storage.planned import read_groups

    path, _ = documents
    cli.json("run", str(path), *ECHO)
    (groups,) = (cli.data / "runs").glob("*/groups/part-*.parquet")
    rows, _ = rows_of(read_groups(groups))
    small, _ = likely_shape(EngineConfig(kv_cache_memory_bytes=100_000), 1000, on_cpu=True)
    with pytest.raises(ConfigError, match=r"room for 96 tokens, and the longest .* --kv-cache-memory-bytes \d+ would do"):
        _fitting(small, rows, 1000)
    huge, _ = likely_shape(EngineConfig(kv_cache_memory_bytes=10**18), 1000, on_cpu=True)
    assert _fitting(huge, rows, 1000).num_blocks < 10_000
    assert cli.json("plan", str(path), *ECHO, "--block-size", "1000000")["peak_kv_tokens"] > 0


@pytest.mark.parametrize(
    ("place", "why"),
    [("folder", "that is a folder; name a file in it"), ("nowhere/n.png", "its folder does not exist")],
)
def test_a_picture_that_cannot_be_drawn(cli: Any, documents: tuple[Path, list[str]], place: str, why: str) -> None:
    """It is refused by its own name before anything is read."""
    (cli.home / "folder.png").mkdir()
    given = str(cli.home / ("folder.png" if place == "folder" else place))
    done = cli("plan", str(documents[0]), *ECHO, "--plot", given)
    assert done.returncode == 2
    assert f"nightbatch: --plot {given}: {why}" in done.stderr
    assert not cli.data.exists()
