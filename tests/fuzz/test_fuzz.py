"""Some seconds of tests/fuzz/ingest.py and tests/fuzz/export.py."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent.parent


def test_a_few_damaged_files_of_every_kind() -> None:
    """Over the first cases nothing is found; how many they are, the last line says."""
    command = [sys.executable, "-m", "tests.fuzz.ingest", "--minutes", "0.1"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    num_cases, word, *_ = done.stdout.splitlines()[-1].split()
    assert (int(num_cases) > 5, word) == (True, "cases,")


_LOSES_ROWS = """
from unittest.mock import patch
from tests.fuzz.ingest import child
with patch("tasks.ingest.reading.blocks.row_of", lambda *of_line: None):
    child(0, 4)
"""


def test_rows_that_are_lost_are_a_finding() -> None:
    """A reader that drops what it does not know at once is found out."""
    command = [sys.executable, "-c", _LOSES_ROWS]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=True)
    assert any("error" in line for line in done.stdout.splitlines())


def test_a_few_exports_of_damaged_files() -> None:
    """In every format all rows of the first rounds are there in order."""
    command = [sys.executable, "-m", "tests.fuzz.export", "--minutes", "0.08"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rounds, 0 findings" in done.stdout
