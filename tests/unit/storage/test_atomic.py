"""Files and folders are replaced whole, or not at all."""

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.core.errors import DamageError
from tasks.storage.atomic import read_json, replacing_dir, replacing_file, write_json


def test_file_is_replaced_on_a_clean_exit(tmp_path: Path) -> None:
    """What was written beside the file takes its place."""
    path = tmp_path / "deep" / "file"
    for text in ("old", "new"):
        with replacing_file(path) as temporary:
            temporary.write_text(text)
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]


def test_file_stays_when_writing_fails(tmp_path: Path) -> None:
    """An error in the block leaves the old file and no trace of the new one."""
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(RuntimeError), replacing_file(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_folder_is_replaced_with_all_its_files(tmp_path: Path) -> None:
    """The new folder holds what was put into it and nothing of the old one."""
    path = tmp_path / "results"
    for name in ("a", "b"):
        with replacing_dir(path) as temporary:
            (temporary / name).write_text(name)
    assert [file.name for file in path.iterdir()] == ["b"]
    assert list(tmp_path.iterdir()) == [path]


def test_folder_stays_when_filling_fails(tmp_path: Path) -> None:
    """An error in the block leaves the old folder as it was."""
    path = tmp_path / "results"
    with replacing_dir(path) as temporary:
        (temporary / "a").write_text("a")
    with pytest.raises(RuntimeError), replacing_dir(path) as temporary:
        raise RuntimeError
    assert [file.name for file in path.iterdir()] == ["a"]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("replacing", [replacing_file, replacing_dir])
def test_what_killed_writers_left_is_removed(tmp_path: Path, replacing: Callable[[Path], Any]) -> None:
    """The next writer of a path removes leftovers of dead processes once they are old, and no others."""
    path, dead, old = tmp_path / "results", _dead_process(), time.time() - 7200
    stays = {f".results.{os.getppid()}.tmp", f".results.{dead}.fresh", f".other.{dead}.tmp", ".results.x.tmp"}
    for name in (f".results.{dead}.tmp", f".results.{dead}.tmp.wal", *stays):
        (tmp_path / name).write_text("half")
        if "fresh" not in name:
            os.utime(tmp_path / name, (old, old))
    (tmp_path / f".results.{dead}.old").mkdir()
    os.utime(tmp_path / f".results.{dead}.old", (old, old))
    with replacing(path) as temporary:
        if replacing is replacing_file:
            temporary.write_text("new")
    assert {file.name for file in tmp_path.iterdir()} == stays | {"results"}


def _dead_process() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_errors_without_a_name_get_one(tmp_path: Path) -> None:
    """A full disk is reported with the file that was to be written, also where the system does not name it."""
    with pytest.raises(OSError, match="cannot write: No space left on device") as caught, replacing_file(tmp_path / "file"):
        raise OSError(errno.ENOSPC, "whatever")
    assert caught.value.filename == str(tmp_path / "file")


def test_json_round_trip_and_absence(tmp_path: Path) -> None:
    """A document comes back as it was; a missing one is None; a damaged one is an error, not None."""
    path = tmp_path / "x.json"
    assert read_json(path) is None
    write_json(path, {"name": "naïve 日本", "n": 3})
    assert read_json(path) == {"name": "naïve 日本", "n": 3}
    path.write_text('{"name":')
    with pytest.raises(DamageError, match="Expecting value"):
        read_json(path)
