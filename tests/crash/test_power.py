"""A power cut: the disk as it is at one instant, without what only the kernel's memory had. Needs a loop device."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tasks.journal.replay import replay
from tasks.journal.segments import segments

WRITER = """
import sys, time
from pathlib import Path
from tasks.core.request import StepOutput
from tasks.journal.writer import TokenJournal
interval = float(sys.argv[2]) or None
with TokenJournal(Path(sys.argv[1]), 0, bytes(32), sync_interval_s=interval, segment_bytes=16384) as journal:
    journal.begin(1)
    for token in range(10**9):
        journal.append([StepOutput(1, (token,))])
        print(time.monotonic(), token + 1, flush=True)
        time.sleep(0.002)
"""
INTERVAL_S, SLACK_S = 0.2, 1.0

Acknowledged = list[tuple[float, int]]
CutPower = Callable[[float], tuple[Acknowledged, float, list[int]]]


@contextmanager
def mounted(image: Path, folder: Path) -> Iterator[Path]:
    folder.mkdir()
    done = subprocess.run(["mount", "-o", "loop", str(image), str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no loop mounts here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def cut_power(tmp_path: Path) -> CutPower:
    """Writes a journal for two seconds, then the power goes: what was acknowledged when, when that was, and what is left."""
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("no mkfs.ext4 here")

    def run(interval_s: float) -> tuple[Acknowledged, float, list[int]]:
        image, copy = tmp_path / "disk", tmp_path / "disk-after"
        image.touch()
        os.truncate(image, 32 << 20)
        subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
        with mounted(image, tmp_path / "before") as folder:
            os.sync()
            command = [sys.executable, "-c", WRITER, str(folder), str(interval_s)]
            log = (tmp_path / "acknowledged").open("w+")
            writer = subprocess.Popen(command, stdout=log)
            time.sleep(2.0)
            writer.send_signal(signal.SIGSTOP)
            stopped = time.monotonic()
            shutil.copyfile(image, copy)
            writer.kill()
            writer.wait()
        with log:
            log.seek(0)
            acknowledged = [(float(at), int(count)) for at, count in (line.split() for line in log if line.endswith("\n"))]
        with mounted(copy, tmp_path / "after") as folder:
            known = replay(segments(folder), bytes(32)).progress
        return acknowledged, stopped, list(known[1].token_ids) if 1 in known else []

    return run


def test_power_is_cut_while_syncing_every_fifth_of_a_second(cut_power: CutPower) -> None:
    """All tokens older than the interval and the sync are on the disk, in order, over several segments."""
    acknowledged, stopped, kept = cut_power(INTERVAL_S)
    safe = max(count for at, count in acknowledged if at <= stopped - INTERVAL_S - SLACK_S)
    assert kept == list(range(len(kept)))
    assert safe <= len(kept)
    assert safe > 10


def test_power_is_cut_without_syncing(cut_power: CutPower) -> None:
    """With durability `process` a power cut takes what the kernel had not yet written; what is left is right."""
    acknowledged, _, kept = cut_power(0.0)
    assert kept == list(range(len(kept)))
    assert len(kept) < acknowledged[-1][1]
