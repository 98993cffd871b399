"""Local copies of input that cannot be read twice or may change meanwhile: pipes, and files that lie elsewhere.

A copy of a remote file is named by its URL and version, so that a resume neither fetches it again nor sees another. Copies
that nobody has asked for in three days are removed.
"""

import shutil
import time
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from tempfile import mkdtemp
from typing import BinaryIO

from tasks.storage.atomic import replacing_file
from tasks.storage.remote import RemoteFile, copy_remote

_KEPT_S = 3 * 86_400.0
_COPY_BYTES = 1 << 20


def fetch(file: RemoteFile, folder: Path) -> Path:
    """The local copy of a remote file: the one that is there, if it is of this version."""
    key = blake2b(repr((file.url, file.path, file.version, file.size)).encode(), digest_size=16).hexdigest()
    place = folder / key / Path(file.name).name
    sweep(folder)
    if file.version is None or not place.exists():
        with replacing_file(place) as temporary:
            copy_remote(file, temporary)
    _touch(place.parent)
    return place


def keep(stream: BinaryIO, folder: Path, name: str) -> Path:
    """Everything that comes out of a stream, as a file in a folder that is named by its content."""
    folder.mkdir(parents=True, exist_ok=True)
    sweep(folder)
    arriving = Path(mkdtemp(dir=folder))
    try:
        hashed = blake2b(digest_size=16)
        with (arriving / name).open("wb") as copy:
            while block := stream.read(_COPY_BYTES):
                hashed.update(block)
                copy.write(block)
        place = folder / hashed.hexdigest() / name
        place.parent.mkdir(exist_ok=True)
        if not place.exists():  # else it has the same content, and somebody may be reading it
            (arriving / name).replace(place)
    finally:
        shutil.rmtree(arriving)
    _touch(place.parent)
    return place


def sweep(folder: Path, now: float | None = None) -> None:
    """Remove copies that nobody asked for in a while."""
    oldest = (time.time() if now is None else now) - _KEPT_S
    for copy in folder.glob("*/"):
        with suppress(OSError):  # somebody else sweeps too
            if copy.stat().st_mtime < oldest:
                shutil.rmtree(copy)


def _touch(folder: Path) -> None:
    with suppress(OSError):
        folder.touch()
