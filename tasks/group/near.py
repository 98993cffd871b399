"""Requests that ask nearly the same: which of them get the answer of an earlier one. Off unless asked for.

Two requests are compared when nothing but their last user's text tells them apart, when that text has the same numbers, and
when the encoder reads all of it: what it cuts off or does not know it cannot compare. A request is merged into one that is
answered itself, never into one that was merged, so that likeness does not drift from one to the next.
"""

import hashlib
import json
import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.core.errors import ConfigError
from tasks.core.request import SamplingParams
from tasks.group.semantic import Encoder

MAX_COMPARED = 100_000
"""Texts of one source: a quarter of an hour of embedding or more, and 150 MB of vectors."""

_BLOCK = 1024
_KEPT_BLOCK = 8192
_ROUNDING = 1e-6
"""By how much equal vectors may miss a cosine of one, in 32 bits."""

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is compared of a request: its last user's text, and what stands for all of the prompt besides."""

    request_id: str
    source: str
    text: str
    sampling: SamplingParams
    n: int = 1
    context: str = ""


@dataclass(frozen=True, slots=True)
class Near:
    """The request whose answer is given, and the cosine of the two texts."""

    original: str
    similarity: float


def find_near_duplicates(
    members: Sequence[Candidate], open_encoder: Callable[[], Encoder], threshold: float
) -> dict[str, Near]:
    """Of one source's requests those that are merged, by id. Among alike requests the first one is kept, and of several that
    were kept the nearest is taken. Raises ConfigError when there are more texts than can be compared."""
    alike = _alike(members)
    texts = list(dict.fromkeys(member.text for of in alike for member in of))
    if len(texts) > MAX_COMPARED:
        raise ConfigError(
            f"merge_near_duplicates: source {members[0].source!r} has {len(texts):,} texts to compare, and at most "
            f"{MAX_COMPARED:,} of one source can be; split the source, or leave the option away for it"
        )
    if not texts:
        return {}
    encoder = open_encoder()
    is_read = dict(zip(texts, encoder.reads_whole(texts), strict=True))
    alike = [of for all_of in alike if len(of := [member for member in all_of if is_read[member.text]]) > 1]
    texts = list(dict.fromkeys(member.text for of in alike for member in of))
    if not texts:
        return {}
    row_of = {text: row for row, text in enumerate(texts)}
    vectors = encoder.embed(texts)
    near: dict[str, Near] = {}
    for of in alike:
        for copy, original, cosine in merged(vectors[[row_of[member.text] for member in of]], threshold):
            near[of[copy].request_id] = Near(of[original].request_id, cosine)
    return near


def context_of(messages: str | None, tools: str | None) -> str:
    """A digest of all that the model reads besides the last user's text; "raw" for a prompt that has nothing else."""
    if messages is None:
        return "raw"
    turns = json.loads(messages)
    asking = max((i for i, turn in enumerate(turns) if turn["role"] == "user"), default=None)
    if asking is not None:
        turns[asking] = {**turns[asking], "content": None}
    around = json.dumps([turns, tools], sort_keys=True)
    return hashlib.blake2b(around.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def merged(vectors: NDArray[np.float32], threshold: float) -> list[tuple[int, int, float]]:
    """(row, earlier row that is not merged itself, cosine) of each unit vector that is near enough to one.

    Block by block: memory is the vectors twice, and the products of two blocks.
    """
    found: list[tuple[int, int, float]] = []
    kept = np.empty_like(vectors)
    kept_rows: list[int] = []
    for start in range(0, len(vectors), _BLOCK):
        block = vectors[start : start + _BLOCK]
        cosines, places = _nearest(block, kept[: len(kept_rows)])
        within = block @ block.T
        own: list[int] = []
        for i, (cosine, place) in enumerate(zip(cosines.tolist(), places.tolist(), strict=True)):
            original = kept_rows[place] if place >= 0 else -1
            if own and (nearest := within[i, own]).max() > cosine:
                cosine, original = float(nearest.max()), start + own[int(nearest.argmax())]
            if cosine >= threshold - _ROUNDING:
                found.append((start + i, original, min(1.0, cosine)))
            else:
                own.append(i)
        kept[len(kept_rows) : len(kept_rows) + len(own)] = block[own]
        kept_rows += [start + i for i in own]
    return found


def _nearest(block: NDArray[np.float32], kept: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """Each row's largest cosine with one of `kept`, and the first place of it; -2 and -1 where nothing is kept."""
    cosines, places = np.full(len(block), -2, dtype=np.float32), np.full(len(block), -1, dtype=np.intp)
    for start in range(0, len(kept), _KEPT_BLOCK):
        products = block @ kept[start : start + _KEPT_BLOCK].T
        best = products.argmax(axis=1)
        values = products[np.arange(len(block)), best]
        is_nearer = values > cosines
        cosines[is_nearer], places[is_nearer] = values[is_nearer], best[is_nearer] + start
    return cosines, places


def _alike(members: Sequence[Candidate]) -> list[list[Candidate]]:
    """Requests whose answers would differ for their texts' sake alone, where there are two or more of a kind."""
    kinds: dict[Hashable, list[Candidate]] = {}
    for member in members:
        if member.sampling.is_deterministic:
            kind = (member.context, member.n, member.sampling.to_json(), tuple(_NUMBER.findall(member.text)))
            kinds.setdefault(kind, []).append(member)
    return [of for of in kinds.values() if len(of) > 1]
