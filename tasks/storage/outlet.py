"""Where a file for people goes: a path, which it takes whole or not at all, or a stream such as stdout."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tasks.storage.atomic import replacing_file

_BUFFER_BYTES = 1 << 20


@contextmanager
def outlet(path: Path | None) -> Iterator[BinaryIO]:
    """A stream to write to. None is stdout; a device or a pipe is written to as it is, a link's file is replaced."""
    if path is None:
        with os.fdopen(os.dup(1), "wb", _BUFFER_BYTES) as stream:  # so that a reader who leaves is heard of here
            yield stream
    elif is_stream(path):
        with path.open("wb", _BUFFER_BYTES) as stream:
            yield stream
    else:
        with replacing_file(Path(os.path.realpath(path))) as temporary, temporary.open("wb", _BUFFER_BYTES) as stream:
            yield stream


def is_stream(path: Path) -> bool:
    """Whether the path is there and is no file, so that it can be written to and not replaced."""
    return path.exists() and not path.is_file()
