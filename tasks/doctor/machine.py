"""The machine: disks, memory, processor, clock. What is measured and what it means are apart, so that a test can tell of any
machine.

Bounds are estimates from the default model and plans of a night: they say when to look, not what works.
"""

import os
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tasks.doctor.finding import Finding, ok, problem, warning
from tasks.storage.layout import Layout

DISK, MEMORY, PROCESSOR, CLOCK = "disk", "memory", "processor", "clock"

_GB = 1e9
_FEW_BYTES, _TOO_FEW_BYTES = 10 * _GB, 0.2 * _GB
_FEW_FILES = 1024
_LITTLE_MEMORY, _TOO_LITTLE_MEMORY = 4 * _GB, 1.5 * _GB
"""The default model takes 0.3 GB, its KV cache on a CPU 2 GB, Python and vLLM about 1 GB."""
_ELSEWHERE = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "afs", "ceph", "glusterfs"}
_IN_MEMORY = {"tmpfs", "ramfs"}
_WRITTEN_AT = 1_764_547_200.0  # 2025-12-01, some time before this was written: no clock that is right says less
_SKEW_S = 5.0


@dataclass(frozen=True, slots=True)
class Place:
    """A folder that runs write to. `path` is what was asked for, `refusal` why nothing can be written there. `skew_s` is how
    far the file system's clock is ahead of ours."""

    name: str
    path: Path
    free_bytes: int = 0
    free_files: int | None = None
    kind: str = ""
    refusal: str = ""
    skew_s: float = 0.0


def disks(layout: Layout) -> Iterator[Finding]:
    """The two roots, and how many files may be open."""
    for name, path in (("data", layout.data), ("checkpoints", layout.checkpoints)):
        yield from judge_place(look_at(name, path))
    yield judge_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def look_at(name: str, path: Path) -> Place:
    """Measure a folder, or the nearest one above it that is there, where it would be made."""
    there = next(one for one in (path.absolute(), *path.absolute().parents) if one.exists())
    try:
        skew = _write_something(there)
    except OSError as error:
        return Place(name, path, refusal=error.strerror or str(error))
    files = os.statvfs(there)
    return Place(
        name, path, shutil.disk_usage(there).free, files.f_favail if files.f_files else None, _kind(there), "", skew
    )


def _write_something(folder: Path) -> float:
    """How far the clock that dates files is ahead."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".nightbatch-") as file:
        before = time.time()
        file.write(b"x")
        file.flush()
        dated, after = os.fstat(file.fileno()).st_mtime, time.time()
    return dated - after if dated > after else min(0.0, dated - before)


def _kind(folder: Path) -> str:
    """The type of the file system."""
    mounts = {Path(one.mountpoint): one.fstype for one in psutil.disk_partitions(all=True)}
    return next((mounts[one] for one in (folder.resolve(), *folder.resolve().parents) if one in mounts), "")


def judge_place(place: Place) -> Iterator[Finding]:
    """What a folder is good for."""
    where = f"{place.name} ({place.path})"
    if place.refusal:
        yield problem(
            DISK, f"{where}: nothing can be written there: {place.refusal}", f"name another folder with --{place.name}"
        )
        return
    free = f"{place.free_bytes / _GB:.1f} GB free"
    room = f"make room there, or name another disk with --{place.name}"
    if place.free_bytes < _TOO_FEW_BYTES:
        yield problem(DISK, f"{where}: {free}", room)
    elif place.free_files is not None and place.free_files < _FEW_FILES:
        yield problem(DISK, f"{where}: {free}, and only {place.free_files} more files", room)
    elif place.free_bytes < _FEW_BYTES:
        yield warning(DISK, f"{where}: {free}, which a night may need", room)
    else:
        yield ok(DISK, f"{where}: {free}{', ' + place.kind if place.kind else ''}")
    if place.kind in _IN_MEMORY:
        yield warning(DISK, f"{where} lies in memory ({place.kind}): a reboot takes it", f"name a disk with --{place.name}")
    if place.kind in _ELSEWHERE and place.name == "checkpoints":
        remedy = "keep checkpoints on a disk of this machine"
        yield warning(DISK, f"{where} lies on another machine ({place.kind}): locks and syncs depend on it", remedy)
    if abs(place.skew_s) > _SKEW_S:
        yield warning(
            CLOCK, f"{where}: files there are dated {place.skew_s:+.0f} s off this machine's clock", "set both by NTP"
        )


def judge_files(limit: int) -> Finding:
    """The limit of open files."""
    if limit != resource.RLIM_INFINITY and limit < _FEW_FILES:
        return warning(DISK, f"a process may have only {limit} files open", f"ulimit -n {4 * _FEW_FILES}")
    return ok(
        DISK, "files open at once: any number" if limit == resource.RLIM_INFINITY else f"files open at once: {limit:,}"
    )


def memory() -> Iterator[Finding]:
    """What is free, also under a container's limit."""
    machine = psutil.virtual_memory()
    yield judge_memory(machine.available, machine.total, cgroup_bytes("memory.max"), cgroup_bytes("memory.current"))


def judge_memory(available: int, total: int, limit: int | None, taken: int | None) -> Finding:
    """Bytes of the machine, and of the container where it has a limit."""
    which = ""
    if limit is not None and limit < total:
        available, which = min(available, limit - (taken or 0)), f" (this container has {limit / _GB:.1f})"
    what = f"{available / _GB:.1f} GB of memory free of {total / _GB:.1f}{which}"
    remedy = "end what else runs, or choose a smaller model or --kv-cache-memory-bytes"
    if available < _TOO_LITTLE_MEMORY:
        return problem(MEMORY, what, remedy)
    return warning(MEMORY, what, remedy) if available < _LITTLE_MEMORY else ok(MEMORY, what)


def cgroup_bytes(name: str, root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """A number of the container's; None where there is none."""
    with suppress(OSError, ValueError):
        return int((root / name).read_text())
    return None


def processor() -> Iterator[Finding]:
    """Cores, what they can compute with, and what the environment makes of them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield from judge_processor(_flags(), os.uname().machine, cores, cpu_quota(), os.environ.get("OMP_NUM_THREADS"))


def _flags() -> frozenset[str]:
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return frozenset(next((line.partition(":")[2] for line in lines if line.startswith("flags")), "").split())
    return frozenset()


def cpu_quota(root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Cores that a container may use at once, of version 2's cpu.max."""
    with suppress(OSError, ValueError):
        quota, period = (root / "cpu.max").read_text().split()
        return int(quota) / int(period)
    return None


def judge_processor(
    flags: frozenset[str], machine: str, cores: int, quota: float | None, omp: str | None
) -> Iterator[Finding]:
    """vLLM's CPU build needs AVX2 on x86, and is fast with AVX-512."""
    best = next((name for name in ("avx512f", "avx2") if name in flags), None)
    what = f"{cores} cores ({machine}{', ' + best if best else ''})"
    if machine == "x86_64" and flags and best is None:
        yield warning(
            PROCESSOR, f"{what} without AVX2: the CPU build of vLLM does not run", "use a GPU, or a newer processor"
        )
    else:
        yield ok(PROCESSOR, what)
    if quota is not None and quota < cores:
        remedy = f"set OMP_NUM_THREADS={max(1, int(quota))}, or raise the limit"
        if omp != str(max(1, int(quota))):
            yield warning(PROCESSOR, f"the container may use {quota:g} of the {cores} cores at once", remedy)
    elif omp is not None and omp != str(cores):
        remedy = "unset OMP_NUM_THREADS, and all cores are used"
        yield warning(PROCESSOR, f"OMP_NUM_THREADS={omp} of {cores} cores: on a CPU the engine uses no more", remedy)


def clock() -> Iterator[Finding]:
    """The wall clock, which names nights and dates journals."""
    yield judge_clock(time.time())


def judge_clock(now: float) -> Finding:
    if now < _WRITTEN_AT:
        day = time.strftime("%Y-%m-%d", time.gmtime(now))
        return problem(CLOCK, f"the clock says {day}, which is in the past", "set it: timedatectl set-ntp true")
    return ok(CLOCK, f"{time.strftime('%Y-%m-%d %H:%M:%S %z', time.localtime(now))}")
