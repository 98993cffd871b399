"""Goal 15: how fast prompts become vectors and clusters, and what the static encoder's vectors are worth beside MiniLM's.

Speed: rows a second of embedding and clustering, beside the tokenizer alone and beside MiniLM, in turns. Quality: how often
the nearest other question has the same label, its intent (banking77) or its passage (XQuAD, by language).
"""

import csv
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.engine import MODEL
from benchmarks.ingest import opened, write_requests
from benchmarks.nights import passages
from benchmarks.rig import Result, interval, result
from tasks.engine.models import resolve_encoder, resolve_model
from tasks.group.clusters import split
from tasks.group.lengths import centred
from tasks.group.semantic import SentenceEncoder
from tasks.group.static import open_static_encoder

NAME = "semantics"
CLUSTER_SIZE = 32
_MINILM_ROWS = 256
Vectors = NDArray[np.float32]


def csr(rows: Sequence[Sequence[int]]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Rows of token ids, flat and with offsets."""
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return np.fromiter((token for row in rows for token in row), np.int32, int(offsets[-1])), offsets


def static_vectors(rows: Sequence[Sequence[int]]) -> Vectors:
    """Of these prompts, counted among themselves, without their mean."""
    encoder, flat = open_static_encoder(resolve_model(MODEL).path, opened().vocab_size), csr(rows)
    encoder.fit(*flat)
    vectors = encoder.embed_tokens(*flat)
    return centred(vectors, vectors.mean(axis=0))


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def measure_speed(num_rows: int, pairs: int) -> list[Result]:
    """Ratios of rows a second."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_requests(Path(folder) / "short.jsonl", "short", num_rows)
        chats = [json.loads(line)["body"]["messages"] for line in path.read_text(encoding="utf-8").splitlines()]
    tokenizer = opened()  # once: it takes a second
    prompts = [tokenizer.render(turns) for turns in chats]
    minilm = SentenceEncoder(resolve_encoder("all-MiniLM-L6-v2").path)
    texts = [turns[-1]["content"] for turns in chats[:_MINILM_ROWS]]
    ids = tokenizer.encode(prompts, rendered=[True] * len(prompts))
    encoder, flat = open_static_encoder(resolve_model(MODEL).path, opened().vocab_size), csr(ids)

    def embed_and_cluster() -> None:
        encoder.fit(*flat)
        vectors = encoder.embed_tokens(*flat)
        split(centred(vectors, vectors.mean(axis=0)), CLUSTER_SIZE)

    def tokenise() -> float:
        fresh = opened()
        return _seconds(lambda: fresh.encode(prompts, rendered=[True] * len(prompts)))

    embed_and_cluster()
    ratios: dict[str, list[float]] = {"tokenizer": [], "MiniLM": [], "aa": [], "rows/s": []}
    for _ in range(pairs):
        bare, ours, again = tokenise(), _seconds(embed_and_cluster), _seconds(embed_and_cluster)
        slow = _seconds(lambda: minilm.embed(texts)) / len(texts) * num_rows
        for name, value in (("tokenizer", bare / ours), ("MiniLM", slow / ours), ("aa", again / ours)):
            ratios[name].append(value)
        ratios["rows/s"].append(num_rows / ours)
    detail = {"aa": str(interval(ratios["aa"])), "rows": num_rows, "rows/s": float(np.median(ratios["rows/s"]))}
    beside, faster = interval(ratios["tokenizer"]), interval(ratios["MiniLM"])
    measure = "rows/s of embedding and clustering /"
    return [
        result(NAME, "15", f"{measure} tokenizer alone", beside, ">= 0.5", beside.low >= 0.5, **detail),
        result(NAME, "15", f"{measure} MiniLM embedding alone", faster, ">= 50", faster.low >= 50, **detail),
    ]


def labelled(corpus: Path, most: int) -> dict[str, tuple[list[str], NDArray[np.intp]]]:
    """Questions with the number of their label."""
    with (corpus / "banking77/test.csv").open(encoding="utf-8", newline="") as file:
        bank = list(csv.DictReader(file))[:: 3080 // most]
    sets = {
        "banking77": ([row["text"] for row in bank], np.unique([row["category"] for row in bank], return_inverse=True)[1])
    }
    by_language: dict[str, list[tuple[str, int]]] = {}
    for language, number, _, question in passages(corpus):
        by_language.setdefault(language, []).append((question["question"], number))
    for language, rows in by_language.items():
        some = rows[:most]  # neighbours in the file share their passage
        sets[f"XQuAD {language}"] = ([text for text, _ in some], np.array([number for _, number in some]))
    return sets


def _same_label(vectors: Vectors, labels: NDArray[np.intp]) -> NDArray[np.bool_]:
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -2)
    found: NDArray[np.bool_] = labels[cosines.argmax(axis=1)] == labels
    return found


def measure_merging(corpus: Path) -> list[Result]:
    """Of the 300 most alike pairs of banking77's questions, how many have one intent: may an answer be shared?"""
    texts, labels = labelled(corpus, 3080)["banking77"]
    ids = opened().encode(texts, rendered=[True] * len(texts))
    minilm = SentenceEncoder(resolve_encoder("all-MiniLM-L6-v2").path)
    shares = []
    for vectors in (static_vectors(ids), minilm.embed(texts)):
        cosines = np.triu(vectors @ vectors.T, 1)
        first, second = np.unravel_index(np.argpartition(-cosines, 300, axis=None)[:300], cosines.shape)
        shares.append(float((labels[first] == labels[second]).mean()))
    measure = "banking77: the 300 nearest pairs have one intent"
    return [result(NAME, "15", measure, shares[0], ">= MiniLM", shares[0] >= shares[1], MiniLM=shares[1])]


def measure_quality(corpus: Path, most: int) -> list[Result]:
    """The static encoder's share of right neighbours; MiniLM's beside it."""
    minilm, results = SentenceEncoder(resolve_encoder("all-MiniLM-L6-v2").path), []
    shares: list[tuple[float, float]] = []
    for name, (texts, labels) in labelled(corpus, most).items():
        ids = opened().encode(texts, rendered=[True] * len(texts))
        ours, theirs = (_same_label(vectors, labels).mean() for vectors in (static_vectors(ids), minilm.embed(texts)))
        shares.append((ours, theirs))
        measure = f"{name}: nearest question has the same label"
        results.append(result(NAME, "15", measure, float(ours), "-", True, MiniLM=float(theirs), rows=len(texts)))
    ours, theirs = np.mean(shares[1:], axis=0)
    measure = "XQuAD, mean of languages: nearest question has the same label"
    results.append(result(NAME, "15", measure, float(ours), ">= MiniLM", bool(ours >= theirs), MiniLM=float(theirs)))
    return results
