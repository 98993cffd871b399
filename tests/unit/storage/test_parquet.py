"""Tables are written whole, with their declared schema."""

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.core.errors import DamageError
from tasks.storage.checksums import failed_checksums
from tasks.storage.layout import PART, Layout
from tasks.storage.parquet import RESULTS, count_rows, read_rows, write_table, writing_table


def test_rows_come_back_in_order(tmp_path: Path) -> None:
    """More rows than one row group holds are read back in order, with only the columns asked for."""
    path = tmp_path / "t" / PART
    rows = [{"request_id": f"r{i}", "output_token_ids": [i, i + 1]} for i in range(10_000)]
    assert write_table(path.parent, RESULTS, rows) == 10_000
    assert count_rows(path) == 10_000
    assert list(read_rows(path, ["request_id", "output_token_ids"])) == rows


def test_empty_table_has_the_whole_schema(tmp_path: Path) -> None:
    """A table without rows is a file with all columns."""
    path = tmp_path / "t" / PART
    write_table(path.parent, RESULTS, [])
    assert pq.read_schema(path).equals(RESULTS)


def test_error_leaves_no_file(tmp_path: Path) -> None:
    """A value that does not fit its column raises, and no file appears."""
    path = tmp_path / "t.parquet"
    with pytest.raises(pa.ArrowException), writing_table(path, RESULTS) as table:
        table.append({"prompt_tokens": 2**40})
    assert list(tmp_path.iterdir()) == []


def test_long_rows_make_small_groups(tmp_path: Path) -> None:
    """A row group holds what fits into memory: fewer rows when they are long."""
    path = tmp_path / "t" / PART
    write_table(path.parent, RESULTS, ({"output_token_ids": [1] * 3_000_000} for _ in range(4)))
    assert pq.read_metadata(path).num_row_groups == 2


def test_thousands_of_small_batches(tmp_path: Path) -> None:
    """What is kept is counted once: the time that a batch takes does not depend on how many there are before it."""
    path, took = tmp_path / PART, []
    with writing_table(path, RESULTS) as table:
        for _ in range(4):
            begun = time.process_time()
            for i in range(1000):
                table.extend({field.name: [None] if field.name != "line" else [i] for field in RESULTS}, 1)
            took.append(time.process_time() - begun)
    assert took[-1] < 3 * took[0]
    assert [row["line"] for row in read_rows(path, ["line"])] == 4 * list(range(1000))


def test_rows_can_be_passed_over_by_value(tmp_path: Path) -> None:
    """What `without` names is not read, in any row group."""
    path = tmp_path / "t" / PART
    write_table(path.parent, RESULTS, ({"line": i, "output_token_ids": [i]} for i in range(10_000)))
    odd = list(range(1, 10_000, 2))
    rows = list(read_rows(path, ["line", "output_token_ids"], without={"line": odd}))
    assert rows == [{"line": i, "output_token_ids": [i]} for i in range(0, 10_000, 2)]


def test_any_flipped_byte_is_found(tmp_path: Path) -> None:
    """A flipped byte anywhere fails the checksums; in the rows themselves it is an error to read them, with the path."""
    path = tmp_path / "t" / PART
    write_table(path.parent, RESULTS, [{"output_text": "a" * 100, "output_token_ids": [1, 2, 3]}])
    assert list(failed_checksums(path.parent)) == []
    data = path.read_bytes()
    num_unread = 0
    for place in range(0, len(data), 7):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        assert str(path) in next(failed_checksums(path.parent))
        try:
            list(read_rows(path))
        except DamageError as error:
            num_unread += str(path) in str(error)
    assert num_unread > 20


def test_any_source_name_is_a_folder() -> None:
    """Slashes, dots and very long names in any script give one folder name each, all different."""
    layout = Layout(Path("data"), Path("checkpoints"))
    names = ["a/b", "..", "日" * 100, "日" * 101, "x" * 300]
    parts = {layout.requests_part("2026-11-30", name, "d").relative_to("data/requests").parts for name in names}
    assert len(parts) == len(names)
    assert all(len(part) == 3 and len(part[1].encode()) <= 255 for part in parts)
