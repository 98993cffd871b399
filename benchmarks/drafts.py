"""Goal 16 (b), counted exactly from finished greedy answers: how many tokens of a draft each decode step would accept.

A draft is what followed the longest match of the last tokens (two to four) in a corpus of finished answers, or in the
sequence's own prompt and answer (prompt lookup); it is accepted as far as it equals the answer. Under greedy sampling the
answer does not depend on the drafts, so that the count is what an engine would see. Idea of drafting from finished answers:
arXiv 2411.04975.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_SHORTEST, _LONGEST = 2, 4
DRAFT_TOKENS = 4


@dataclass(frozen=True, slots=True)
class Count:
    """Decode steps, and the tokens that they gave."""

    steps: int
    tokens: int

    @property
    def accepted(self) -> float:
        """Draft tokens accepted by a step."""
        return self.tokens / self.steps - 1

    def __add__(self, other: "Count") -> "Count":
        return Count(self.steps + other.steps, self.tokens + other.tokens)


class Corpus:
    """Token ids, and where each run of a few tokens was last followed by something."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}
        self._start = 0

    def begin(self) -> None:
        """What follows is another text."""
        self._tokens.append(-1)
        self._start = len(self._tokens)

    def append(self, token: int) -> None:
        end = len(self._tokens)
        for length in range(_SHORTEST, min(_LONGEST, end - self._start) + 1):
            self._after[tuple(self._tokens[end - length : end])] = end
        self._tokens.append(token)

    def add(self, tokens: Iterable[int]) -> None:
        self.begin()
        for token in tokens:
            self.append(token)

    def draft(self, last: Sequence[int]) -> tuple[int, list[int]]:
        """The length of the longest match, and what followed it."""
        for length in range(min(_LONGEST, len(last)), _SHORTEST - 1, -1):
            if (place := self._after.get(tuple(last[-length:]))) is not None:
                following = self._tokens[place : place + DRAFT_TOKENS]
                return length, following[: following.index(-1)] if -1 in following else following
        return 0, []


def decode(prompt: Sequence[int], answer: Sequence[int], corpus: Corpus | None, use_own: bool) -> Count:
    """One sequence: the longer match drafts, its own text if they are equal."""
    own, seen, steps, done = Corpus(), list(prompt), 0, 0
    if use_own:
        own.add(prompt)
    while done < len(answer):
        length, draft = corpus.draft(seen[-_LONGEST:]) if corpus else (0, [])
        if use_own:
            own_length, own_draft = own.draft(seen[-_LONGEST:])
            draft = own_draft if own_length >= length else draft
        accepted = 0
        while accepted < len(draft) and done + accepted < len(answer) and draft[accepted] == answer[done + accepted]:
            accepted += 1
        for token in answer[done : done + accepted + 1]:
            seen.append(token)
            if use_own:
                own.append(token)
        done, steps = min(done + accepted + 1, len(answer)), steps + 1
    return Count(steps, len(answer))


def count(
    groups: Iterable[NDArray[np.intp]], prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], use_own: bool
) -> list[Count]:
    """Of each group, whose sequences draft from the group's earlier answers."""
    counts = []
    for rows in groups:
        corpus, total = Corpus(), Count(0, 0)
        for row in rows:
            total += decode(prompts[row], answers[row], corpus, use_own)
            corpus.add(answers[row])
        counts.append(total)
    return counts
