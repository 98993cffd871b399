"""Replace a file or a folder whole, or not at all.

Write order, in this place only: write beside it, fsync, rename, fsync the folder. A reader sees the old or the new,
never half. Any failure raises OSError and leaves the old in place. What a killed writer left is removed by a later one.
"""

import errno
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Any

from tasks.core.errors import DamageError
from tasks.storage.lock import lives

_LEFT_ALONE_S = 3600.0
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def sync_dir(path: Path) -> None:
    """Make the names in a folder durable."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def sync_file(path: Path) -> None:
    """Make the bytes of a closed file durable."""
    _sync(path, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    fd = os.open(path, flags)
    try:
        os.fsync(fd)
    except OSError as error:
        raise _named(error, "cannot sync", path) from error
    finally:
        os.close(fd)


def sync_data(fd: int) -> None:
    """Make the bytes of an open file durable, and of its metadata only what reading them needs."""
    try:
        os.fdatasync(fd)
    except OSError as error:
        raise _named(error, "cannot sync") from error


def _named(error: OSError, what: str, path: Path | None = None) -> OSError:
    """Of a call on a descriptor the error says neither what was done nor to which file; people need both."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return OSError(error.errno, f"{what}: {reason}", path and str(path))


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Gives a full disk's error the file that was being written, where it names none, as those of libraries do not."""
    try:
        yield
    except OSError as error:
        if error.filename is None and (error.errno in _NO_ROOM or "No space left" in str(error)):
            raise _named(error, "cannot write", path) from error
        raise


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def _sweep(path: Path) -> None:
    """Remove what writers of `path` left that were killed: of a process that is gone, and not touched for an hour."""
    prefix = f".{path.name}."
    for leftover in path.parent.glob(f"{escape(prefix)}*"):
        pid = leftover.name.removeprefix(prefix).partition(".")[0]
        with suppress(OSError):  # somebody else sweeps too, or it is not ours
            if pid.isdigit() and not lives(int(pid)) and time.time() - leftover.lstat().st_mtime > _LEFT_ALONE_S:
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()


@contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """Yields a path to write to; on a clean exit it takes the place of `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path)
    temporary = _beside(path)
    try:
        with _naming(path):
            yield temporary
            sync_file(temporary)
            os.replace(temporary, path)
            sync_dir(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_dir(path: Path) -> Iterator[Path]:
    """Yields an empty folder to fill; on a clean exit it takes the place of `path` (which is away for one rename)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path)
    temporary, old = _beside(path), path.with_name(f".{path.name}.{os.getpid()}.old")
    for leftover in (temporary, old):
        shutil.rmtree(leftover, ignore_errors=True)
    temporary.mkdir()
    try:
        with _naming(path):
            yield temporary
            for file in temporary.iterdir():
                sync_file(file)
            sync_dir(temporary)
            if path.exists():
                os.replace(path, old)
            os.replace(temporary, path)
            sync_dir(path.parent)
    finally:
        for leftover in (temporary, old):
            shutil.rmtree(leftover, ignore_errors=True)


def remove_files(paths: Iterable[Path]) -> None:
    """Remove files that something durable stands for by now."""
    for path in paths:
        path.unlink()


def write_json(path: Path, value: Any) -> None:
    """One JSON document, readable by people, whole or not at all."""
    with replacing_file(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n", encoding="utf-8")


def read_json(path: Path) -> Any | None:
    """The document, or None when there is none. Raises DamageError when it is not what was written, which was whole."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise DamageError(f"{path} is damaged: {error}") from error
