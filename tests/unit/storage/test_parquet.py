"""Tables are written whole, with their declared schema."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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
