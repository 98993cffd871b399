"""A table that grows: parts whenever they are due, nothing lost to a kill, nothing twice."""

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tasks.storage import series
from tasks.storage.parquet import TELEMETRY, read_rows
from tasks.storage.series import SeriesWriter, take_in

BEGAN = datetime(2026, 11, 30, 23, 0, tzinfo=UTC)


def row(number: int, **given: Any) -> dict[str, Any]:
    return {"run_id": "r", "session": "s", "time": BEGAN + timedelta(seconds=number), "time_s": float(number), **given}


class Place:
    """A spool and a table in a folder."""

    def __init__(self, folder: Path) -> None:
        self.spool, self.table = folder / "spool", folder / "table"

    def writer(self, session: str = "s", **given: Any) -> SeriesWriter:
        return SeriesWriter(self.spool, self.table, TELEMETRY, session, **given)

    def take_in(self) -> series.TakenIn:
        return take_in(self.spool, self.table, TELEMETRY)

    @property
    def parts(self) -> list[str]:
        return sorted(path.name for path in self.table.glob("*.parquet"))

    @property
    def spools(self) -> list[str]:
        return sorted(path.name for path in self.spool.glob("*"))

    def seconds(self) -> list[float]:
        return [found["time_s"] for found in read_rows(sorted(self.table.glob("*.parquet")))]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_parts_are_written_by_the_clock_and_at_the_end(place: Place) -> None:
    """The first part is there after a minute, grows every minute, and has every row at the end; the spool is gone then."""
    writer, seen = place.writer(), []
    for number in range(150):
        writer.append(row(number), float(number))
        seen.append(len(place.seconds()))
    assert (seen[59], seen[60], seen[119], seen[120]) == (0, 61, 61, 121)
    assert place.spools == ["s-00000.jsonl"]
    writer.close()
    assert place.seconds() == list(range(150))
    assert (place.parts, place.spools) == (["s-00000.parquet"], [])


def test_a_full_part_begins_the_next_one(place: Place) -> None:
    """Parts have so many rows and no more, whatever the clock says; each row is in one of them."""
    writer = place.writer(part_rows=10)
    for number in range(25):
        writer.append(row(number), 0.0)
    assert (len(place.parts), place.spools) == (2, ["s-00002.jsonl"])
    writer.close()
    assert (place.parts[-1], place.seconds()) == ("s-00002.parquet", list(range(25)))


def test_values_come_back(place: Place) -> None:
    """Times, lists, numbers and what is not known are read as they were given, from a part and from a spool."""
    given = row(7, power_w=301.5, throttle=["sw_power_cap"], energy_j=1.25e9, memory_used_bytes=2**37, reason='"é"\n')
    one, other = place.writer("one"), place.writer("other")
    one.append(given, 0.0)
    one.close()
    other.append(given, 0.0)
    os.close(other._file or 0)  # as its death would
    place.take_in()
    for name in ("one-00000.parquet", "other-00000.parquet"):
        (found,) = read_rows(place.table / name)
        assert found == dict.fromkeys(TELEMETRY.names) | given


def test_a_killed_session_loses_nothing(place: Place) -> None:
    """All rows that were given before a SIGKILL are in the table once the next session has taken them in, those of a part
    written before among them, and once, however often that is done; a torn last line is nobody's row."""
    code = f"""
from pathlib import Path
from tasks.storage.parquet import TELEMETRY
from tasks.storage.series import SeriesWriter
from datetime import datetime, UTC
writer = SeriesWriter(Path({str(place.spool)!r}), Path({str(place.table)!r}), TELEMETRY, "s", part_every_s=60)
for number in range(100):
    time = datetime.fromtimestamp(number, UTC)
    writer.append({{"run_id": "r", "session": "s", "time": time, "time_s": float(number)}}, float(number))
print("there", flush=True)
input()
"""
    command = [sys.executable, "-P", "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout and child.stdout.readline() == b"there\n"
        assert len(place.seconds()) == 61
        assert place.take_in().rows == 0  # it lives
        child.send_signal(signal.SIGKILL)
    (spool,) = place.spool.glob("*")
    with spool.open("ab") as file:
        file.write(b'{"run_id": "r", "ti')
    kept = spool.read_bytes()
    assert place.take_in() == series.TakenIn(100)
    assert place.seconds() == list(range(100))
    spool.write_bytes(kept)  # as if it had been killed between the part and the end of the spool
    place.take_in()
    assert (place.seconds(), place.spools) == (list(range(100)), [])


def test_unreadable_lines_are_kept_aside(place: Place) -> None:
    """A spool with damage gives the lines that can be read; it is kept, and said, and not taken in again."""
    place.spool.mkdir()
    good = b'{"time": "2026-11-30T23:00:00+00:00", "time_s": 1.0}\n'
    (place.spool / "s-00000.jsonl").write_bytes(good + b"\0\0\0\n" + good.replace(b"1.0", b'"hot"') + good)
    taken = place.take_in()
    assert (taken.rows, place.seconds()) == (2, [1.0, 1.0])
    assert "2 of 4 lines of telemetry cannot be read" in taken.notes[0]
    assert place.spools == ["s-00000.jsonl.unreadable"]
    assert place.take_in() == series.TakenIn()


def test_a_row_that_does_not_fit_takes_no_other_with_it(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """A value that its column cannot hold costs its own row, and the log says why."""
    writer = place.writer()
    for number, xid in enumerate((1, 2**40, 3)):
        writer.append(row(number, xid=xid), 0.0)
    writer.close()
    assert place.seconds() == [0.0, 2.0]
    assert "1 of 3 rows of telemetry do not fit its columns" in caplog.text


def test_a_full_disk_costs_no_row_that_memory_holds(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the spool refuses, the error is raised and the rows wait for the next part; then all goes on in a new one."""
    real, is_full = os.write, True

    def write(file: int, data: bytes) -> int:
        if is_full and b"time_s" in data:
            raise OSError(28, "No space left on device")
        return real(file, data)

    monkeypatch.setattr(os, "write", write)
    writer = place.writer(part_every_s=5.0)
    for number in range(5):
        with pytest.raises(OSError, match="No space left"):
            writer.append(row(number), float(number))
    is_full = False
    for number in range(5, 9):
        writer.append(row(number), float(number))
    assert (place.seconds(), place.spools) == (list(range(6)), ["s-00001.jsonl"])
    writer.close()
    assert place.seconds() == list(range(9))


def test_a_part_that_cannot_be_written_stays_in_its_spool(place: Place) -> None:
    """Where the table's folder refuses, memory stays bounded, and the next session makes parts of what the spools hold."""
    place.table.write_text("no folder")
    writer = place.writer(part_rows=4)
    for number in range(10):
        try:
            writer.append(row(number), 0.0)
        except OSError:
            assert number in (3, 7)
    assert len(writer._batches) + len(writer._fresh) == 2
    with pytest.raises(OSError):
        writer.close()
    place.table.unlink()
    assert place.take_in().rows == 10
    assert place.seconds() == list(range(10))
