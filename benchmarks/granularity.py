"""Work lost to kills with checkpoints of three sizes, on the same kill schedule: by token, by row, by 1,000 rows.

A simulation of continuous batching: so many slots, one token a slot and step, a new row as soon as one ends; output lengths
are log-normal (median 180 tokens, sigma 1, at most 2,048), from a fixed seed. A kill comes every minute or every ten, at
50 steps a second. By token: the step in flight is lost. By row: what was not finished is begun again. By 1,000 rows:
finished rows are written when a thousand are together, and the others are begun again. Prompts are not counted.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.rig import record, result

NAME = "granularity"
_STEPS_PER_S = 50
_GIVE_UP = 20.0


@dataclass
class Night:
    """`left`: rows that have not been checkpointed, in order, with the tokens that are still to be generated."""

    left: list[int]
    generated: int = 0


def run(lengths: list[int], slots: int, kill_every: int, keep: Callable[[list[int], list[int], int], list[int]]) -> float:
    """Tokens generated until all is done, divided by those that are needed; infinity when it never ends."""
    night, needed = Night(list(lengths)), sum(lengths)
    while night.left:
        progress, finished, steps = [0] * len(night.left), 0, 0
        active: list[int] = []
        waiting = iter(range(len(night.left)))
        while steps < kill_every:
            while len(active) < slots and (row := next(waiting, None)) is not None:
                active.append(row)
            if not active:
                return (night.generated + sum(progress)) / needed
            jump = min(kill_every - steps, min(night.left[row] - progress[row] for row in active))
            steps += jump
            for row in active:
                progress[row] += jump
            active = [row for row in active if progress[row] < night.left[row]]
            finished = sum(done == of for done, of in zip(progress, night.left, strict=True)) if steps == kill_every else 0
        night.generated += sum(progress)
        night.left = keep(night.left, progress, finished)
        if night.generated > _GIVE_UP * needed:
            return float("inf")
    return night.generated / needed


def by_token(left: list[int], progress: list[int], finished: int) -> list[int]:
    """All but the last token of what runs is there; a row is never shorter than that token."""
    now = [of - done + (0 < done < of) for of, done in zip(left, progress, strict=True)]
    return [of for of in now if of]


def by_row(left: list[int], progress: list[int], finished: int) -> list[int]:
    return [of for of, done in zip(left, progress, strict=True) if done < of]


def by_chunk(left: list[int], progress: list[int], finished: int) -> list[int]:
    """Whole thousands of finished rows are kept, in the order in which they began."""
    kept, now = finished // 1000 * 1000, []
    for of, done in zip(left, progress, strict=True):
        if done == of and kept:
            kept -= 1
        else:
            now.append(of)
    return now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--slots", type=int, default=64)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(np.log(180), 1.0, given.rows).astype(int), 1, 2048).tolist()
    results = []
    for minutes in (1, 10):
        for name, keep in (("token", by_token), ("row", by_row), ("1,000 rows", by_chunk)):
            factor = run(lengths, given.slots, minutes * 60 * _STEPS_PER_S, keep)
            measure = f"tokens generated / needed, checkpoint by {name}, a kill every {minutes} min"
            target, passed = ("<= 1.03", factor <= 1.03) if name == "token" else ("compared", True)
            results.append(result(NAME, "11", measure, factor, target, passed, rows=given.rows, slots=given.slots))
    record(results)


if __name__ == "__main__":
    main()
