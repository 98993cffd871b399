"""Waiting for files that are just being written: none is read until it has been still for a while."""

import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from tasks.ingest.finding.source_file import Seen, look_at
from tasks.storage.writers import is_open_for_writing

SETTLE_S = 2.0
"""A file that has not changed for so long is taken to be whole."""
LIMIT_S = 30.0
"""One that goes on changing for so long is not waited for."""
_LOOK_EVERY_S = 0.25


def wait_until_still(
    paths: Iterable[Path],
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
    is_written: Callable[[Path], bool | None] = is_open_for_writing,
    named: Collection[Path] = (),
) -> set[Path]:
    """Those of the files that are still being written when the wait is over. `clock` is the one of the files' times.

    Waited for are files that changed just now or that somebody has open for writing, as far as that can be told. One that
    was `named` by itself is taken to be meant as it is once nobody has it open, however new it is.
    """
    begun = clock()
    restless: dict[Path, tuple[Seen, float]] = {}
    for path in paths:
        if (seen := _seen(path)) is None:
            continue
        is_new = begun - SETTLE_S < (changed := seen[1] / 1e9) <= begun + SETTLE_S
        writing = is_written(path)
        if writing or (is_new and not (writing is False and path in named)):
            restless[path] = (seen, min(begun, changed))
    while restless and clock() < begun + LIMIT_S:
        sleep(_LOOK_EVERY_S)
        now = clock()
        for path, (before, since) in list(restless.items()):
            seen = _seen(path)
            if seen is None or (seen == before and now - since >= SETTLE_S and not is_written(path)):
                del restless[path]
            elif seen != before:
                restless[path] = (seen, now)
    return set(restless)


def _seen(path: Path) -> Seen | None:
    try:
        return look_at(path)
    except OSError:  # who reads it will say so
        return None
