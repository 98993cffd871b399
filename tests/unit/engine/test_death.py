"""Deaths in words."""

import pytest

from tasks.engine.death import how_it_died, parse_oom_kills


@pytest.mark.parametrize(
    ("vmstat", "kills"),
    [
        ("pgfault 12\noom_kill 3\nnuma_hit 4\n", 3),
        ("oom_kill 0", 0),
        ("oom_kill_x 3\nnr_free_pages 7\n", None),
        ("oom_kill what\n", None),
        ("", None),
    ],
)
def test_the_kernels_count_is_read_or_not_there(vmstat: str, kills: int | None) -> None:
    """Only the line `oom_kill N` counts."""
    assert parse_oom_kills(vmstat) == kills


def test_each_kind_of_death_has_its_words() -> None:
    """A signal by name, an exit code by number, a hang by its length; memory is named for SIGKILL alone."""
    assert how_it_died(-11) == "killed by SIGSEGV"
    assert how_it_died(-11, out_of_memory=True) == "killed by SIGSEGV"
    assert how_it_died(-9, out_of_memory=True) == "killed by SIGKILL (the kernel was out of memory)"
    assert how_it_died(-9, stalled_s=120) == "made no step for 120 s, killed by SIGKILL"
    assert how_it_died(-40) == "killed by signal 40"
    assert how_it_died(1) == "exit code 1"
