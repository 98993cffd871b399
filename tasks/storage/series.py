"""A table that grows a row at a time while a run goes on, and outlives whoever writes it.

Each row is a JSON line in a spool first, with one write(), so that it survives SIGKILL of the process. Once a minute the
rows become a Parquet part, durable when its name is there; the part of the same number is written again, longer, until it
is full, and then its spool goes and the next number begins. So a power cut takes a minute at most, readers see whole parts
only, and memory holds one part. What a killed session left in its spool, the next one takes in as the part of that name;
a kill in the middle of it costs nothing, as it gives the same part again.

Invariant: a spool that is there holds all rows of its part, and the kernel holds a lock on it while its writer lives.
"""

import fcntl
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import orjson

from tasks.storage.parquet import Batch, Row, Schema, batch_of, writing_table

_log = logging.getLogger(__name__)

_SPOOL = ".jsonl"
_ASIDE = ".unreadable"


class SeriesWriter:
    """Appends rows of `schema` to the table whose parts lie in `table`, by way of `spool`. `session` names its files and
    nobody else's. For one thread.

    Where the disk refuses, OSError is raised and the row is kept for the next part; when a full part cannot be written
    either, its rows are given up but for what the spool holds of them.
    """

    def __init__(
        self, spool: Path, table: Path, schema: Schema, session: str, *, part_every_s: float = 60.0, part_rows: int = 4096
    ) -> None:
        self._spool, self._table, self._schema, self._session = spool, table, schema, session
        self._part_every_s, self._part_rows = part_every_s, part_rows
        self._number = 0
        self._file: int | None = None
        self._is_spool_whole = True
        self._batches: list[Batch] = []
        self._fresh: list[Row] = []
        self._num_rows = self._num_in_part = 0
        self._written_s: float | None = None

    def append(self, row: Row, now_s: float) -> None:
        """Take a row in, at this time of a monotonic clock; now and then a part is written."""
        if self._written_s is None:
            self._written_s = now_s
        self._fresh.append(row)
        self._num_rows += 1
        try:
            self._write_line(row)
        finally:
            if now_s - self._written_s >= self._part_every_s or self._num_rows >= self._part_rows:
                self._written_s = now_s
                self._write_part()

    def close(self) -> None:
        """Write the last part, and take the spool away. Nothing may be appended any more."""
        try:
            if self._num_in_part < self._num_rows:
                self._write_part()
        finally:
            self._turn()

    @property
    def _name(self) -> str:
        return f"{self._session}-{self._number:05d}"

    def _write_line(self, row: Row) -> None:
        was_whole, self._is_spool_whole = self._is_spool_whole, False
        if self._file is None:
            self._file = _begin(self._spool / f"{self._name}{_SPOOL}")
        line = orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n"
        line = line if was_whole else b"\n" + line  # behind a piece of a line, perhaps
        self._is_spool_whole = os.write(self._file, line) == len(line) and was_whole

    def _write_part(self) -> None:
        try:
            if fresh := _fitting(self._fresh, self._schema):
                self._batches.append(fresh)
            self._num_rows += (fresh.num_rows if fresh else 0) - len(self._fresh)
            self._fresh = []
            with writing_table(self._table / f"{self._name}.parquet", self._schema) as table:
                for batch in self._batches:
                    table.add(batch)
            self._num_in_part = self._num_rows
        finally:
            is_whole = self._num_in_part == self._num_rows
            if self._num_rows >= self._part_rows or (is_whole and not self._is_spool_whole):
                self._turn()

    def _turn(self) -> None:
        """Go on with the next part; the spool stays when there is more in it than in its part."""
        if self._file is not None:
            if self._num_in_part == self._num_rows:
                (self._spool / f"{self._name}{_SPOOL}").unlink(missing_ok=True)
            os.close(self._file)
        self._number += 1
        self._file, self._is_spool_whole = None, True
        self._batches, self._fresh, self._num_rows, self._num_in_part = [], [], 0, 0


def _fitting(rows: Sequence[Row], schema: Schema) -> Batch | None:
    """The rows that fit the schema; those that do not are said in the log."""
    good, words = _apart(rows, schema)
    if words:
        _log.warning("%d of %d rows of telemetry do not fit its columns: %s", len(rows) - len(good), len(rows), words)
    return batch_of(good, schema) if good else None


def _apart(rows: Sequence[Row], schema: Schema) -> tuple[Sequence[Row], str]:
    """The rows that fit, and why the last of the others does not."""
    try:
        batch_of(rows, schema)
        return rows, ""
    except ValueError:
        pass
    good, words = [], ""
    for row in rows:
        try:
            batch_of([row], schema)
            good.append(row)
        except ValueError as error:
            words = str(error)
    return good, words


def _begin(path: Path) -> int:
    """A new spool, locked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            if os.path.samestat(os.fstat(file), os.stat(path)):
                return file
        except FileNotFoundError:  # somebody took it for a leftover before it was locked
            pass
        os.close(file)


@dataclass(frozen=True, slots=True)
class TakenIn:
    """How many rows of earlier sessions were taken in, and what is to be said about it."""

    rows: int = 0
    notes: tuple[str, ...] = ()


def take_in(spool: Path, table: Path, schema: Schema) -> TakenIn:
    """Make parts of what killed sessions left in their spools. A spool with lines that cannot be read gives the others, and
    is kept aside. Raises OSError when the disk refuses; nothing is lost then."""
    taken, notes = 0, []
    for path in sorted(spool.glob(f"*{_SPOOL}")):
        with _free(path) as is_free:
            if not is_free:
                continue
            for half_written in table.glob(f".{path.stem}.parquet.*"):
                half_written.unlink()  # the spool is free, so that nobody is still at it
            rows, num_bad = _read(path, schema)
            if rows:
                with writing_table(table / f"{path.stem}.parquet", schema) as part:
                    part.add(batch_of(rows, schema))
            if num_bad:
                aside = path.rename(path.with_name(path.name + _ASIDE))
                which = f"{num_bad} of {num_bad + len(rows)} lines of telemetry"
                notes.append(f"{which} cannot be read, and are kept in {aside}")
            else:
                path.unlink()
            taken += len(rows)
    return TakenIn(taken, tuple(notes))


def _read(path: Path, schema: Schema) -> tuple[Sequence[Row], int]:
    """The rows of a spool and the number of unreadable lines, without the last one if a kill or a full disk tore it."""
    times = [field.name for field in schema if str(field.type).startswith("timestamp")]
    *lines, _ = path.read_bytes().split(b"\n")
    rows: list[Row] = []
    for line in filter(None, lines):
        try:
            row = orjson.loads(line)
            rows.append({**row, **{name: row[name] and datetime.fromisoformat(row[name]) for name in times}})
        except (ValueError, KeyError, TypeError):
            continue
    num_lines = sum(1 for line in lines if line)
    good, _ = _apart(rows, schema)
    return good, num_lines - len(good)


@contextmanager
def _free(path: Path) -> Iterator[bool]:
    """Whether nobody writes this spool; if so, nobody else takes it in meanwhile."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield path.exists()
    except BlockingIOError:
        yield False
    finally:
        os.close(file)
