"""Journals that were cut, lengthened or changed on disk: what is damaged is named and done again, never used."""

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.crash.conftest import Night, Undisturbed

_GARBAGE = b"\x07garbage\xff" * 5


def cut(num_bytes: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:-num_bytes]


def lengthen(num_bytes: int) -> Callable[[bytes], bytes]:
    return lambda data: data + _GARBAGE[:num_bytes]


def flip(place: float) -> Callable[[bytes], bytes]:
    """Turns over one bit of the byte at this share of the file."""

    def change(data: bytes) -> bytes:
        at = int(len(data) * place)
        return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]

    return change


@pytest.fixture(scope="module")
def _kept() -> dict[Path, bytes]:
    return {}


@pytest.fixture
def killed(night: "Night", tmp_path_factory: pytest.TempPathFactory, _kept: dict[Path, bytes]) -> "Night":
    """A run that was killed while it generated; it happens once, and each test finds it so in the same place."""
    home = tmp_path_factory.getbasetemp() / "killed"
    night = replace(night, cli=type(night.cli)(home))
    if _kept:
        shutil.rmtree(home)
        for path, data in _kept.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return night
    home.mkdir()
    process = night.start()
    night.wait_for_tokens(process, 2000)
    os.killpg(process.pid, signal.SIGKILL)
    night.finish(process)
    _kept.update({Path(name): data for name, data in night.bytes().items()})
    return night


@pytest.mark.parametrize(
    ("damage", "is_torn"),
    [(cut(40), True), (lengthen(40), True), (flip(0.5), False), (lambda data: b"", True)],
    ids=["cut by 40 bytes", "garbage behind", "a bit in the middle", "emptied"],
)
def test_damaged_after_a_kill(
    killed: "Night", undisturbed: "Undisturbed", damage: Callable[[bytes], bytes], is_torn: bool
) -> None:
    """The check reports the damage and changes no file; the next start names it and completes with the same answers."""
    newest = killed.segments[-1]
    newest.write_bytes(damage(newest.read_bytes()))
    before = killed.bytes()
    report = killed.check()
    said, *broken = report.notes if is_torn else report.problems
    assert f"{newest}: byte " in said
    assert len(report.notes + report.problems) == 1 + len(broken)
    assert all("go on from tokens that are not there" in one for one in broken)
    assert killed.bytes() == before
    kept = killed.known().num_tokens
    ended = killed.run()
    assert ended.code == 0, ended.err
    assert f"{newest}: byte " in ended.err
    assert newest.read_bytes() == before[str(newest)], "something was appended to a damaged journal"
    assert killed.manifest["resumed_tokens"] == kept
    undisturbed.assert_whole(killed, damaged=None if is_torn else newest)


def test_every_cut_and_every_bit(killed: "Night", undisturbed: "Undisturbed") -> None:
    """However a journal is cut, lengthened or changed in one bit: what is read from it is right, and the damage is seen."""
    newest = killed.segments[-1]
    whole = newest.read_bytes()
    full = killed.known().num_tokens
    damages = [*map(cut, range(1, 41)), *(flip(i / 200) for i in range(200)), *(lengthen(n) for n in range(1, 41))]
    clean = 0
    for damage in damages:
        newest.write_bytes(damage(whole))
        known = killed.known()
        assert undisturbed.holds(known)
        assert known.num_tokens <= full
        clean += not known.damages
    assert clean <= 1, "only a cut between two steps leaves a journal that is whole"


def test_check_by_command_reports_damage_and_changes_nothing(killed: "Night") -> None:
    """`nightbatch check` over a damaged journal names file and byte, ends with 0 as nothing is lost, and writes nothing."""
    newest = killed.segments[-1]
    newest.write_bytes(cut(3)(newest.read_bytes()))
    before = killed.bytes()
    done = killed.cli("check", killed.files.run_id)
    assert done.returncode == 0, done.stderr
    assert f"note: {newest}: byte " in done.stdout.replace("\n", " ")
    assert killed.bytes() == before
