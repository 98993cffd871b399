"""Files that lie elsewhere, named by URLs: listed and copied, through pyarrow for object stores and fsspec for the rest.

What a URL holds besides the place, a password or a signature, never gets into what is shown, messages of libraries included.
"""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from tasks.core.errors import InputError

_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_ARROW_SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
_WEB = ("http", "https")
_WILD = re.compile(r"[*?\[]")
_COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file as a store lists it. `name` is relative to what was named; `version` changes with what is in the file.

    Without a version nobody can tell whether it changed.
    """

    url: str
    path: str
    name: str
    size: int | None
    version: str | None


def is_url(place: str) -> bool:
    """Whether it names something elsewhere; local files have file:// alone."""
    return bool(_URL.match(place))


def redacted(place: str) -> str:
    """A URL without user, password, query and fragment; anything else as it is."""
    if not is_url(place):
        return place
    parts = urlsplit(place)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def list_remote(url: str) -> tuple[list[RemoteFile], bool]:
    """The file at a URL, all files under it, or those that a pattern fits, and whether it is one file by itself.

    Raises InputError when there is nothing, it cannot be reached, or what it needs is not installed.
    """
    with _Explaining(url):
        scheme = urlsplit(url).scheme.lower()
        is_wild = scheme not in _WEB and bool(_WILD.search(urlsplit(url).path))
        top = _fixed_part(url) if is_wild else url
        found, is_file = (_list_arrow if scheme in _ARROW_SCHEMES else _list_fsspec)(top)
        if is_wild:
            fits = re.compile(_pattern(url.removeprefix(top)))
            found = [file for file in found if fits.match(file.name)]
        return found, is_file


def copy_remote(file: RemoteFile, into: Path) -> None:
    """The bytes of the file, streamed into a local one. Raises InputError when not all of them come."""
    with _Explaining(file.url), _opened(file) as stream, into.open("wb") as copy:
        shutil.copyfileobj(stream, copy, _COPY_BYTES)
    size = into.stat().st_size
    if file.size is not None and size != file.size:
        came = f"{size:,} bytes came instead of {file.size:,}"
        raise InputError(f"{redacted(file.url)}: {came}; it changed meanwhile, try again")


def _fixed_part(url: str) -> str:
    """The folder that a pattern begins in."""
    wild = _WILD.search(url, url.index("://") + 3)
    return url[: url.rindex("/", 0, wild.start() if wild else None) + 1]


def _pattern(wild: str) -> str:
    from fsspec.utils import glob_translate

    return str(glob_translate(wild))


def _arrow_fs(url: str) -> tuple[Any, str]:
    from pyarrow import fs

    return cast("tuple[Any, str]", fs.FileSystem.from_uri(url))


def _list_arrow(url: str) -> tuple[list[RemoteFile], bool]:
    from pyarrow import fs

    store, path = _arrow_fs(url)
    path = path.rstrip("/")
    [info] = store.get_file_info([path])
    if info.type == fs.FileType.NotFound:
        raise FileNotFoundError
    if info.type == fs.FileType.File:
        return [_of_arrow(url, info, info.base_name)], True
    found = store.get_file_info(fs.FileSelector(path, recursive=True))
    return [_of_arrow(url, one, one.path[len(path) + 1 :]) for one in found if one.type == fs.FileType.File], False


def _of_arrow(url: str, info: Any, name: str) -> RemoteFile:
    version = None if info.mtime_ns is None else f"{info.mtime_ns}"
    return RemoteFile(url, info.path, name, info.size, version)


def _list_fsspec(url: str) -> tuple[list[RemoteFile], bool]:
    store, path = _fsspec_fs(url)
    if urlsplit(url).scheme.lower() in _WEB or store.isfile(path):
        name = unquote(urlsplit(url).path.rstrip("/").rpartition("/")[2]) or urlsplit(url).hostname or "download"
        return [_of_fsspec(url, path, name, store.info(path))], True
    top = path.rstrip("/")
    found = store.find(path, detail=True)
    if not found:
        raise FileNotFoundError
    return [_of_fsspec(url, one, one[len(top) :].lstrip("/"), info) for one, info in found.items()], False


def _of_fsspec(url: str, path: str, name: str, info: dict[str, Any]) -> RemoteFile:
    marks = ("ETag", "etag", "md5", "Content-MD5", "Last-Modified", "last_commit", "blob_id", "mtime", "modified")
    version = next((f"{info[mark]}" for mark in marks if info.get(mark)), None)
    return RemoteFile(url, path, name, info.get("size"), version)


def _fsspec_fs(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    return cast("tuple[Any, str]", url_to_fs(url))


def _opened(file: RemoteFile) -> BinaryIO:
    if urlsplit(file.url).scheme.lower() in _ARROW_SCHEMES:
        return cast("BinaryIO", _arrow_fs(file.url)[0].open_input_stream(file.path, compression=None))
    store, _ = _fsspec_fs(file.url)
    return cast("BinaryIO", store.open(file.path, "rb"))


class _Explaining:
    """Turns what libraries raise into an InputError that says which URL, and nothing that is secret."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        shown = redacted(self._url)
        if isinstance(error, FileNotFoundError):
            unreachable = ", or its server cannot be reached" if shown.lower().startswith("http") else ""
            raise InputError(f"no such file or folder{unreachable}: {shown}") from None
        if isinstance(error, ImportError):
            said = _without_secrets(str(error), self._url)
            raise InputError(f"{shown}: {said}; for https:// the extra `remote`: pip install -e '.[remote]'") from None
        if isinstance(error, Exception) and not isinstance(error, InputError):
            said = " ".join(str(error).split()) or type(error).__name__
            raise InputError(f"cannot read {shown}: {_without_secrets(said, self._url)[:500]}") from None


def _without_secrets(text: str, url: str) -> str:
    text = text.replace(url, redacted(url))
    for secret in sorted(_secrets(url), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _secrets(url: str) -> Iterator[str]:
    parts = urlsplit(url)
    user = parts.netloc.rpartition("@")[0]
    given = (user, *user.split(":"), parts.query, parts.fragment, *(value for _, value in parse_qsl(parts.query)))
    for secret in given:
        if len(secret) > 3:
            yield from {secret, unquote(secret)}
