"""DuckDB views over the Parquet files; read only, safe while a run is writing.

The database file holds views and no data: it can be deleted and is rebuilt whole, by renaming, so an open reader keeps
what it has. A table of which no file exists yet is an empty view with the right columns.
"""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from tasks.core.errors import ConfigError, NightbatchError
from tasks.storage.atomic import replacing_file
from tasks.storage.layout import Layout
from tasks.storage.parquet import FAILURES, REJECTS, REQUESTS, RESULTS, TELEMETRY

_UNSEEN_S = 15.0
"""A longer time between two readings is a gap, of which nothing is known: readings are at most ten seconds apart."""
_RUNS = {
    "run_id": "VARCHAR",
    "state": "VARCHAR",
    "logical_date": "VARCHAR",
    "model": "VARCHAR",
    "dtype": "VARCHAR",
    "dataset_id": "VARCHAR",
    "started_at": "TIMESTAMPTZ",
    "ended_at": "TIMESTAMPTZ",
    "rows": "BIGINT",
    "requests": "BIGINT",
    "rejects": "BIGINT",
    "results": "BIGINT",
    "failures": "BIGINT",
    "duplicates": "BIGINT",
    "near_duplicates": "BIGINT",
    "prompt_tokens": "BIGINT",
    "output_tokens": "BIGINT",
    "cached_tokens": "BIGINT",
    "resumed_tokens": "BIGINT",
    "tokens_per_s": "DOUBLE",
    "error": "VARCHAR",
}


def connect(layout: Layout) -> duckdb.DuckDBPyConnection:
    """A connection of its own, in memory, with the views of this data folder."""
    connection = duckdb.connect(":memory:")
    _create_views(connection, layout)
    return connection


def build_database(layout: Layout) -> Path:
    """Write data/nightbatch.duckdb anew; its path."""
    try:
        with replacing_file(layout.database) as temporary, duckdb.connect(str(temporary)) as connection:
            _create_views(connection, layout)
    except duckdb.Error as error:
        raise NightbatchError(f"cannot write {layout.database}: {error}") from error
    return layout.database


def run_query(layout: Layout, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names and rows. Raises ConfigError with DuckDB's own words when the statement is wrong."""
    with connect(layout) as connection:
        try:
            cursor = connection.execute(sql)
            return [column[0] for column in cursor.description or ()], cursor.fetchall()
        except duckdb.Error as error:
            raise ConfigError(f"{error}") from error


def named_queries() -> dict[str, str]:
    """The queries of queries.sql by name."""
    text = files("tasks.query").joinpath("queries.sql").read_text(encoding="utf-8")
    blocks = [block.strip() for block in text.split("-- name: ")[1:]]
    return {block.splitlines()[0].strip(): "\n".join(block.splitlines()[1:]).strip().rstrip(";") for block in blocks}


def _create_views(connection: duckdb.DuckDBPyConnection, layout: Layout) -> None:
    data = layout.data.resolve()
    tables = {
        "results": (data / "runs", "*/results/*.parquet", RESULTS),
        "failures": (data / "runs", "*/failures/*.parquet", FAILURES),
    }
    for name, (folder, pattern, schema) in tables.items():
        parts = [folder / pattern] if any(folder.glob(pattern)) else []
        connection.execute(f"CREATE VIEW {name} AS {table(parts, schema)}")
    for name, schema in (("requests", REQUESTS), ("rejects", REJECTS)):
        connection.execute(f"CREATE VIEW {name} AS {_of_datasets(data, name, schema)}")
    connection.execute(f"CREATE VIEW telemetry AS {_telemetry(data / 'runs')}")
    connection.execute(f"CREATE VIEW runs AS {_runs(data / 'runs')}")


def table(parts: Sequence[Path], schema: pa.Schema, options: str = "filename = false") -> str:
    """These parts, paths or patterns, under the declared columns; one that an older version wrote has NULL where it has no
    such column. As SQL."""
    columns = ", ".join(f'"{column}"' for column in schema.names)
    nothing = ", ".join(f'CAST(NULL AS {_duckdb_type(field.type)}) AS "{field.name}"' for field in schema)
    if not parts:
        return f"SELECT {nothing} WHERE false"
    paths = ", ".join(quoted(part) for part in parts)
    rows = f"SELECT * FROM read_parquet([{paths}], hive_partitioning = false, union_by_name = true, {options})"
    return f"SELECT {columns} FROM (SELECT {nothing} WHERE false UNION ALL BY NAME {rows})"


def _of_datasets(data: Path, name: str, schema: pa.Schema) -> str:
    """The rows of a table with the dataset that they are in; a part may be in several, and counts when it is in one.

    Parts are known by their names, so that the folder can be moved.
    """
    pattern = "ds=*/source=*/*.parquet"
    there = [data / name / pattern] if any((data / name).glob(pattern)) else []
    rows = table(there, pa.schema([*schema, ("filename", pa.string())]), "filename = true")
    if not any((data / "requests" / "_datasets").glob("*.json")):
        return f"SELECT CAST(NULL AS VARCHAR) AS dataset_id, * EXCLUDE (filename) FROM ({rows}) WHERE false"
    column = "request_parts" if name == "requests" else "reject_parts"
    kinds = "{dataset_id: 'VARCHAR', request_parts: 'VARCHAR[]', reject_parts: 'VARCHAR[]'}"
    files = f"read_json({quoted(data / 'requests' / '_datasets' / '*.json')}, columns = {kinds}, format = 'auto')"
    parts = f"SELECT dataset_id, parse_filename(unnest({column})) AS part FROM {files}"
    return (
        f"SELECT dataset_id, rows.* EXCLUDE (filename) FROM ({rows}) rows JOIN ({parts}) parts "
        "ON parts.part = parse_filename(rows.filename)"
    )


def _telemetry(folder: Path) -> str:
    """The readings, each with the `seconds` until the next one of its card or, where there is none, its engine: what it
    stands for. NULL at the end of a session and before a gap."""
    pattern = "*/telemetry/*.parquet"
    parts = [folder / pattern] if any(folder.glob(pattern)) else []
    following = "lead(time_s) OVER (PARTITION BY run_id, session, engine, card_uuid ORDER BY time_s)"
    rows = f"SELECT *, {following} - time_s AS gap_s FROM ({table(parts, TELEMETRY)})"
    return f"SELECT * EXCLUDE (gap_s), CASE WHEN gap_s <= {_UNSEEN_S} THEN gap_s END AS seconds FROM ({rows})"


def _runs(folder: Path) -> str:
    if any(folder.glob("*/manifest.json")):
        columns = ", ".join(f"{name}: '{kind}'" for name, kind in _RUNS.items())
        return f"SELECT * FROM read_json({quoted(folder / '*/manifest.json')}, columns = {{{columns}}}, format = 'auto')"
    return "SELECT " + ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, kind in _RUNS.items()) + " WHERE false"


def quoted(text: str | Path) -> str:
    """A text as SQL has it."""
    return "'" + str(text).replace("'", "''") + "'"


def _duckdb_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return _duckdb_type(kind.value_type) + "[]"
    if pa.types.is_struct(kind):
        return "STRUCT(" + ", ".join(f'"{field.name}" {_duckdb_type(field.type)}' for field in kind) + ")"
    simple = {"string": "VARCHAR", "int32": "INTEGER", "int64": "BIGINT", "float": "FLOAT"}
    simple |= {"double": "DOUBLE", "bool": "BOOLEAN"}
    return "TIMESTAMPTZ" if pa.types.is_timestamp(kind) else simple[str(kind)]
