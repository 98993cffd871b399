"""Files that are just being written: waited for, left for the next run, or refused, and never read by half."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.core.errors import InputError
from tasks.ingest.finding.settling import LIMIT_S, SETTLE_S, wait_until_still
from tasks.ingest.finding.sources import changed_since, discover
from tasks.storage.writers import is_open_for_writing

Put = Callable[..., Path]
NOW = 1_800_000_000.0


class Time:
    """A clock that stands still but for what is slept, while a file may be written."""

    def __init__(self, writing: Callable[[float], None] = lambda _: None) -> None:
        self.now, self.slept = NOW, 0.0
        self._writing = writing

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now, self.slept = self.now + seconds, self.slept + seconds
        self._writing(self.now)


def written(path: Path, at: float, size: int | None = None) -> None:
    if size is not None:
        path.write_bytes(b"x" * size)
    os.utime(path, (at, at))


def test_an_old_file_is_not_waited_for(put: Put) -> None:
    """What has not changed for a while is read at once, and so is a file with a time to come."""
    path, time = put("a.jsonl", "x"), Time()
    for at in (NOW - SETTLE_S, 0, NOW + 3600):
        written(path, at)
        assert wait_until_still([path], time.clock, time.sleep, lambda _: False) == set()
    assert time.slept == 0


def test_a_young_file_that_nobody_writes(put: Put) -> None:
    """In a folder it is given its time, as somebody may open it again; named by itself it is read at once."""
    path, time = put("a.jsonl", "x"), Time()
    written(path, NOW - 0.1)
    assert wait_until_still([path], time.clock, time.sleep, lambda _: False, named=[path]) == set()
    assert time.slept == 0
    assert wait_until_still([path], time.clock, time.sleep, lambda _: False) == set()
    assert time.slept >= SETTLE_S - 0.1


def test_a_file_that_is_held_open(put: Put) -> None:
    """However long its writer pauses: it is read when that one has closed it, or not at all."""
    path, time = put("a.jsonl", "x"), Time()
    written(path, NOW - 100)
    assert wait_until_still([path], time.clock, time.sleep, lambda _: time.now < NOW + 9, named=[path]) == set()
    assert 9 <= time.slept <= 9 + SETTLE_S
    assert wait_until_still([path], time.clock, time.sleep, lambda _: True) == {path}


@pytest.mark.parametrize("is_written", [True, None])
def test_a_young_file_is_looked_at_until_it_is_still(put: Put, is_written: bool | None) -> None:
    """It is read when it has not changed for the settle time, counted from its last change."""
    path = put("a.jsonl", "x")
    written(path, NOW - 0.5)
    time = Time(lambda now: written(path, now, 7) if now <= NOW + 3 else None)
    assert wait_until_still([path], time.clock, time.sleep, lambda _: is_written and time.now <= NOW + 3) == set()
    assert 3 + SETTLE_S <= time.slept <= 3 + SETTLE_S + 0.5


def test_one_that_keeps_growing(put: Put) -> None:
    """After the limit it is left out of a folder, with a note, and refused where it is named; the others are read."""
    put("s/whole.jsonl", "x")
    path, notes = put("s/growing.jsonl", "x"), list[str]()
    with path.open("ab", buffering=0) as file:

        def writing(now: float) -> None:
            file.write(b"more")
            written(path, now)

        for place in (path.parent, path):
            time = Time(writing)
            written(path, NOW)
            if place == path:
                with pytest.raises(InputError, match=r"growing\.jsonl is still being written after 30 s"):
                    discover([place], None, clock=time.clock, sleep=time.sleep)
            else:
                files = discover([place], None, note=notes.append, clock=time.clock, sleep=time.sleep)
                assert [one.name for one in files] == ["whole.jsonl"]
            assert LIMIT_S <= time.slept <= LIMIT_S + 1
    assert notes == [f"{path} is still being written; left for the next run"]


def test_a_file_that_goes_away_is_not_waited_for(put: Put) -> None:
    """Who reads it says that it is gone."""
    path = put("a.jsonl", "x")
    written(path, NOW)
    time = Time(lambda _: path.unlink(missing_ok=True))
    assert wait_until_still([path, path.with_name("b")], time.clock, time.sleep, lambda _: True) == set()
    assert time.slept < SETTLE_S


def test_who_has_a_file_open(put: Put) -> None:
    """The kernel tells a file that is open for writing from one that is not, or says nothing."""
    path = put("a.jsonl", "x")
    if is_open_for_writing(path) is None:
        pytest.skip("leases are not known here")
    assert is_open_for_writing(path) is False
    with path.open("rb"):
        assert is_open_for_writing(path) is False
    with path.open("ab"):
        assert is_open_for_writing(path) is True
    assert is_open_for_writing(path.with_name("missing")) is None


def test_unfinished_names_are_left_out(put: Put, tmp_path: Path) -> None:
    """What copying tools, browsers and editors call a file until it is whole is no data, and is noted."""
    half = [
        "a.tmp",
        "b.jsonl.part",
        "c.PARTIAL",
        "d.crdownload",
        "e.filepart",
        "f.jsonl~",
        ".~lock.g.csv#",
        ".h.jsonl.x7Zq1a",
    ]
    for name in [*half, "ok.jsonl", ".hidden.jsonl"]:
        put(f"s/{name}", "x")
    notes: list[str] = []
    assert [file.name for file in discover([tmp_path / "in"], None, note=notes.append)] == ["ok.jsonl"]
    assert sorted(Path(note.partition(" is left out")[0]).name for note in notes) == sorted(half)
    assert [file.name for file in discover([tmp_path / "in" / "s" / "a.tmp"], None)] == ["a.tmp"]


def test_a_change_after_it_was_found_is_noticed(put: Put) -> None:
    """Other bytes, another time, another file of the name, or none: each is told from what was found."""
    path = put("a.jsonl", "x")
    changes: list[Callable[[], object]] = [
        lambda: path.write_text("xy"),
        lambda: os.utime(path, (1, 1)),
        lambda: os.replace(put("b.jsonl", "x"), path),
        path.unlink,
    ]
    for change in changes:
        [file] = discover([path], None)
        assert not changed_since(file)
        change()
        assert changed_since(file)
