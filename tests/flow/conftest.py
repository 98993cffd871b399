"""Prefect's API for the few tests that need one: its own harness, once a module, with everything in a temporary folder."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prefect.settings import PREFECT_HOME, PREFECT_SERVER_MEMO_STORE_PATH, temporary_settings
from prefect.testing.utilities import prefect_test_harness


@pytest.fixture(scope="module")
def prefect_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A Prefect server with an empty database; about ten seconds.

    It ends with its module: the client's web socket is kept alive with random pings, and Hypothesis takes a change of
    Python's random state under a property test that comes later for the test's own.
    """
    home = tmp_path_factory.mktemp("prefect")
    ours = {PREFECT_HOME: home, PREFECT_SERVER_MEMO_STORE_PATH: home / "memo_store.toml"}
    with temporary_settings(ours), prefect_test_harness(server_startup_timeout=60):
        yield


@pytest.fixture
def inbox(write_jsonl: Callable[..., Path]) -> Path:
    """Two sources with three requests."""
    write_jsonl([{"prompt": "What is a night shift?"}, {"prompt": "And a batch?"}], "inbox/helpdesk/today.jsonl")
    write_jsonl([{"prompt": "Summarise: nothing happened."}], "inbox/reports/monday.jsonl")
    return write_jsonl([], "inbox/reports/empty.jsonl").parent.parent
