"""Prefect: whether a server is configured, and answers. Runs need none; the scheduled flows do.

Settings are read where Prefect reads them, in its order: the environment, prefect.toml of the working directory, the active
profile. Prefect itself, which takes seconds to import, is not asked.
"""

import os
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tasks.doctor.finding import Finding, State, ok, warning

PAGE = "prefect"
_TIMEOUT_S = 1.0
_URL, _PROJECT = "PREFECT_API_URL", "prefect.toml"


def prefect(
    environment: Mapping[str, str] = os.environ,
    folder: Path | None = None,
    health: Callable[[str], str | None] | None = None,
) -> Iterator[Finding]:
    """One finding; `health` says why a server at a URL is none, or None when it is well."""
    try:
        url, where = configured_url(environment, folder or Path.cwd())
    except (OSError, ValueError) as error:
        yield warning(PAGE, f"its settings cannot be read: {error}", "prefect config view")
        return
    if url is None:
        yield ok(PAGE, "no server is configured, and none is needed for `nightbatch run` and `nightbatch nightly`")
    elif (reason := (health or _health)(url)) and where == _PROJECT:  # which names one for all who clone the project
        what = f"no server answers at {url} ({where}), and none is needed but for scheduled flows"
        yield Finding(PAGE, State.OK, what, "prefect server start (docs/prefect.md)")
    elif reason:
        remedy = "for scheduled flows start it: prefect server start (docs/prefect.md); other runs need none"
        yield warning(PAGE, f"the server at {url} ({where}) does not answer: {reason}", remedy)
    else:
        yield ok(PAGE, f"the server at {url} ({where}) answers")


def configured_url(environment: Mapping[str, str], folder: Path) -> tuple[str | None, str]:
    """The server's URL, and which setting names it. Raises OSError or ValueError when a file of settings is not readable."""
    if url := environment.get(_URL):
        return url, _URL
    project = _toml(folder / _PROJECT)
    if url := project.get("api", {}).get("url"):
        return str(url), _PROJECT
    home = environment.get("PREFECT_HOME") or project.get("home") or Path.home() / ".prefect"
    profiles = _toml(folder / Path(home).expanduser() / "profiles.toml")
    active = environment.get("PREFECT_PROFILE") or profiles.get("active", "")
    url = profiles.get("profiles", {}).get(active, {}).get(_URL)
    return (str(url), f"profile {active}") if url else (None, "")


def _toml(path: Path) -> dict[str, Any]:
    with suppress(FileNotFoundError):
        return tomllib.loads(path.read_text(encoding="utf-8"))
    return {}


def _health(url: str) -> str | None:
    """Ask the server; whoever answers with an error of HTTP is there, and wants a key perhaps."""
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/health", timeout=_TIMEOUT_S):
            return None
    except urllib.error.HTTPError as error:
        return None if error.code in (401, 403) else f"HTTP {error.code}"
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        return str(reason)
