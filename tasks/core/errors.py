"""What can go wrong, sorted by what the reader should do about it.

Every error that nightbatch raises on purpose is a NightbatchError. Its message is one line that names the thing (file,
line, key, process) and the remedy; `exit_code` is what the command line ends with.
"""

import errno

_PLAIN_WORDS = {errno.ENOSPC: "disk full", errno.EDQUOT: "disk quota used up", errno.EROFS: "read-only disk"}


def in_words(error: OSError) -> str:
    """An error of the operating system in one line: what is wrong, in the system's words, and with which file."""
    parts = (_PLAIN_WORDS.get(error.errno or 0), error.strerror or str(error), error.filename)
    return ": ".join(str(part) for part in parts if part)


class NightbatchError(Exception):
    """The run cannot go on; the message says why. Exit code 1."""

    exit_code = 1


class InputError(NightbatchError):
    """Fix the input: a file is missing, unreadable or has no usable rows. Exit code 2."""

    exit_code = 2


class ConfigError(NightbatchError):
    """Fix a setting: an option, a configuration key or a model name is wrong. Exit code 2."""

    exit_code = 2


class DamageError(NightbatchError):
    """Something durable does not add up: run `nightbatch check` before anything else. Exit code 1."""


class RequestError(NightbatchError):
    """One request cannot be run; it becomes a failure with this reason and the others go on."""


class EngineError(NightbatchError):
    """The engine died or hung and restarting it did not help; everything generated so far is kept. Exit code 1."""


class LockedError(NightbatchError):
    """Another live process owns the run; wait for it or stop it. Exit code 75: trying again later is right."""

    exit_code = 75


class Stopped(NightbatchError):  # noqa: N818  it is no error
    """The run was put down on request and can be continued with the same command. Exit code 75."""

    exit_code = 75
