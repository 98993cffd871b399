"""Near-duplicates: what may be merged, into what, and what never is."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.core.errors import ConfigError
from tasks.engine.models import resolve_encoder
from tasks.group.near import Candidate, context_of, find_near_duplicates, merged
from tasks.group.semantic import Encoder, SentenceEncoder


class AngleEncoder:
    """A text's vector points into the direction that stands in front of it, in degrees: "30: hello"."""

    def __init__(self) -> None:
        self.embedded: list[str] = []

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.embedded += texts
        angles = np.radians([float(text.split(":")[0].strip("abc")) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    def reads_whole(self, texts: Sequence[str]) -> list[bool]:
        return ["too long" not in text for text in texts]


def cosine(degrees: float) -> float:
    return float(np.cos(np.radians(degrees)))


def angles(*degrees: float) -> NDArray[np.float32]:
    radians = np.radians(degrees)
    return np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)


def never() -> Encoder:
    raise AssertionError("no encoder is needed")


def candidate(one: Any) -> Candidate:
    return Candidate(one.request_id, one.source, one.text, one.sampling, one.n, one.context)


@pytest.fixture
def merge(grouped: Callable[..., Any]) -> Callable[..., Any]:
    """Groups requests and merges those that are near."""

    def make(requests: list[Any], encoder: Encoder, threshold: float = 0.9) -> Any:
        def find(source: str, ids: frozenset[str]) -> Any:
            known = sorted((candidate(one) for one in requests), key=lambda one: one.request_id)
            mine = [one for one in known if one.source == source and one.request_id in ids]
            return find_near_duplicates(mine, lambda: encoder, threshold)

        return grouped(requests, find_near=find)

    return make


def test_likeness_does_not_drift() -> None:
    """Steps of 10 degrees: what is within 15 of a kept one is merged into it, and what is not is kept, chain or no chain."""
    found = merged(angles(0, 10, 20, 30, 40), cosine(15))
    assert [(copy, original) for copy, original, _ in found] == [(1, 0), (3, 2)]
    assert [near for _, _, near in found] == pytest.approx([cosine(10), cosine(10)])


def test_the_nearest_of_several_is_taken() -> None:
    """Of two kept ones within reach the nearer is the original, whichever came first."""
    assert [found[:2] for found in merged(angles(0, 20, 12, 8), cosine(15))] == [(2, 1), (3, 0)]


def test_equal_vectors_reach_a_threshold_of_one() -> None:
    """Rounding does not keep equal vectors apart, and a similarity is never above one."""
    vectors = np.random.default_rng(0).normal(size=(1, 384)).astype(np.float32)
    vectors = np.repeat(vectors / np.linalg.norm(vectors), 50, axis=0)
    found = merged(vectors, 1.0)
    assert len(found) == 49
    assert max(near for _, _, near in found) <= 1


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small blocks find what plain comparison one by one finds."""
    vectors = np.random.default_rng(1).normal(size=(400, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    kept: list[int] = []
    expected = []
    for row in range(len(vectors)):
        near = [float(vectors[row] @ vectors[other]) for other in kept]
        if near and max(near) >= 0.9:
            expected.append((row, kept[int(np.argmax(near))]))
        else:
            kept.append(row)
    monkeypatch.setattr("tasks.group.near._BLOCK", 7)
    monkeypatch.setattr("tasks.group.near._KEPT_BLOCK", 11)
    assert [found[:2] for found in merged(vectors, 0.9)] == expected
    assert 100 < len(expected) < 400


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"max_tokens": 9}),
        ({"n": 2}, {}),
        ({}, {"source": "other"}),
        ({}, {"text": "b1: y", "context": "another system prompt"}),
        ({"temperature": 0.5}, {"temperature": 0.5}),
        ({"text": "a1: order 17"}, {"text": "b1: order 18"}),
        ({"text": "a1: x"}, {"text": "b1: too long"}),
        ({"text": "a1: x"}, {"text": "b80: x"}),
    ],
    ids=["sampling", "n", "source", "context", "chance", "numbers", "not read", "not near"],
)
def test_what_is_never_merged(ask: Any, merge: Any, first: dict[str, Any], second: dict[str, Any]) -> None:
    """Other parameters, turns or numbers, another source, chance, a text beyond the encoder keep requests apart."""
    assert merge([_one(ask, 0), _one(ask, 1)], AngleEncoder()).duplicate_of == {"src/1": "src/0"}
    assert merge([_one(ask, 0, **first), _one(ask, 1, **second)], AngleEncoder()).duplicate_of == {}


def _one(ask: Any, i: int, **given: Any) -> Any:
    """One of two requests that are near unless they are given something else."""
    return ask(str(i), (i,), **{"text": f"{'ab'[i]}1: x", **given})


def test_a_merged_request_is_in_no_group(ask: Any, merge: Any) -> None:
    """The first by id is kept; an exact duplicate of a merged one goes with it; other exact duplicates have no cosine."""
    members = [
        ask("4", (1,), text="a1: what is it"),
        ask("1", (0,), text="1: what is it"),
        ask("2", (1,), text="a1: what is it"),
        ask("3", (0,), text="1: what is it"),
        ask("5", (2,), text="b80: what is it"),
    ]
    grouping = merge([*members, ask("6", (3,), text="a1: by chance", temperature=1)], AngleEncoder())
    kept = [request_id for of in grouping.groups.values() for request_id in of]
    assert sorted(kept) == ["src/1", "src/5", "src/6"]
    assert grouping.duplicate_of == {"src/2": "src/1", "src/3": "src/1", "src/4": "src/1"}
    assert grouping.similarity == {"src/2": pytest.approx(1), "src/4": pytest.approx(1)}
    assert merge(members[::-1], AngleEncoder()).duplicate_of == grouping.duplicate_of


def test_nothing_is_embedded_in_vain(ask: Any, merge: Any) -> None:
    """With nothing to compare no encoder is opened; else only what has a counterpart is embedded, each text once."""
    lone = [ask("1", (1,), text="1: a"), ask("2", (2,), text="2: b")]  # other numbers
    assert find_near_duplicates([candidate(one) for one in lone], never, 0.9) == {}
    encoder = AngleEncoder()
    texts = ["a1: x", "b1: x", "a1: x", "7: chance", "a1: too long"]
    members = [ask(str(i), (i,), text=text, temperature=float("7" in text)) for i, text in enumerate(texts)]
    merge(members, encoder)
    assert encoder.embedded == ["a1: x", "b1: x"]


def test_too_many_texts_are_refused(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source beyond what can be compared is named, with the numbers and the way out, before anything is embedded."""
    monkeypatch.setattr("tasks.group.near.MAX_COMPARED", 3)
    members = [candidate(ask(str(i), (i,), text="a" * i + "1: x")) for i in range(4)]
    with pytest.raises(ConfigError, match=r"source 'src' has 4 texts to compare, and at most 3"):
        find_near_duplicates(members, never, 0.9)


def test_the_context_is_all_but_the_last_users_text() -> None:
    """Another system prompt, earlier turn, name or tool is another context; another last text, in parts or not, is none."""

    def chat(system: str = "s", text: Any = "t", **more: Any) -> str:
        turns = [{"role": "system", "content": system}, {"role": "user", "content": text, **more}]
        return json.dumps([*turns, {"role": "assistant", "content": "so"}])

    same = context_of(chat(), None)
    assert same == context_of(chat(text="other"), None) == context_of(chat(text=[{"type": "text", "text": "t"}]), None)
    others = [
        context_of(chat("S"), None),
        context_of(chat(name="ann"), None),
        context_of(chat(), "[]"),
        context_of(None, None),
    ]
    assert len({same, *others}) == 5
    assert context_of('[{"role": "system", "content": "a"}]', None) != context_of(
        '[{"role": "system", "content": "b"}]', None
    )


@pytest.mark.filterwarnings("ignore")  # the libraries' own deprecations
def test_with_the_real_encoder(ask: Any) -> None:
    """Case, spacing and a missing question mark are near; another question, number or unknown script is not."""
    texts = [
        "How do I block my card?",
        "how do I block my card",
        "How do I  block my card??",
        "How do I unblock my card?",
        "Where is my parcel?",
        "What is 17 + 4?",
        "What is 18 + 4?",
        "你好，世界",
        "您好，世間",
    ]
    members = [candidate(ask(str(i), (i,), text=text)) for i, text in enumerate(texts)]
    found = find_near_duplicates(members, lambda: SentenceEncoder(resolve_encoder("all-MiniLM-L6-v2").path), 0.98)
    assert {copy: near.original for copy, near in found.items()} == {"src/1": "src/0", "src/2": "src/0"}
    assert all(0.98 <= near.similarity <= 1 for near in found.values())
