"""Relational tables as businesses have them, made up with fixed seeds: skewed values, columns that follow from others.

A table is codes and texts: what a row has in a field is that field's text of the row's code. Columns stand in an order that
a user might have them in, the key first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.workloads import chats

Codes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Table:
    """`codes` has a row for each row; `texts` has the values of each field."""

    name: str
    names: tuple[str, ...]
    codes: Codes
    texts: tuple[tuple[str, ...], ...]

    @property
    def lengths(self) -> Codes:
        """Of each cell's line in a prompt, in bytes."""
        columns = [
            np.array([len(name) + len(text.encode()) + 3 for text in texts])[self.codes[:, field]]
            for field, (name, texts) in enumerate(zip(self.names, self.texts, strict=True))
        ]
        return np.stack(columns, axis=1)

    def rows(self) -> list[list[tuple[str, str]]]:
        """Each row as names and values."""
        return [
            [(name, texts[code]) for name, texts, code in zip(self.names, self.texts, row, strict=True)]
            for row in self.codes.tolist()
        ]


class _Maker:
    """Columns of one table, drawn one after another."""

    def __init__(self, num_rows: int, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._words = [word for turns in chats() for turn in turns for word in turn["content"].split()]
        self.num_rows = num_rows
        self.columns: list[tuple[str, Codes, tuple[str, ...]]] = []

    def add(self, name: str, codes: Codes, num_words: int) -> Codes:
        """A column whose values are texts of about so many words, each different."""
        _, codes = np.unique(codes, return_inverse=True)
        sizes = self._rng.poisson(num_words, codes.max() + 1)
        begins = self._rng.integers(0, len(self._words) - int(sizes.max()) - 1, len(sizes))
        places = enumerate(zip(begins, sizes, strict=True))
        texts = [f"{' '.join(self._words[begin : begin + size])} {i}" for i, (begin, size) in places]
        self.columns.append((name, codes, tuple(texts)))
        return codes

    def unique(self) -> Codes:
        return self._rng.permutation(self.num_rows)

    def skewed(self, num_values: int, exponent: float) -> Codes:
        """Values whose frequency falls as a power of their rank (Zipf)."""
        weights = 1 / np.arange(1, num_values + 1) ** exponent
        return self._rng.choice(num_values, self.num_rows, p=weights / weights.sum())

    def follows(self, codes: Codes, num_values: int, noise: float = 0.0) -> Codes:
        """What another column determines, but for a share of the rows."""
        found = self._rng.integers(0, max(num_values, 1), codes.max() + 1)[codes]
        return np.where(self._rng.random(self.num_rows) < noise, self.skewed(max(num_values, 1), 0.0), found)

    def table(self, name: str) -> Table:
        names, codes, texts = zip(*self.columns, strict=True)
        return Table(name, names, np.stack(codes, axis=1), texts)


def reviews(num_rows: int, seed: int) -> Table:
    """Reviews joined with their products."""
    make = _Maker(num_rows, seed)
    make.add("review_id", make.unique(), 0)
    product = make.skewed(max(2, num_rows // 12), 0.9)
    make.add("review", make.skewed(num_rows, 0.3), 25)
    make.add("rating", make.skewed(5, 0.8), 0)
    make.add("verified", make.skewed(2, 0.5), 0)
    make.add("title", product, 8)
    make.add("description", make.follows(product, num_rows // 15), 60)
    brand = make.add("brand", make.follows(product, max(2, num_rows // 100)), 2)
    make.add("category", make.follows(brand, 24), 3)
    make.add("language", make.skewed(7, 1.2), 0)
    make.add("seller", make.follows(brand, max(2, num_rows // 300), 0.2), 3)
    return make.table("reviews")


def tickets(num_rows: int, seed: int) -> Table:
    """Tickets of a help desk: little text is shared, and fields of a few values compete."""
    make = _Maker(num_rows, seed)
    make.add("ticket", make.unique(), 0)
    customer = make.add("customer", make.skewed(max(2, num_rows // 5), 0.7), 2)
    make.add("plan", make.follows(customer, 4), 1)
    make.add("country", make.follows(customer, 30, 0.02), 1)
    make.add("subject", make.skewed(max(2, num_rows // 3), 1.0), 7)
    make.add("product", make.skewed(40, 1.1), 3)
    make.add("version", make.skewed(12, 0.7), 1)
    make.add("agent", make.skewed(60, 0.4), 2)
    make.add("priority", make.skewed(4, 1.0), 0)
    make.add("answer", make.skewed(max(2, num_rows // 20), 0.8), 45)
    return make.table("tickets")


def passages(num_rows: int, seed: int) -> Table:
    """Questions joined with the passages found for them: long texts in every order."""
    make = _Maker(num_rows, seed)
    make.add("question", make.follows(make.unique(), max(2, num_rows // 3)), 12)
    for i in range(3):
        source = make.add(f"passage_{i}", make.skewed(max(2, num_rows // 6), 0.8), 50)
        make.add(f"source_{i}", make.follows(source, max(2, num_rows // 60)), 4)
    make.add("task", make.skewed(3, 0.3), 15)
    make.add("model", make.skewed(6, 0.5), 1)
    make.add("score", make.skewed(100, 0.0), 0)
    return make.table("passages")


def mixed(num_rows: int, seed: int) -> Table:
    """Columns of random kinds and widths."""
    make = _Maker(num_rows, seed)
    rng = np.random.default_rng(seed)
    for i in range(10):
        kinds = (
            int(rng.integers(2, 12)),
            max(3, int(num_rows ** rng.uniform(0.4, 0.7))),
            max(2, num_rows // int(rng.integers(2, 6))),
        )
        num_values = int(rng.choice([*kinds, num_rows], p=[0.4, 0.3, 0.2, 0.1]))
        codes = make.skewed(num_values, rng.uniform(0, 1.5))
        if make.columns and rng.random() < 0.2:
            codes = make.follows(
                make.columns[int(rng.integers(len(make.columns)))][1], num_values // 2, rng.choice([0, 0.02])
            )
        make.add(f"field_{i}", codes, int(rng.choice([0, 1, 2, 8, 25, 80])))
    return make.table("mixed")


KINDS: Sequence[Callable[[int, int], Table]] = (reviews, tickets, passages, mixed)
