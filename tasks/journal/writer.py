"""TokenJournal: append what an engine step gave, one write() a step.

What `append` has returned from survives SIGKILL of any process: the bytes are the kernel's. With `sync_interval_s` a
thread of its own also calls fdatasync, so that a power cut takes at most that many seconds and the sync in flight. Each
start of a process opens a new segment, and a full one is sealed; nothing is ever appended to a tail that may be torn.
"""

import os
import threading
from array import array
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tasks.core.request import StepOutput
from tasks.journal.format import (
    FailureEntry,
    Framer,
    ResumeEntry,
    crc_of,
    encode_failure,
    encode_header,
    encode_step,
)
from tasks.journal.segments import next_epoch, segment_path
from tasks.storage.atomic import sync_data, sync_dir

_SEGMENT_BYTES = 64 << 20


class TokenJournal:
    """One engine's journal for one process's life. Every OSError is for the caller: the run must stop on it."""

    def __init__(
        self,
        folder: Path,
        engine: int,
        fingerprint: bytes,
        *,
        sync_interval_s: float | None = None,
        segment_bytes: int = _SEGMENT_BYTES,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._engine, self._fingerprint = folder, engine, fingerprint
        self._epoch, self._part, self._segment_bytes = next_epoch(folder, engine), 0, segment_bytes
        self._syncs = sync_interval_s is not None
        self._offsets: dict[int, int] = {}
        self._resumed: list[ResumeEntry] = []
        self._error: OSError | None = None
        self._swapping = threading.Lock()  # held while the segment's descriptor is synced or replaced
        self._open()
        self._closing = threading.Event()
        self._syncer = self._start_syncer(sync_interval_s) if sync_interval_s is not None else None

    def begin(self, key: int, saved_token_ids: Sequence[int] = ()) -> None:
        """A sequence goes to the engine with these tokens of its answer given; what it had beyond them is void."""
        self._offsets[key] = len(saved_token_ids)
        if saved_token_ids:
            crc = crc_of(array("i", saved_token_ids))
            self._resumed.append(ResumeEntry(key, len(saved_token_ids), crc))

    def append(self, outputs: Sequence[StepOutput]) -> None:
        """Record one engine step. Raises OSError when the disk is full or failing, then and ever after."""
        if outputs:
            offsets = self._offsets
            places = [offsets[output.key] for output in outputs]
            self._write(encode_step(outputs, places, self._resumed))
            self._resumed = []
            for output, place in zip(outputs, places, strict=True):
                if output.finish_reason is None:
                    offsets[output.key] = place + len(output.token_ids)
                else:
                    del offsets[output.key]

    def fail(self, key: int, reason: str) -> None:
        """Record that a sequence was given up."""
        self._write(encode_failure(FailureEntry(key, reason)))

    def sync(self) -> None:
        """Make all that was appended safe against a power cut."""
        with self._swapping:
            sync_data(self._fd)

    def close(self) -> None:
        """Seal, sync and close; after it the segment is never written again. Raises what went wrong and was not raised."""
        self._closing.set()
        if self._syncer is not None:
            self._syncer.join()
        try:
            if self._error is None:
                self._put(self._framer.seal())
                self.sync()
        finally:
            os.close(self._fd)
        if self._error is not None:
            raise self._error

    def _write(self, payload: bytes) -> None:
        if self._error is not None:
            raise self._error
        try:
            self._put(self._framer.frame(payload))
            if self._size >= self._segment_bytes:
                self._roll()
        except OSError as error:
            self._error = _named(error, self.path)
            raise self._error from error

    def _put(self, data: bytes) -> None:
        self._size += len(data)
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def _open(self) -> None:
        """Begin a segment."""
        self.path = segment_path(self._folder, self._engine, self._epoch, self._part)
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        header = encode_header(self._fingerprint, self._epoch, self._part)
        self._framer, self._size = Framer(header), 0
        try:
            self._put(header)
        except OSError as error:
            raise _named(error, self.path) from error
        if self._syncs:
            sync_dir(self._folder)

    def _roll(self) -> None:
        """Seal the segment and go on in the next."""
        with self._swapping:
            self._put(self._framer.seal())
            if self._syncs:
                sync_data(self._fd)
            os.close(self._fd)
            self._part += 1
            self._open()

    def _start_syncer(self, interval_s: float) -> threading.Thread:
        def run() -> None:
            while not self._closing.wait(interval_s):
                try:
                    self.sync()
                except OSError as error:
                    self._error = _named(error, self.path)
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


def _named(error: OSError, path: Path) -> OSError:
    """The same error, with the file that it is about."""
    return OSError(error.errno, error.strerror, str(path))
