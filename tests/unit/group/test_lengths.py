"""Output lengths: learnt by source, finer where it pays, never invented."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.group.lengths import UNKNOWN, History, LengthModel, curve


def history(**columns: Any) -> History:
    rows = len(columns["output_tokens"])
    return History(
        np.asarray(columns.get("sources", ["s"] * rows), dtype=np.str_),
        np.asarray(columns.get("prompt_tokens", [10] * rows), dtype=np.int32),
        np.asarray(columns["output_tokens"], dtype=np.int32),
        np.asarray(columns.get("was_cut", [False] * rows), dtype=np.bool_),
        columns.get("vectors"),
    )


def predict(model: LengthModel, sources: list[str], max_tokens: int = 500, **more: Any) -> list[int]:
    number = len(sources)
    names = sorted(set(sources))
    ids = np.array([names.index(name) for name in sources], dtype=np.int32)
    prompts = np.asarray(more.pop("prompt_tokens", [10] * number), dtype=np.int32)
    found: list[int] = model.predict(names, ids, prompts, np.full(number, max_tokens, np.int32), **more).tolist()
    return found


def test_each_source_has_its_own_length() -> None:
    """Medians by source; a source that was never seen is unknown, and max_tokens is an upper bound."""
    sources = ["long"] * 101 + ["short"] * 101
    model = LengthModel.fit(history(sources=sources, output_tokens=[*range(200, 301), *range(10, 111)]))
    long, short, new = predict(model, ["long", "short", "new"])
    assert [long, short] == pytest.approx([250, 60], abs=3)
    assert new == UNKNOWN
    assert predict(model, ["long", "short", "new"], max_tokens=20) == [20, 20, UNKNOWN]
    assert (
        predict(model, ["short"], quantile=0.9)[0]
        > predict(model, ["short"])[0]
        > predict(model, ["short"], quantile=0.1)[0]
    )


def test_few_rows_lean_on_all_others() -> None:
    """One odd answer does not make a source's length."""
    model = LengthModel.fit(history(sources=["many"] * 99 + ["few"], output_tokens=[50] * 99 + [4000]))
    assert predict(model, ["few"], max_tokens=5000) == [50]


def test_cut_answers_count_as_longer() -> None:
    """Product-limit estimate by hand: 1, 2+, 3, 4+ leave 3/4 beyond 1 and 3/8 beyond 3; the rest was never seen."""
    of = curve(np.array([4, 3, 2, 1], np.int32), np.array([True, False, True, False]))
    assert of.lengths.tolist() == [1, 3]
    assert of.survival.tolist() == [0.75, 0.375]
    assert [of.quantile(share) for share in (0.1, 0.25, 0.3, 0.6, 0.7)] == [1, 1, 3, 3, np.inf]


def test_what_was_always_cut_is_as_long_as_allowed() -> None:
    """A median beyond every answer that was seen whole is bounded by max_tokens alone."""
    model = LengthModel.fit(history(output_tokens=[64] * 90, was_cut=[True] * 90))
    assert predict(model, ["s"], max_tokens=64) == [64]
    assert predict(model, ["s"], max_tokens=1000) == [1000]


def kinds(number: int) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Vectors in two directions, and lengths that go with them."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(scale=0.05, size=(number, 16))
    vectors[::2, 0] += 1
    vectors[1::2, 1] += 1
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float32), (np.where(np.arange(number) % 2, 300, 20) + rng.integers(0, 9, number)).astype(
        np.int32
    )


def test_clusters_are_used_where_they_pay() -> None:
    """A source with two kinds of prompts is divided by cluster; without vectors it is taken whole."""
    vectors, lengths = kinds(200)
    model = LengthModel.fit(history(output_tokens=lengths, vectors=vectors))
    assert model.divided_by == {"s": "cluster"}
    found = np.array(predict(model, ["s"] * 200, vectors=vectors))
    assert np.abs(found - lengths).mean() < 15
    assert len(set(predict(model, ["s"] * 200))) == 1


def test_clusters_that_tell_nothing_are_left_out() -> None:
    """Lengths that have nothing to do with the vectors leave the source whole."""
    vectors, _ = kinds(400)
    for seed in range(5):
        lengths = np.random.default_rng(seed).integers(10, 300, 400)
        assert LengthModel.fit(history(output_tokens=lengths, vectors=vectors)).divided_by == {"s": "source"}


def test_prompt_lengths_are_used_where_they_pay() -> None:
    """A source whose answers grow with its prompts is divided by prompt length."""
    prompts = np.tile(np.arange(10, 410), 2)
    model = LengthModel.fit(history(output_tokens=prompts // 2, prompt_tokens=prompts))
    assert model.divided_by == {"s": "prompt length"}
    short, long = predict(model, ["s", "s"], prompt_tokens=[20, 400])
    assert short < 50 < 150 < long


def test_no_rows_make_a_model_that_knows_nothing() -> None:
    """An empty history predicts nothing."""
    assert predict(LengthModel.fit(history(output_tokens=[])), ["s"]) == [UNKNOWN]
