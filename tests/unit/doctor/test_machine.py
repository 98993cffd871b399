"""The machine's pages: each bound, on machines that are told and not there, and the look at this one."""

import resource
from pathlib import Path

import pytest

from tasks.doctor import machine
from tasks.doctor.finding import Finding, State
from tasks.doctor.machine import Place
from tasks.storage.layout import Layout

GB = 10**9
OK, WARNING, PROBLEM = State.OK, State.WARNING, State.PROBLEM


def place(**given: object) -> Place:
    values: dict[str, object] = {"free_bytes": 100 * GB, "free_files": 10**6, "kind": "ext4"}
    return Place("checkpoints", Path("c"), **(values | given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "states", "words"),
    [
        ({}, [OK], "checkpoints (c): 100.0 GB free, ext4"),
        ({"free_bytes": 5 * GB}, [WARNING], "5.0 GB free, which a night may need"),
        ({"free_bytes": GB // 10}, [PROBLEM], "0.1 GB free"),
        ({"free_files": 12}, [PROBLEM], "only 12 more files"),
        ({"free_files": None}, [OK], "GB free"),
        ({"kind": "tmpfs"}, [OK, WARNING], "lies in memory (tmpfs): a reboot takes it"),
        ({"kind": "nfs4"}, [OK, WARNING], "lies on another machine (nfs4)"),
        ({"skew_s": -90.0}, [OK, WARNING], "dated -90 s off this machine's clock"),
        ({"refusal": "Permission denied"}, [PROBLEM], "nothing can be written there: Permission denied"),
    ],
)
def test_places(given: dict[str, object], states: list[State], words: str) -> None:
    """Room, kind and clock of a folder's disk are judged; a remedy stands wherever all is not well."""
    found = list(machine.judge_place(place(**given)))
    assert [one.state for one in found] == states
    assert words in found[-1].what
    assert all(bool(one.remedy) == (one.state is not OK) for one in found)


def test_a_folder_is_looked_at_where_it_would_be_made(tmp_path: Path) -> None:
    """The nearest folder that is there is asked, and nothing is left in it."""
    found = machine.look_at("data", tmp_path / "not" / "yet")
    assert (found.path, found.refusal, found.free_bytes > 0) == (tmp_path / "not" / "yet", "", True)
    assert abs(found.skew_s) < 5
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    """A root where a file lies is a problem, in the system's words."""
    (tmp_path / "data").write_text("")
    (first, *_) = machine.disks(Layout(tmp_path / "data", tmp_path / "checkpoints"))
    assert first.state is PROBLEM
    assert "Not a directory" in first.what


@pytest.mark.parametrize(
    ("limit", "state"), [(256, WARNING), (1024, OK), (resource.RLIM_INFINITY, OK)], ids=["few", "enough", "any"]
)
def test_open_files(limit: int, state: State) -> None:
    """Few open files are a warning."""
    assert machine.judge_files(limit).state is state


@pytest.mark.parametrize(
    ("available", "limit", "taken", "state"),
    [
        (16 * GB, None, None, OK),
        (3 * GB, None, None, WARNING),
        (GB, None, None, PROBLEM),
        (16 * GB, 4 * GB, 3 * GB, PROBLEM),
        (16 * GB, 64 * GB, 1 * GB, OK),
        (16 * GB, 8 * GB, None, OK),
    ],
)
def test_memory(available: int, limit: int | None, taken: int | None, state: State) -> None:
    """The container's limit counts where it is the smaller one."""
    assert machine.judge_memory(available, 32 * GB, limit, taken).state is state


def states(findings: list[Finding]) -> list[State]:
    return [one.state for one in findings]


def test_processors() -> None:
    """Without AVX2, under a container's quota, or with fewer threads than cores there is a warning, and only then."""
    avx = frozenset({"avx2", "avx512f"})
    assert states(list(machine.judge_processor(avx, "x86_64", 8, None, None))) == [OK]
    assert states(list(machine.judge_processor(frozenset({"sse"}), "x86_64", 8, None, None))) == [WARNING]
    assert states(list(machine.judge_processor(frozenset(), "aarch64", 8, None, "8"))) == [OK]
    (_, quota) = machine.judge_processor(avx, "x86_64", 8, 2.5, None)
    assert (quota.state, quota.remedy) == (WARNING, "set OMP_NUM_THREADS=2, or raise the limit")
    assert states(list(machine.judge_processor(avx, "x86_64", 8, 2.5, "2"))) == [OK]
    (_, threads) = machine.judge_processor(avx, "x86_64", 8, None, "1")
    assert "OMP_NUM_THREADS=1 of 8 cores" in threads.what


def test_container_limits_are_read(tmp_path: Path) -> None:
    """Numbers of control groups; a machine without them, or with "max", has none."""
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert (machine.cgroup_bytes("memory.max", tmp_path), machine.cpu_quota(tmp_path)) == (1000, 1.5)
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert (machine.cgroup_bytes("memory.max", tmp_path), machine.cpu_quota(tmp_path)) == (None, None)
    assert machine.cgroup_bytes("nothere", tmp_path) is None


def test_a_clock_of_the_past() -> None:
    """A clock that a dead battery set back is a problem."""
    assert machine.judge_clock(0.0).state is PROBLEM
    assert "1970-01-01" in machine.judge_clock(0.0).what
    assert next(machine.clock()).state is OK


def test_this_machine(tmp_path: Path) -> None:
    """All pages can be read here."""
    pages = [*machine.disks(Layout(tmp_path, tmp_path)), *machine.memory(), *machine.processor(), *machine.clock()]
    assert {one.page for one in pages} >= {"disk", "memory", "processor", "clock"}
