"""What property tests share: each of them writes some hundred files."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def hasty() -> Iterator[None]:
    """Spares the disk, which some hundred files would wait for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks.storage.atomic.sync_file", lambda path: None)
        patch.setattr("tasks.storage.atomic.sync_dir", lambda path: None)
        yield
