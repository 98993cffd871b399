"""TokenJournal and replay together: what was appended is what is known."""

import resource
from pathlib import Path

import pytest

from tasks.core.errors import DamageError
from tasks.core.request import FinishReason, StepOutput, TokenLogprobs
from tasks.journal.replay import Replay, replay
from tasks.journal.segments import segments
from tasks.journal.writer import TokenJournal

RUN, OTHER = bytes(32), bytes(31) + b"\1"


def replayed(folder: Path) -> Replay:
    return replay(segments(folder), RUN)


def tokens(folder: Path) -> dict[int, list[int]]:
    return {key: list(known.token_ids) for key, known in replayed(folder).progress.items()}


def life(folder: Path, *steps: int, saved: tuple[int, ...] = ()) -> None:
    """One process that goes on with sequence 1 from its saved tokens and generates these, one a step."""
    with TokenJournal(folder, 0, RUN) as journal:
        journal.begin(1, saved)
        for token in steps:
            journal.append([StepOutput(1, (token,))])


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(bytes(data))


def test_tokens_add_up_over_steps(tmp_path: Path) -> None:
    """Steps append to each sequence; the end and its reason are known."""
    with TokenJournal(tmp_path, 0, RUN) as journal:
        journal.begin(1)
        journal.begin(2)
        journal.append([StepOutput(1, (10,)), StepOutput(2, (20, 21))])
        journal.append([StepOutput(1, (11,), FinishReason.STOP, cached_tokens=32)])
        journal.fail(3, "no room")
        journal.fail(2, "given up")
    known = replayed(tmp_path)
    assert tokens(tmp_path) == {1: [10, 11], 2: [20, 21], 3: []}
    assert known.progress[1].finish_reason is FinishReason.STOP
    assert known.progress[1].cached_tokens == 32
    assert (known.progress[3].error, known.progress[2].error) == ("no room", "given up")
    assert (known.num_tokens, known.num_final, known.num_final_tokens, known.damages) == (4, 3, 4, [])


def test_logprobs_come_back_with_their_tokens(tmp_path: Path) -> None:
    """Log-probabilities and their alternatives add up like tokens, over steps and processes, and are cut with them."""
    at = [TokenLogprobs(-float(i), ((i, -0.5), (7, -1.5))) for i in range(4)]
    with TokenJournal(tmp_path, 0, RUN) as journal:
        journal.begin(1)
        journal.append([StepOutput(1, (0, 1), logprobs=at[:2]), StepOutput(1, (2,), logprobs=at[2:3])][:1])
        journal.append([StepOutput(1, (2,), logprobs=at[2:3])])
    assert replayed(tmp_path).progress[1].logprobs == at[:3]
    with TokenJournal(tmp_path, 0, RUN) as journal:
        journal.begin(1, (0, 1))
        journal.append([StepOutput(1, (3,), FinishReason.STOP, logprobs=at[3:])])
    assert replayed(tmp_path).progress[1].logprobs == [at[0], at[1], at[3]]
    assert tokens(tmp_path) == {1: [0, 1, 3]}


def test_next_process_goes_on_in_a_new_segment(tmp_path: Path) -> None:
    """A second process continues the sequence from its saved tokens, in a segment of its own."""
    life(tmp_path, 0, 1)
    life(tmp_path, 2, 3, saved=(0, 1))
    assert len(segments(tmp_path)) == 2
    assert tokens(tmp_path) == {1: [0, 1, 2, 3]}


def test_restarted_sequence_forgets_its_old_tokens(tmp_path: Path) -> None:
    """A sequence that begins again at 0 replaces what was known of it once its first token is there."""
    life(tmp_path, 5, 5)
    with TokenJournal(tmp_path, 0, RUN) as journal:
        journal.begin(1)
        assert tokens(tmp_path) == {1: [5, 5]}
        journal.append([StepOutput(1, (6,))])
    assert tokens(tmp_path) == {1: [6]}


def test_torn_tail_is_reported_and_never_appended_to(tmp_path: Path) -> None:
    """After a cut in the last frame the whole frames count, the rest is named, and a new process writes elsewhere."""
    life(tmp_path, 1, 2)
    torn = segments(tmp_path)[0]
    seal = 24
    torn.write_bytes(torn.read_bytes()[: -seal - 1])
    assert [(damage.path, damage.is_torn_tail) for damage in replayed(tmp_path).damages] == [(torn, True)]
    life(tmp_path, 3, saved=(1,))
    assert tokens(tmp_path) == {1: [1, 3]}


def test_damage_in_the_middle_costs_what_follows_of_its_sequences_only(tmp_path: Path) -> None:
    """A damaged frame is named; sequences that had tokens in it end before it, all others are whole."""
    with TokenJournal(tmp_path, 0, RUN) as journal:
        for key in (1, 2):
            journal.begin(key)
        for step in range(4):
            journal.append([StepOutput(1, (step,))] if step != 2 else [StepOutput(2, (7,))])
        journal.append([StepOutput(2, (8,))])
    size = (journal.path.stat().st_size - 56 - 24) // 5
    flip(journal.path, 56 + size + 12)
    damage, broken = replayed(tmp_path).damages
    assert "frame 1 fails its checksum" in damage.reason
    assert "1 sequences go on from tokens that are not there" in broken.reason
    assert not damage.is_torn_tail
    assert tokens(tmp_path) == {1: [0], 2: [7, 8]}


def test_damage_in_an_old_segment_never_gives_wrong_tokens(tmp_path: Path) -> None:
    """When the middle of an older segment is damaged, later entries that go on from what was lost are not used."""
    life(tmp_path, 0, 1)
    life(tmp_path, 2, 3, saved=(0, 1))
    flip(segments(tmp_path)[0], -24 - 1)
    assert tokens(tmp_path) == {1: [0]}


def test_tokens_of_two_attempts_are_never_mixed(tmp_path: Path) -> None:
    """A sequence that was generated anew and went on from there does not go on from its first attempt when the second is
    lost, though the numbers of tokens would fit."""
    life(tmp_path, 1, 2)
    life(tmp_path, 5, 6)
    life(tmp_path, 7, saved=(5, 6))
    assert tokens(tmp_path) == {1: [5, 6, 7]}
    segments(tmp_path)[1].unlink()
    known = replayed(tmp_path)
    assert tokens(tmp_path) == {1: [1, 2]}
    assert [damage.reason for damage in known.damages] == [
        "engine-0: the segments of epoch 2 are missing",
        "1 sequences go on from tokens that are not there; what is there before them is kept",
    ]


def test_journal_of_another_run_or_version_is_named(tmp_path: Path) -> None:
    """A segment with another fingerprint stops the replay; one of another version, or none at all, is reported."""
    TokenJournal(tmp_path, 0, OTHER).close()
    (path,) = segments(tmp_path)
    with pytest.raises(DamageError, match=r"engine-0\.000001\.000000\.journal.*another run"):
        replayed(tmp_path)
    path.write_bytes(b"NBJ\x01" + path.read_bytes()[4:])
    assert "version 1, and this program reads version 2" in replayed(tmp_path).damages[0].reason
    path.write_bytes(b"")
    assert replayed(tmp_path).damages[0].is_torn_tail


def test_copy_under_another_name_is_not_read(tmp_path: Path) -> None:
    """A segment whose header says that it is another one is named and left out."""
    life(tmp_path, 1, 2)
    life(tmp_path, 3, saved=(1, 2))
    first = segments(tmp_path)[0]
    (tmp_path / "engine-0.000003.000000.journal").write_bytes(first.read_bytes())
    assert "a copy of epoch 1 part 0 under another name" in str(replayed(tmp_path).damages[0])
    assert tokens(tmp_path) == {1: [1, 2, 3]}


def test_segments_roll_and_are_sealed(tmp_path: Path) -> None:
    """A full segment is sealed and the next one goes on with the same sequences; reading them gives all tokens."""
    with TokenJournal(tmp_path, 0, RUN, sync_interval_s=0.01, segment_bytes=4096) as journal:
        journal.begin(1)
        for token in range(500):
            journal.append([StepOutput(1, (token,))])
    paths = segments(tmp_path)
    assert len(paths) > 3
    assert all(path.stat().st_size < 4096 + 100 for path in paths)
    assert tokens(tmp_path) == {1: list(range(500))}
    paths[1].write_bytes(paths[1].read_bytes()[:-1])
    assert [damage.path for damage in replayed(tmp_path).damages] == [paths[1]]


def test_lost_part_of_an_epoch_ends_its_sequences_there(tmp_path: Path) -> None:
    """When one of several segments of a process is gone, its sequences keep what lies before it."""
    with TokenJournal(tmp_path, 0, RUN, segment_bytes=4096) as journal:
        journal.begin(1)
        for token in range(300):
            journal.append([StepOutput(1, (token,))])
    first = (segments(tmp_path)[0].stat().st_size - 56 - 24) // 40
    segments(tmp_path)[1].unlink()
    assert tokens(tmp_path) == {1: list(range(first))}
    assert replayed(tmp_path).damages[0].reason == "engine-0: part 1 of epoch 1 is missing"


def test_full_disk_raises_and_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    """When the kernel refuses more bytes, append raises from then on; every step that it returned from is still there."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    journal = TokenJournal(tmp_path, 0, RUN)
    journal.begin(1)
    acknowledged = 0
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match=r"File too large.*engine-0\.000001"):
            for token in range(1000):
                journal.append([StepOutput(1, (token,))])
                acknowledged += 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(OSError, match="File too large"):
        journal.append([StepOutput(1, (acknowledged,))])
    with pytest.raises(OSError, match="File too large"):
        journal.close()
    assert 0 < acknowledged < 1000
    assert tokens(tmp_path) == {1: list(range(acknowledged))}


def test_failed_sync_stops_the_next_append_and_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the sync thread is raised by the next append and by close: durability errors are never passed over."""
    journal = TokenJournal(tmp_path, 0, RUN, sync_interval_s=0.001)
    journal.begin(1)

    def broken() -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(journal, "sync", broken)
    assert journal._syncer is not None
    journal._syncer.join(timeout=10)
    with pytest.raises(OSError, match="Input/output error"):
        journal.append([StepOutput(1, (1,))])
    monkeypatch.undo()
    with pytest.raises(OSError, match="Input/output error"):
        journal.close()


def test_process_durability_never_syncs_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a sync interval only closing syncs; with one, the thread does it again and again."""
    synced: list[int] = []
    monkeypatch.setattr("tasks.journal.writer.sync_data", synced.append)
    with TokenJournal(tmp_path, 0, RUN, segment_bytes=4096) as journal:
        journal.begin(1)
        for token in range(300):
            journal.append([StepOutput(1, (token,))])
        assert synced == []
    assert len(synced) == 1
    with TokenJournal(tmp_path, 0, RUN, sync_interval_s=0.001) as journal:
        assert journal._syncer is not None
        while len(synced) < 4:
            journal._syncer.join(0.001)
