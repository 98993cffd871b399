"""Telemetry under SIGKILL at any moment: every row that was taken is in the table once, whatever was being written."""

import random
import signal
import subprocess
import sys
from pathlib import Path

from tasks.storage.parquet import TELEMETRY, read_rows
from tasks.storage.series import take_in

_KILLS = 15
_WRITER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from tasks.storage.parquet import TELEMETRY
from tasks.storage.series import SeriesWriter, take_in
spool, table, session = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
take_in(spool, table, TELEMETRY)
writer = SeriesWriter(spool, table, TELEMETRY, session, part_every_s=3.0, part_rows=20)
for number in range(10**9):
    row = {"session": session, "time": datetime.now(UTC), "time_s": float(number), "reason": "x" * 50}
    writer.append(row, float(number))
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
"""


def test_killed_while_rows_parts_and_spools_are_written(tmp_path: Path) -> None:
    """A writer that makes a part every third row, and a new one every twenty, is killed after a random number of rows, again
    and again; the next session takes in what it left. No acknowledged row is missing, none is there twice."""
    rng, spool, table = random.Random(7), tmp_path / "spool", tmp_path / "table"
    acknowledged: dict[str, int] = {}
    for kill in range(_KILLS):
        session = f"s{kill:02d}"
        command = [sys.executable, "-P", "-c", _WRITER, str(spool), str(table), session]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            said = [child.stdout.readline() for _ in range(rng.randrange(1, 60))]
            child.send_signal(signal.SIGKILL)
            said += [line for line in child.stdout if line.endswith("\n")]
        acknowledged[session] = int(said[-1])
    taken = take_in(spool, table, TELEMETRY)
    assert taken.notes == ()
    assert list(spool.iterdir()) == []
    assert {path.suffix for path in table.iterdir()} == {".parquet"}
    rows = [(row["session"], row["time_s"]) for row in read_rows(sorted(table.glob("*.parquet")))]
    assert len(set(rows)) == len(rows)
    for session, last in acknowledged.items():
        numbers = [number for of, number in rows if of == session]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) > last
    assert sum(acknowledged.values()) > _KILLS
