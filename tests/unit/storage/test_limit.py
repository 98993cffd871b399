"""The word between the governor and the engine: what was said last holds, and for no longer than it was said for."""

from pathlib import Path

from tasks.storage.limit import UNBOUNDED, Limit, write_limit


def test_without_a_file_nothing_is_limited(tmp_path: Path) -> None:
    """No governor, no bound; one that begins later is heard."""
    limit = Limit(tmp_path / "limit", lambda: 10.0)
    assert limit.max_num_seqs() == UNBOUNDED
    write_limit(tmp_path / "limit", 7, fallback=2, holds_s=2.0, now_s=9.0)
    assert limit.max_num_seqs() == 7


def test_a_silent_writer_leaves_the_fallback(tmp_path: Path) -> None:
    """When the limit is older than it holds, the safe number takes its place, until the writer speaks again."""
    now = 100.0
    limit = Limit(tmp_path / "limit", lambda: now)
    write_limit(tmp_path / "limit", 64, fallback=8, holds_s=2.0, now_s=100.0)
    assert limit.max_num_seqs() == 64
    now = 102.5
    assert limit.max_num_seqs() == 8
    write_limit(tmp_path / "limit", 0, fallback=8, holds_s=2.0, now_s=102.4)
    assert limit.max_num_seqs() == 0


def test_a_word_half_written_is_not_heard(tmp_path: Path) -> None:
    """Any byte that is not as it was meant leaves what was known before."""
    limit = Limit(tmp_path / "limit", lambda: 1.0)
    write_limit(tmp_path / "limit", 5, fallback=1, holds_s=9.0, now_s=1.0)
    assert limit.max_num_seqs() == 5
    whole = (tmp_path / "limit").read_bytes()
    for at in range(len(whole)):
        (tmp_path / "limit").write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        assert limit.max_num_seqs() == 5
    (tmp_path / "limit").write_bytes(whole[:20])
    assert limit.max_num_seqs() == 5
