"""Whether somebody is writing a file just now, as far as the kernel can say."""

import os
import signal
import sys
from pathlib import Path


def is_open_for_writing(path: Path) -> bool | None:
    """Whether any process of this machine has it open for writing; None where that cannot be known.

    Linux grants a lease for reading only on files that nobody has open for writing. It says so for local files of one's own.
    """
    if sys.platform != "linux":
        return None
    import fcntl

    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)  # ignored by default, should a writer come in this instant
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(fd)
    return False
