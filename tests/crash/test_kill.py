"""SIGKILL at any time, of all processes or of one: nothing is lost, nothing is done twice, the answers are the same."""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from tests.crash.conftest import Night, Undisturbed

_NUM_KILLS = int(os.environ.get("NIGHTBATCH_KILLS", "12"))


def test_killed_group_at_random_moments(night: "Night", ask: Callable[..., Path], tmp_path: Path) -> None:
    """SIGKILL of the whole process group again and again: acknowledged tokens stay, and the answers are the same."""
    dice, kept = random.Random(3), 0
    night = replace(night, rows=ask(5 * _NUM_KILLS), step_s=0.02)
    undisturbed = night.undisturbed(tmp_path / "undisturbed")
    for number in range(_NUM_KILLS):
        process = night.start()
        if number % 3:
            night.wait_for_tokens(process, 200)
            time.sleep(dice.uniform(0, 0.1))
        else:
            time.sleep(dice.uniform(0, 0.8))
        os.killpg(process.pid, signal.SIGKILL)
        night.finish(process)
        undisturbed.assert_nothing_half(night)
        if night.segments:
            known = night.known()
            assert known.num_tokens >= kept, "a token that was in the journal is gone"
            kept = known.num_tokens
    assert 0 < kept < undisturbed.num_tokens
    assert night.complete()["resumed_tokens"] == kept
    undisturbed.assert_whole(night)


def test_killed_with_several_choices_a_request(night: "Night", ask: Callable[..., Path], tmp_path: Path) -> None:
    """Requests with four choices that are killed midway have four in the end, 0 to 3, token for token as undisturbed."""
    night = replace(night, rows=ask(6, n=4, temperature=0.8, seed=7))
    undisturbed = night.undisturbed(tmp_path / "undisturbed")
    process = night.start()
    night.wait_for_tokens(process, 2000)
    os.killpg(process.pid, signal.SIGKILL)
    night.finish(process)
    undisturbed.assert_nothing_half(night)
    night.complete()
    undisturbed.assert_whole(night)
    choices = night.sql("select custom_id, list(choice_index order by choice_index) from results group by 1")
    assert len(choices) == 6
    assert all(indices == [0, 1, 2, 3] for _, indices in choices)


_COMPACTS_EARLY = """
import sys
from tasks.core.config import JournalConfig
*others, compact_bytes = JournalConfig.__init__.__defaults__
JournalConfig.__init__.__defaults__ = (*others, 1 << 20)
from flows.cli import main
sys.exit(main())
"""


def test_killed_with_a_long_journal(
    night: "Night", ask: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resume that finds a long journal puts it into one segment as small as its tokens, and goes on from there."""
    run_by = type(night.cli).command
    early = [sys.executable, "-P", "-c", _COMPACTS_EARLY]
    monkeypatch.setattr(type(night.cli), "command", lambda *given: [*early, *run_by(*given)[4:]])
    night = replace(night, rows=ask(200, max_tokens=400, ignore_eos=True), step_s=0)
    undisturbed = night.undisturbed(tmp_path / "undisturbed")
    process = night.start()
    night.wait_for_tokens(process, 1_200_000)
    os.killpg(process.pid, signal.SIGKILL)
    night.finish(process)
    before = night.known()
    process = night.start()
    night.wait_for(lambda: all(".000001." not in path.name for path in night.segments), process)
    os.killpg(process.pid, signal.SIGKILL)
    night.finish(process)
    assert night.known().num_tokens >= before.num_tokens
    assert night.segments[0].stat().st_size < before.num_bytes / 3
    night.complete()
    undisturbed.assert_whole(night)


def test_killed_engine_is_restarted_in_the_same_run(night: "Night", undisturbed: "Undisturbed") -> None:
    """SIGKILL of the engine child alone: the supervisor says so, starts another, and the run completes."""
    process = night.start()
    night.wait_for_tokens(process)
    night.worker_of(process).kill()
    ended = night.finish(process)
    assert ended.code == 0, ended.err
    assert "killed by SIGKILL" in ended.err
    assert "resuming" in ended.err
    assert night.manifest["resumed_tokens"] == 0, "what this session made itself was not kept from before"
    undisturbed.assert_whole(night)


def test_killed_supervisor_takes_its_engine_along(night: "Night") -> None:
    """SIGKILL of the command alone leaves no engine behind, and status knows that nobody works on the run."""
    process = night.start()
    night.wait_for_tokens(process, 200)
    worker = night.worker_of(process)
    process.kill()
    night.finish(process)
    psutil.wait_procs([worker], timeout=5)
    assert not night.lives(worker)
    assert night.status().state == "interrupted"


def test_other_settings_are_another_run(night: "Night") -> None:
    """Anything that would change a token makes a new run; what was there before is not touched."""
    night = replace(night, step_s=0)
    options = ((), ("--seed", "1"))
    before: dict[str, bytes] = {}
    for number, extra in enumerate(options, start=1):
        assert night.run(*extra).code == 0
        assert len(list(night.layout.runs.iterdir())) == number
        now = night.bytes()
        assert {name for name in before if now[name] != before[name]} <= {str(night.layout.database)}
        before = now
    night.rows.write_text(night.rows.read_text() + '{"prompt": "one more"}\n')
    assert night.run().code == 0
    assert len(list(night.layout.runs.iterdir())) == len(options) + 1
