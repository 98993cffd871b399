"""Tables are written whole, with their declared schema."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.storage.layout import Layout
from tasks.storage.parquet import RESULTS, count_rows, read_rows, write_rows, writing_table


def test_rows_come_back_in_order(tmp_path: Path) -> None:
    """More rows than one row group holds are read back in order, with only the columns asked for."""
    path = tmp_path / "t.parquet"
    rows = [{"request_id": f"r{i}", "output_token_ids": [i, i + 1]} for i in range(10_000)]
    assert write_rows(path, RESULTS, rows) == 10_000
    assert count_rows(path) == 10_000
    assert list(read_rows(path, ["request_id", "output_token_ids"])) == rows


def test_empty_table_has_the_whole_schema(tmp_path: Path) -> None:
    """A table without rows is a file with all columns."""
    path = tmp_path / "t.parquet"
    write_rows(path, RESULTS, [])
    assert pq.read_schema(path).equals(RESULTS)


def test_error_leaves_no_file(tmp_path: Path) -> None:
    """A value that does not fit its column raises, and no file appears."""
    path = tmp_path / "t.parquet"
    with pytest.raises(pa.ArrowException), writing_table(path, RESULTS) as table:
        table.append({"prompt_tokens": 2**40})
    assert list(tmp_path.iterdir()) == []


def test_long_rows_make_small_groups(tmp_path: Path) -> None:
    """A row group holds what fits into memory: fewer rows when they are long."""
    path = tmp_path / "t.parquet"
    write_rows(path, RESULTS, ({"output_token_ids": [1] * 3_000_000} for _ in range(4)))
    assert pq.read_metadata(path).num_row_groups == 2


def test_any_source_name_is_a_folder() -> None:
    """Slashes, dots and very long names in any script give one folder name each, all different."""
    layout = Layout(Path("data"), Path("checkpoints"))
    names = ["a/b", "..", "日" * 100, "日" * 101, "x" * 300]
    parts = {layout.requests_part("2026-11-30", name, "d").relative_to("data/requests").parts for name in names}
    assert len(parts) == len(names)
    assert all(len(part) == 3 and len(part[1].encode()) <= 255 for part in parts)
