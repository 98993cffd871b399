"""The views: there before the first run, right after it, and safe beside other readers."""

from pathlib import Path

import duckdb
import pytest

from tasks.core.errors import ConfigError
from tasks.query.views import build_database, named_queries, run_query
from tasks.storage.layout import Layout
from tasks.storage.parquet import RESULTS, write_table

VIEWS = ("requests", "rejects", "results", "failures", "runs", "telemetry")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "da'ta", tmp_path / "checkpoints")


def add_result(layout: Layout, run_id: str) -> None:
    row = {"run_id": run_id, "request_id": "s/1", "custom_id": "007", "source": "s", "output_token_ids": [1, 2]}
    write_table(layout.run(run_id).results, RESULTS, [row])


def test_views_are_empty_before_the_first_run(layout: Layout) -> None:
    """Each view exists, has no rows, and has the columns that it will have."""
    for view in VIEWS:
        columns, rows = run_query(layout, f"select * from {view}")
        assert rows == []
        assert "run_id" in columns or "request_id" in columns or "reason" in columns


def test_columns_are_the_same_before_and_after(layout: Layout) -> None:
    """The first result changes no column's name or type; ids stay text."""
    describe = "select column_name, column_type from (describe results)"
    before = run_query(layout, describe)
    add_result(layout, "r1")
    assert run_query(layout, describe) == before
    assert run_query(layout, "select custom_id, output_token_ids from results")[1] == [("007", [1, 2])]


def test_database_is_rebuilt_beside_an_open_reader(layout: Layout) -> None:
    """A reader holds the database open while a run rebuilds it; both see the data."""
    add_result(layout, "r1")
    path = build_database(layout)
    with duckdb.connect(str(path), read_only=True) as reader:
        add_result(layout, "r2")
        build_database(layout)
        assert reader.execute("select count(*) from results").fetchone() == (2,)
    with duckdb.connect(str(path), read_only=True) as reader:
        assert reader.execute("select count(*) from results").fetchone() == (2,)


def test_named_queries_run(layout: Layout) -> None:
    """Every query of queries.sql is right for the views."""
    add_result(layout, "r1")
    queries = named_queries()
    assert {"by_source", "rejects_by_reason", "failures"} <= queries.keys()
    for statement in queries.values():
        run_query(layout, statement)


def test_a_wrong_statement_is_the_users_error(layout: Layout) -> None:
    """DuckDB's own words, as an error of the user's."""
    with pytest.raises(ConfigError, match="nothere"):
        run_query(layout, "select nothere from results")
