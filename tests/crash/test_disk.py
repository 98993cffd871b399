"""Disks that are full, read-only or failing: the run stops with one clear line, and goes on when the disk is well."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.crash.conftest import Night, Undisturbed

_PAGE = 4096
SmallDisk = Callable[..., Path]


def test_checkpoints_fill_up_while_generating(night: "Night", undisturbed: "Undisturbed", small_disk: SmallDisk) -> None:
    """A full disk under the journal stops the run with its name; what was journaled stays, and with room it completes."""
    small_disk(night.cli.checkpoints, _pages(undisturbed.journal_bytes // 2) + 3 * _PAGE)
    ended = night.run("--power", "off")  # whose telemetry would take the journal's pages
    assert ended.code == 1, ended.err
    assert "disk full: " in ended.last_line and "No space left on device: /" in ended.last_line
    assert str(night.cli.checkpoints) in ended.last_line
    undisturbed.assert_nothing_half(night)
    known = night.known()
    assert 0 < known.num_tokens < undisturbed.num_tokens
    assert (night.manifest["state"], night.cli("check", night.files.run_id).returncode) == ("failed", 0)
    small_disk(night.cli.checkpoints, 1 << 20)
    assert night.complete()["resumed_tokens"] == known.num_tokens
    undisturbed.assert_whole(night)


def test_checkpoints_are_full_from_the_start(night: "Night", small_disk: SmallDisk) -> None:
    """A disk without room for even the lock stops the command in one line with its path, and leaves no lock behind."""
    small_disk(night.cli.checkpoints, _PAGE)
    (night.cli.checkpoints / "ballast").write_bytes(bytes(_PAGE))
    for _ in range(2):
        ended = night.run()
        assert ended.code == 1
        (line,) = ended.err.splitlines()
        assert line.startswith(f"nightbatch: disk full: No space left on device: {night.cli.checkpoints}/")
    assert list(night.cli.data.rglob("*")) == []


def test_data_is_full_from_the_start(night: "Night", undisturbed: "Undisturbed", small_disk: SmallDisk) -> None:
    """A data disk without room for the requests stops the run before the engine; with room the same command completes."""
    small_disk(night.cli.data, _PAGE)
    ended = night.run()
    assert ended.code == 1, ended.err
    assert "disk full: " in ended.last_line and "No space left on device: /" in ended.last_line
    assert str(night.cli.data) in ended.last_line
    assert night.cli.sql("select count(*) as n from requests") == [{"n": 0}]
    small_disk(night.cli.data, 4 << 20)
    night.complete()
    undisturbed.assert_whole(night)


def test_data_fills_up_before_the_results(night: "Night", undisturbed: "Undisturbed", small_disk: SmallDisk) -> None:
    """A data disk that is full when results are to be written keeps every token; with room only they are written."""
    small_disk(night.cli.data, 1 << 20)
    process = night.start()
    night.wait_for_tokens(process)
    with (night.cli.data / "ballast").open("wb", buffering=0) as ballast, pytest.raises(OSError, match="No space left"):
        while True:
            ballast.write(bytes(_PAGE))
    ended = night.finish(process)
    assert ended.code == 1, ended.err
    assert "disk full: " in ended.last_line and "No space left on device: /" in ended.last_line
    assert str(night.files.home) in ended.last_line
    undisturbed.assert_nothing_half(night)
    assert night.known().num_final == len(undisturbed.answers)
    small_disk(night.cli.data, 4 << 20)
    assert night.complete()["resumed_tokens"] == undisturbed.num_tokens
    undisturbed.assert_whole(night)


def test_checkpoints_on_a_read_only_disk(night: "Night", small_disk: SmallDisk) -> None:
    """A read-only disk for the journal ends the command at once, with its path and without a trace."""
    small_disk(night.cli.checkpoints, 1 << 20, "ro")
    ended = night.run()
    assert ended.code in (1, 2)
    (line,) = ended.err.splitlines()
    assert line.startswith(f"nightbatch: read-only disk: Read-only file system: {night.cli.checkpoints}")
    assert night.bytes() == {}
    assert list(night.cli.data.rglob("*")) == []


def test_syncing_the_journal_fails(night: "Night", undisturbed: "Undisturbed", faults: Mapping[str, str]) -> None:
    """A disk that cannot sync stops the run and says so; nothing is lost, and on a good disk it completes."""
    night = replace(night, step_s=0.02)
    ended = night.run(**faults, FAULT_SYNC="1", FAULT_PATH=".journal")
    assert ended.code == 1, ended.err
    assert "sync: Input/output error" in ended.last_line
    assert str(night.files.journals) in ended.last_line
    undisturbed.assert_nothing_half(night)
    known = night.known()
    assert known.num_tokens > 0
    assert night.complete()["resumed_tokens"] == known.num_tokens
    undisturbed.assert_whole(night)


def test_short_and_interrupted_writes(night: "Night", undisturbed: "Undisturbed", faults: Mapping[str, str]) -> None:
    """A journal whose every write takes seven bytes, and now and then none, holds the same in the end."""
    ended = night.run(**faults, FAULT_WRITE="7", FAULT_EINTR="5", FAULT_PATH=".journal")
    assert ended.code == 0, ended.err
    assert night.known().damages == []
    undisturbed.assert_whole(night)


def test_machine_clock_jumps_by_years(night: "Night", undisturbed: "Undisturbed", faults: Mapping[str, str]) -> None:
    """A clock that goes a year forth and back every few readings neither stalls nor changes the run, nor its status."""
    process = night.start(**faults, FAULT_CLOCK="3")
    night.wait_for_tokens(process)
    status = night.cli.start("status", env={**faults, "FAULT_CLOCK": "2"})
    assert f"process {process.pid} " in night.finish(status).out
    ended = night.finish(process)
    assert ended.code == 0, ended.err
    undisturbed.assert_whole(night)


def _pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE
