"""TokenJournal: append what an engine step gave, one write() a step.

What `append` has returned from survives SIGKILL of any process: the bytes are the kernel's. With `sync_interval_s` a
thread of its own also calls fdatasync, so that a power cut takes at most that many seconds. Each start of a process opens
a new segment; nothing is ever appended to a tail that may be torn.
"""

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tasks.core.request import StepOutput
from tasks.journal.format import (
    MAX_TOKENS_PER_ENTRY,
    Entry,
    FailureEntry,
    encode_failure,
    encode_header,
    encode_step,
)
from tasks.storage.atomic import sync_data, sync_dir


class TokenJournal:
    """One engine's journal for one process's life. Every OSError is for the caller: the run must stop on it."""

    def __init__(self, folder: Path, engine: int, fingerprint: bytes, *, sync_interval_s: float | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = next_segment(folder, engine)
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._lengths: dict[int, int] = {}
        self._write(encode_header(fingerprint))
        sync_dir(folder)
        self._closing = threading.Event()
        self._sync_error: OSError | None = None
        self._syncer = self._start_syncer(sync_interval_s) if sync_interval_s else None

    def begin(self, key: int, num_saved: int) -> None:
        """A sequence goes to the engine with `num_saved` tokens of its answer given."""
        self._lengths[key] = num_saved

    def append(self, outputs: Sequence[StepOutput]) -> None:
        """Record one engine step. Raises OSError when the disk is full or failing."""
        if self._sync_error is not None:
            raise self._sync_error
        if outputs:
            self._write(encode_step([self._entry(output) for output in outputs]))

    def fail(self, key: int, reason: str) -> None:
        """Record that a sequence was given up."""
        self._write(encode_failure(FailureEntry(key, reason)))

    def sync(self) -> None:
        """Make all that was appended safe against a power cut."""
        sync_data(self._fd)

    def close(self) -> None:
        """Sync and close; after it the segment is never written again."""
        self._closing.set()
        if self._syncer is not None:
            self._syncer.join()
        try:
            self.sync()
        finally:
            os.close(self._fd)

    def _entry(self, output: StepOutput) -> Entry:
        offset = self._lengths[output.key]
        if len(output.token_ids) > MAX_TOKENS_PER_ENTRY:
            raise ValueError(f"{len(output.token_ids)} tokens in one step; the format holds {MAX_TOKENS_PER_ENTRY}")
        if output.finish_reason is None:
            self._lengths[output.key] = offset + len(output.token_ids)
        else:
            del self._lengths[output.key]
        return Entry(output.key, offset, output.token_ids, output.finish_reason, output.cached_tokens)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def _start_syncer(self, interval_s: float) -> threading.Thread:
        def run() -> None:
            while not self._closing.wait(interval_s):
                try:
                    self.sync()
                except OSError as error:
                    self._sync_error = error
                    return

        thread = threading.Thread(target=run, name="journal-sync", daemon=True)
        thread.start()
        return thread

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def segments(folder: Path) -> list[Path]:
    """All segments of a run, of every engine, oldest first within an engine."""
    return sorted(folder.glob("engine-*.*.journal"))


def next_segment(folder: Path, engine: int) -> Path:
    """The path of a segment that does not exist yet and sorts behind those that do."""
    numbers = [int(path.name.split(".")[1]) for path in folder.glob(f"engine-{engine}.*.journal")]
    return folder / f"engine-{engine}.{max(numbers, default=0) + 1:06d}.journal"
