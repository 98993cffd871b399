"""Real sentences for made-up work: those of the samples, or of any folder of JSON lines, drawn with a seed."""

import json
import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.rig import REPOSITORY

SAMPLES = REPOSITORY / "data/samples"
_END = re.compile(r"(?<=[.?!。؟])\s+|\n+")


class Texts:
    """Texts of sentences in random order; the same seed gives the same texts."""

    def __init__(self, seed: int, folder: Path = SAMPLES) -> None:
        self.rng = random.Random(seed)
        self._sentences = sentences(folder)

    def sentence(self) -> str:
        return self.rng.choice(self._sentences)

    def words(self, number: int) -> str:
        """The first words of a sentence."""
        return " ".join(self.sentence().split()[:number])[:40]

    def passage(self, num_chars: int) -> str:
        """Whole sentences, up to the first that makes it this long."""
        drawn: list[str] = []
        while sum(map(len, drawn)) < num_chars:
            drawn.append(self.sentence())
        return " ".join(drawn)


@cache
def sentences(folder: Path) -> tuple[str, ...]:
    """All sentences of 20 to 160 characters in the folder's JSON lines, each once, in order. Raises ValueError if it has
    none."""
    found: dict[str, None] = {}
    for path in sorted(folder.rglob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            for text in _texts(json.loads(line) if line.startswith("{") and line.endswith("}") else None):
                found |= dict.fromkeys(part for part in _END.split(text) if 20 <= len(part) <= 160)
    if not found:
        raise ValueError(f"{folder} has no JSON lines with sentences; give a folder that does, or none for the samples")
    return tuple(found)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)
