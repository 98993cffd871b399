"""The lease file: where it lies, what it says, and what is made of one that was tampered with."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.core.errors import DamageError, LockedError
from tasks.governor.lease import (
    Lease,
    boot_id,
    card_lock,
    lease_path,
    new_lease,
    read_lease,
    same_limit,
    started,
    state_dir,
    write_lease,
)
from tasks.governor.sample import Card
from tasks.storage.atomic import read_json, write_json

CARD = Card("GPU-0", "a card", 0, "570.1", 1 << 30)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """A lease comes back as it was, and there is none where there is no file."""
    path = lease_path(tmp_path, CARD.uuid)
    assert read_lease(path) is None
    lease = replace(new_lease(CARD, 5.0), before_w=350.0, written_w=(350.0, 300.5), clocks_touched=True)
    write_lease(path, lease)
    assert read_lease(path) == lease
    assert not lease.is_untouched and new_lease(CARD, None).is_untouched


def test_each_card_has_a_file_of_its_own(tmp_path: Path) -> None:
    """A UUID with a slash, as old MIG instances have it, does not leave the folder."""
    path = lease_path(tmp_path, "MIG-GPU-1/3/0")
    assert path.parent == tmp_path and path != lease_path(tmp_path, "MIG-GPU-1/3/1")


@pytest.mark.parametrize(
    "change",
    [
        lambda value: {},
        lambda value: [value],
        lambda value: value | {"version": 2},
        lambda value: value | {"more": 1},
        lambda value: {name: of for name, of in value.items() if name != "before_w"},
        lambda value: value | {"before_w": "350"},
        lambda value: value | {"before_w": -1},
        lambda value: value | {"before_w": None},
        lambda value: value | {"before_w": True},
        lambda value: value | {"written_w": 300},
        lambda value: value | {"written_w": ["300"]},
        lambda value: value | {"written_w": [float("nan")]},
        lambda value: value | {"clocks_touched": 1},
        lambda value: value | {"pid": "me"},
        lambda value: value | {"uuid": None},
    ],
)
def test_no_value_is_guessed(tmp_path: Path, change: Callable[[Any], Any]) -> None:
    """A lease with a value missing, unknown or of another kind is damaged: the error names the file and what to do."""
    path = lease_path(tmp_path, CARD.uuid)
    write_lease(path, replace(new_lease(CARD, 5.0), before_w=350.0, written_w=(300.0,)))
    write_json(path, change(read_json(path)))
    with pytest.raises(DamageError, match=rf"^{path} is damaged \(.*nvidia-smi -q .* remove the file$"):
        read_lease(path)


@pytest.mark.parametrize("text", ["", "{", "\0" * 300, '{"version": 1}'])
def test_half_a_lease_is_damaged(tmp_path: Path, text: str) -> None:
    """What a broken disk may leave of the file is an error, and no lease."""
    path = lease_path(tmp_path, CARD.uuid)
    path.write_text(text)
    with pytest.raises(DamageError, match="is damaged"):
        read_lease(path)


def test_where_leases_lie(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The environment's folder, else the machine's for root, else the user's own."""
    assert state_dir({"NIGHTBATCH_STATE_DIR": str(tmp_path)}) == tmp_path
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "access", lambda path, mode: True)
    assert state_dir({}) == Path("/run/nightbatch")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert state_dir({}) == Path("/var/lib/nightbatch")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert state_dir({"XDG_STATE_HOME": "/x"}) == Path("/x/nightbatch")
    monkeypatch.setenv("HOME", "/home/u")
    assert state_dir({}) == Path("/home/u/.local/state/nightbatch")


def test_whether_the_owner_lives(tmp_path: Path) -> None:
    """A process is told from a later one of the same number, and from itself as a zombie; of another boot it is dead."""
    lease = new_lease(CARD, None)
    assert lease.owner_lives()
    assert not replace(lease, started=lease.started + 1).owner_lives()
    assert not replace(lease, boot_id="another").owner_lives()
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.read()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert started(child.pid) is None
    assert started(child.pid) is None
    assert len(boot_id()) == 36


def test_one_owner_a_card(tmp_path: Path) -> None:
    """The second is told which card and who has it; another card is free."""
    path = lease_path(tmp_path, CARD.uuid)
    with card_lock(path, wait_s=0):
        with pytest.raises(LockedError, match=rf"^GPU-0: .* in the hands of process {os.getpid()} "):
            card_lock(path, wait_s=0).__enter__()
        with card_lock(lease_path(tmp_path, "GPU-1"), wait_s=0):
            pass
    with card_lock(path, wait_s=0):
        pass


def test_who_inherits_the_lock_holds_it(tmp_path: Path) -> None:
    """The card is free only when the owner and its guard have ended, and until then the guard is named."""
    path = lease_path(tmp_path, CARD.uuid)
    lease: Lease = replace(new_lease(CARD, None), pid=2**22 + 1)
    write_lease(path, lease)
    with card_lock(path, wait_s=0) as lock:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock.fileno(),))
    with pytest.raises(LockedError, match=rf"the guard of process {lease.pid} .* which has ended"):
        card_lock(path, wait_s=0).__enter__()
    child.communicate(b"\n")
    with card_lock(path, wait_s=0):
        pass


def test_drivers_may_round(tmp_path: Path) -> None:
    """A limit that a driver rounds to whole watts is still ours, and one watt more is another's."""
    lease = replace(new_lease(CARD, None), before_w=350.0, written_w=(300.4,))
    assert lease.wrote(300.0) and not lease.wrote(301.0) and same_limit(300.4, 300.0)
