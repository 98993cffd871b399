"""TokenJournal and replay together: what was appended is what is known."""

import os
import resource
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.core.errors import DamageError
from tasks.core.request import FinishReason, StepOutput
from tasks.journal.replay import Replay, replay
from tasks.journal.writer import TokenJournal, segments

RUN, OTHER = bytes(32), bytes(31) + b"\1"


def replayed(folder: Path) -> Replay:
    return replay(segments(folder), RUN)


def tokens(folder: Path) -> dict[int, list[int]]:
    return {key: list(known.token_ids) for key, known in replayed(folder).progress.items()}


def test_tokens_add_up_over_steps(tmp_path: Path) -> None:
    """Steps append to each sequence; the end and its reason are known."""
    with TokenJournal(tmp_path, 0, RUN) as journal:
        journal.begin(1, 0)
        journal.begin(2, 0)
        journal.append([StepOutput(1, (10,)), StepOutput(2, (20, 21))])
        journal.append([StepOutput(1, (11,), FinishReason.STOP, cached_tokens=32)])
        journal.fail(3, "no room")
    known = replayed(tmp_path)
    assert tokens(tmp_path) == {1: [10, 11], 2: [20, 21], 3: []}
    assert known.progress[1].finish_reason is FinishReason.STOP
    assert known.progress[1].cached_tokens == 32
    assert known.progress[3].error == "no room"
    assert (known.num_tokens, known.num_final, known.num_final_tokens, known.damages) == (4, 2, 2, [])


def test_next_process_goes_on_in_a_new_segment(tmp_path: Path) -> None:
    """A second process continues the sequence from its saved tokens, in a segment of its own."""
    for first in (0, 2):
        with TokenJournal(tmp_path, 0, RUN) as journal:
            journal.begin(1, first)
            journal.append([StepOutput(1, (first,))])
            journal.append([StepOutput(1, (first + 1,))])
    assert len(segments(tmp_path)) == 2
    assert tokens(tmp_path) == {1: [0, 1, 2, 3]}


def test_restarted_sequence_forgets_its_old_tokens(tmp_path: Path) -> None:
    """A sequence that begins again at 0 replaces what was known of it once its first token is there."""
    for token in (5, 6):
        with TokenJournal(tmp_path, 0, RUN) as journal:
            journal.begin(1, 0)
            journal.append([StepOutput(1, (token, token))])
    assert tokens(tmp_path) == {1: [6, 6]}


def test_torn_tail_is_reported_and_never_appended_to(tmp_path: Path) -> None:
    """After a cut in the last frame the whole frames count, the rest is named, and a new process writes elsewhere."""
    with TokenJournal(tmp_path, 0, RUN) as journal:
        journal.begin(1, 0)
        journal.append([StepOutput(1, (1,))])
        journal.append([StepOutput(1, (2,))])
    torn = segments(tmp_path)[0]
    torn.write_bytes(torn.read_bytes()[:-1])
    assert [damage.path for damage in replayed(tmp_path).damages] == [torn]
    with TokenJournal(tmp_path, 0, RUN) as journal:
        journal.begin(1, 1)
        journal.append([StepOutput(1, (3,))])
    assert tokens(tmp_path) == {1: [1, 3]}


def test_damage_in_an_old_segment_never_gives_wrong_tokens(tmp_path: Path) -> None:
    """When the middle of an older segment is damaged, later entries that would leave a gap are not used."""
    for first in (0, 2):
        with TokenJournal(tmp_path, 0, RUN) as journal:
            journal.begin(1, first)
            journal.append([StepOutput(1, (first,))])
            journal.append([StepOutput(1, (first + 1,))])
    old = segments(tmp_path)[0]
    data = bytearray(old.read_bytes())
    data[-1] ^= 0xFF
    old.write_bytes(bytes(data))
    assert tokens(tmp_path) == {1: [0]}


def test_journal_of_another_run_is_refused(tmp_path: Path) -> None:
    """A segment with another fingerprint stops the replay and is named."""
    TokenJournal(tmp_path, 0, OTHER).close()
    with pytest.raises(DamageError, match=r"engine-0\.000001\.journal.*another run"):
        replayed(tmp_path)


def test_full_disk_raises_and_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    """When the kernel refuses more bytes, append raises; every step that it returned from is still there."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    journal = TokenJournal(tmp_path, 0, RUN)
    journal.begin(1, 0)
    acknowledged = 0
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            for token in range(1000):
                journal.append([StepOutput(1, (token,))])
                acknowledged += 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    os.close(journal._fd)
    assert 0 < acknowledged < 1000
    assert tokens(tmp_path) == {1: list(range(acknowledged))}


def test_failed_sync_stops_the_next_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the sync thread is raised by the next append: durability errors are never passed over."""
    journal = TokenJournal(tmp_path, 0, RUN, sync_interval_s=0.001)
    journal.begin(1, 0)

    def broken() -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(journal, "sync", broken)
    assert journal._syncer is not None
    journal._syncer.join(timeout=10)
    with pytest.raises(OSError, match="Input/output error"):
        journal.append([StepOutput(1, (1,))])
    monkeypatch.undo()
    journal.close()


STEPS = st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=4, unique_by=lambda pair: pair[0]))


@settings(max_examples=50)
@given(lives=st.lists(STEPS, max_size=4))
def test_replay_equals_a_dict(lives: list[list[list[tuple[int, int]]]], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Over any number of process lives, replay knows what a dict of lists would."""
    folder = tmp_path_factory.mktemp("journal")
    model: dict[int, list[int]] = {}
    for steps in lives:
        with TokenJournal(folder, 0, RUN) as journal:
            for key in range(4):
                journal.begin(key, len(model.get(key, [])))
            for step in steps:
                journal.append([StepOutput(key, (token,)) for key, token in step])
                for key, token in step:
                    model.setdefault(key, []).append(token)
    assert tokens(folder) == model
