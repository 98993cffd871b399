"""What in a folder is data, and to which source it belongs, by names alone: for folders here and elsewhere.

A folder with sub-folders is an inbox: each sub-folder is a source. Notes and templates that lie beside data (README,
LICENSE, *.md, *.toml, *.j2, all that is hidden) are not data; where each file is a prompt, *.md is. Names that say that a
file is not whole yet are left out, and said.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from tasks.core.errors import InputError
from tasks.ingest.finding.source_file import FORMATS

Note = Callable[[str], None]

_NOT_DATA_NAMES = ("README", "LICENSE", "NOTICE", "COPYING")
TEMPLATE_SUFFIXES = (".j2", ".jinja", ".jinja2")
_NOT_DATA_SUFFIXES = (".md", ".toml", *TEMPLATE_SUFFIXES)
_TABLES = FORMATS.keys() - {".txt"}
_UNFINISHED = re.compile(
    r".*(\.(tmp|temp|part|partial|crdownload|download|filepart|swp)|~)|\.~lock\..*|~\$.*|\..+\.[A-Za-z0-9]{6}", re.IGNORECASE
)
"""Of copying tools and browsers, of editors, and the hidden ones of rsync."""


def is_data(name: PurePosixPath, *, is_document: bool = False) -> bool:
    """Whether a file of this name, relative to the folder that was named, holds rows."""
    if any(part.startswith(".") for part in name.parts):
        return False
    suffix = name.suffix.lower()
    if suffix in _NOT_DATA_SUFFIXES and not (is_document and suffix == ".md"):
        return False
    return name.stem.upper() not in _NOT_DATA_NAMES or suffix in _TABLES


def is_unfinished(name: str) -> bool:
    """Whether the name is one under which files are written until they are whole."""
    return _UNFINISHED.fullmatch(name) is not None


def whole(names: Sequence[str], where: str, note: Note, *, is_document: bool) -> list[str]:
    """Of relative names those of data; what is left out as unfinished is noted."""
    kept: list[str] = []
    for name in names:
        path = PurePosixPath(name)
        if is_unfinished(path.name) and not any(part.startswith(".") for part in path.parts[:-1]):
            note(f"{where.rstrip('/')}/{name} is left out: its name says that it is not whole yet")
        elif is_data(path, is_document=is_document):
            kept.append(name)
    return kept


def by_source(names: Sequence[str], folders: Sequence[str], own: str, where: str) -> Iterator[tuple[str, str, str]]:
    """Each file's source, its name within the source, and its name within the folder, whose own name is `own`.

    Raises InputError when an inbox has files that lie beside its sources.
    """
    loose = sorted(name for name in names if "/" not in name)
    if folders and loose:
        raise InputError(f"{where} has both sub-folders and files ({loose[0]}): put each file into its source's folder")
    for name in names:
        source, _, rest = name.partition("/")
        yield (source, rest, name) if folders else (own, name, name)


def sub_folders(folder: Path) -> list[str]:
    """The sources of an inbox; none where the folder is no inbox."""
    return [child.name for child in sorted(folder.iterdir()) if child.is_dir() and not child.name.startswith(".")]


def names_under(folder: Path, folders: Sequence[str]) -> list[str]:
    """Everything but folders under a folder and these sub-folders of it, relative to it."""
    loose = [path for path in sorted(folder.iterdir()) if not path.is_dir()]
    paths = [*loose, *(path for name in folders for path in _walk(folder / name))]
    return [path.relative_to(folder).as_posix() for path in paths if path.is_file() or not path.exists()]


def _walk(folder: Path) -> Iterator[Path]:
    """Everything but folders under a folder. None is entered twice: a link may lead back up."""
    entered: set[str] = set()
    for here, folders, names in os.walk(folder, onerror=_give_up, followlinks=True):
        real = os.path.realpath(here)
        folders[:] = [] if real in entered else sorted(name for name in folders if not name.startswith("."))
        if real not in entered:
            yield from (Path(here, name) for name in sorted(names))
        entered.add(real)


def _give_up(error: OSError) -> None:
    raise error
