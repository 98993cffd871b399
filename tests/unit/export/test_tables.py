"""Exports with a row for each choice, read back by other readers than ours."""

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.export.columns import COLUMNS, Kinds, answer_prefix, as_kind
from tasks.storage.layout import Layout
from tasks.storage.parquet import RESULTS, read_rows, write_table

Row = dict[str, Any]
Make = Callable[..., Any]
FORMATS = ("jsonl", "csv", "parquet")
NASTY = '=1+1\u0000 "quoted", \ufeff\r\n 日本 🌶 \u2028\x85 \ud7ff\n\n e\u0301\t'


@pytest.fixture
def table(tmp_path: Path, lines: Make) -> Callable[[str], list[Row]]:
    """The rows of an exported file of any format; of CSV all cells are text, and an empty one is None."""

    def read(name: str) -> list[Row]:
        if name.endswith(".parquet"):
            return list(pq.read_table(tmp_path / name).to_pylist())
        if name.endswith(".csv"):
            text = io.StringIO((tmp_path / name).read_bytes().decode("utf-8"), newline="")
            return [{key: cell or None for key, cell in row.items()} for row in csv.DictReader(text)]
        return list(lines(name))

    return read


@pytest.mark.parametrize("form", FORMATS)
def test_each_choice_is_a_row(
    answer: Make, export: Make, table: Make, write_jsonl: Make, chat: Make, cli: Any, form: str
) -> None:
    """Answers and rejects in the input's order with all columns; a choice has its tokens, a reject its reason."""
    rows = [chat("z", "hi", n=2, temperature=1, max_tokens=2), "{", chat("a", "hi", max_tokens=5)]
    said = export(answer(write_jsonl(rows)), f"out.{form}", given_format=form)
    assert (said["format"], said["rows"], said["answered"], said["rejected"], said["errors_path"]) == (form, 3, 2, 1, None)
    found = table(f"out.{form}")
    assert [row.keys() for row in found] == [COLUMNS.keys()] * 4
    assert [(row["custom_id"], str(row["line"]), row["status"], row["finish_reason"]) for row in found] == [
        ("z", "1", "completed", "length"),
        ("z", "1", "completed", "length"),
        (None, "2", "rejected", None),
        ("a", "3", "completed", "length"),
    ]
    assert [str(row["choice_index"]) for row in found] == ["0", "1", "None", "0"]
    assert [row["reason"] for row in found] == [None, None, "malformed_json", None]
    assert found[2]["error"].startswith("not valid JSON")
    results = cli.sql("select output_text, output_tokens, prompt_tokens from results order by line, choice_index")
    for row, result in zip([*found[:2], found[3]], results, strict=True):
        assert {name: str(row[name]) for name in result} == {name: str(value) for name, value in result.items()}


@pytest.mark.parametrize("form", (*FORMATS, "openai"))
def test_text_never_changes(
    answer: Make, export: Make, table: Make, lines: Make, write_jsonl: Make, chat: Make, cli: Any, form: str
) -> None:
    """Line breaks of all kinds, quotes, a NUL, other scripts and a leading equals sign come out as they went in."""
    run_id = answer(write_jsonl([chat("a", "hi", max_tokens=4)]))
    results = Layout(cli.data, cli.checkpoints).run(run_id).results
    write_table(results, RESULTS, [row | {"output_text": NASTY} for row in read_rows(sorted(results.glob("*.parquet")))])
    if form == "openai":
        export(run_id, "out.jsonl")
        assert lines("out.jsonl")[0]["response"]["body"]["choices"][0]["message"]["content"] == NASTY
    else:
        export(run_id, f"out.{form}", given_format=form)
        assert table(f"out.{form}")[0]["output_text"] == NASTY


def test_any_order_has_the_same_rows(answer: Make, export: Make, table: Make, write_jsonl: Make, chat: Make) -> None:
    """Without the input's order there are the same rows."""
    run_id = answer(
        write_jsonl([chat(f"r{i}", f"q {i}", n=1 + i % 3, temperature=1, max_tokens=4) for i in range(50)] + ["{"])
    )
    export(run_id, "in_order.csv")
    export(run_id, "any.csv", order="any")
    in_order, in_any = table("in_order.csv"), table("any.csv")
    assert len(in_order) == sum(1 + i % 3 for i in range(50)) + 1
    assert sorted(in_order, key=str) == sorted(in_any, key=str)


@pytest.mark.parametrize(("form", "header"), [("csv", 1), ("jsonl", 0)])
def test_csv_joined_to_its_input(answer: Make, export: Make, table: Make, cli: Any, form: str, header: int) -> None:
    """The input's cells stay text as they stand, over several lines too; a row that is none has its place and error."""
    path = cli.home / "q.csv"
    path.write_bytes(b'id,prompt,zip,note\n7,"two\nlines, ""q""",01234,\n8,short\n9,three,2026-01-02,=x\n')
    export(answer(path), f"out.{form}", join=True, given_format=form)
    found = table(f"out.{form}")
    assert [[row.get(name) for name in ("id", "prompt", "zip", "note")] for row in found] == [
        ["7", 'two\nlines, "q"', "01234", None],
        [None] * 4,
        ["9", "three", "2026-01-02", "=x"],
    ]
    assert [str(row["nightbatch_line"]) for row in found] == ["2", "4", "5"]
    assert [row["nightbatch_custom_id"] for row in found] == ["7", None, "9"]
    assert [row["nightbatch_reason"] for row in found] == [None, "malformed_csv", None]
    assert [bool(row["nightbatch_output_text"]) for row in found] == [True, False, True]
    assert not header or list(found[0]) == ["id", "prompt", "zip", "note", *(f"nightbatch_{name}" for name in COLUMNS)]


NESTED = [
    {"id": 1, "prompt": "a", "meta": {"tags": ["x", None], "deep": {"é": 1.5}}, "big": 2**60, "score": 1, "ok": True},
    {"id": "two", "prompt": "b", "meta": [], "score": 2.5, "nothing": None, "n": 2, "temperature": 1},
    {"id": None, "other": "without a prompt"},
]


def test_nested_json_joined_to_its_input(answer: Make, export: Make, table: Make, write_jsonl: Make) -> None:
    """JSON lines have the input's objects unchanged; a row of two answers stands there twice."""
    run_id = answer(write_jsonl(NESTED))
    export(run_id, "out.jsonl", join=True)
    found = table("out.jsonl")
    own = [{name: value for name, value in row.items() if not name.startswith("nightbatch_")} for row in found]
    assert own == [NESTED[0], NESTED[1], NESTED[1], NESTED[2]]
    assert [row["nightbatch_choice_index"] for row in found] == [0, 0, 1, None]
    export(run_id, "out.csv", join=True)
    assert [row["meta"] for row in table("out.csv")] == ['{"tags":["x",null],"deep":{"é":1.5}}', "[]", "[]", None]


def test_nested_json_joined_as_parquet(answer: Make, export: Make, write_jsonl: Make, tmp_path: Path) -> None:
    """Columns of one kind have its type; what is nested or mixed is JSON text."""
    export(answer(write_jsonl(NESTED)), "out.parquet", join=True)
    found = pq.read_table(tmp_path / "out.parquet")
    types = {"id": pa.string(), "prompt": pa.string(), "meta": pa.string(), "big": pa.int64(), "score": pa.float64()}
    types |= {"ok": pa.bool_(), "nothing": pa.string(), "nightbatch_line": pa.int64()}
    assert {name: found.schema.field(name).type for name in types} == types
    assert found.column("id").to_pylist() == ["1", '"two"', '"two"', None]
    assert found.column("score").to_pylist() == [1.0, 2.5, 2.5, None]
    assert found.column("big").to_pylist() == [2**60, None, None, None]


def arrow_table(first: int, num_rows: int) -> pa.Table:
    """Rows with types that Python and JSON do not have."""
    count = range(first, first + num_rows)
    return pa.table(
        {
            "id": pa.array(count, pa.int16()),
            "prompt": pa.array([f"question {i}" for i in count]),
            "n": pa.array([1 + i % 2 for i in count], pa.int32()),
            "temperature": pa.array([1.0] * num_rows),
            "at": pa.array([1_790_000_000_123_456_789 + i for i in count], pa.timestamp("ns", "Europe/Berlin")),
            "day": pa.array([20_000 + i for i in count], pa.date32()),
            "price": pa.array([None if i % 3 else i for i in count], pa.decimal128(20, 4)),
            "kind": pa.array(["x", "y"][i % 2] for i in count).dictionary_encode(),
            "parts": pa.array(
                [[{"a": i, "b": None}] for i in count], pa.list_(pa.struct([("a", pa.int8()), ("b", pa.string())]))
            ),
            "raw": pa.array([bytes([i % 256, 255]) for i in count], pa.binary()),
        }
    )


def whole(table: pa.Table) -> pa.Table:
    """Nanoseconds as numbers, as Python's times have none."""
    return table.set_column(table.column_names.index("at"), "at", table["at"].cast(pa.int64()))


def test_parquet_keeps_types_units_and_zones(answer: Make, export: Make, tmp_path: Path) -> None:
    """Of Parquet joined as Parquet each column has its type and values; rows of two answers are there twice."""
    given = arrow_table(0, 100)
    pq.write_table(given, tmp_path / "in.parquet", row_group_size=33)
    export(answer(tmp_path / "in.parquet"), "out.parquet", join=True)
    found = pq.read_table(tmp_path / "out.parquet")
    twice = [i for i in range(100) for _ in range(1 + i % 2)]
    own = found.select(given.column_names)
    assert own.schema.field("at").type == pa.timestamp("ns", "Europe/Berlin")
    assert [field.type for field in own.schema] == [field.type for field in pq.read_table(tmp_path / "in.parquet").schema]
    assert whole(own).to_pylist() == whole(given.take(twice)).to_pylist()
    assert found.column("nightbatch_custom_id").to_pylist() == [str(i) for i in twice]
    assert all(text for text in found.column("nightbatch_output_text").to_pylist())


def test_tables_of_different_columns_become_one(answer: Make, export: Make, tmp_path: Path) -> None:
    """No column of any file is lost, a damaged file costs its rest, and text files' rows stand beside tables'."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    pq.write_table(pa.table({"prompt": ["a"], "day": pa.array([3], pa.date32())}), folder / "1.parquet")
    pq.write_table(pa.table({"prompt": ["b"], "size": pa.array([7], pa.uint8())}), folder / "2.parquet")
    (folder / "3.parquet").write_bytes(b"PAR1 and nothing more")
    (folder / "4.csv").write_text("prompt,cell\nc,x\n")
    export(answer(folder), "out.parquet", join=True)
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.schema.field("day").type == pa.date32()
    assert found.schema.field("size").type == pa.uint8()
    assert found.column("prompt").to_pylist() == ["a", "b", None, "c"]
    assert found.column("cell").to_pylist() == [None, None, None, "x"]
    assert found.column("size").to_pylist() == [None, 7, None, None]
    assert found.column("nightbatch_reason").to_pylist() == [None, None, "damaged_file", None]


def test_files_of_kinds_that_are_not_read(answer: Make, export: Make, tmp_path: Path) -> None:
    """What stands for each in the run is a row of the joined table, too."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    pq.write_table(pa.table({"prompt": ["a"]}), folder / "1.parquet")
    (folder / "2.parquet.gz").write_bytes(b"\x1f\x8b and so on")
    (folder / "3.feather").write_bytes(b"FEA1 and so on")
    (folder / "4.parquet").write_bytes(b"PARE and so on")
    export(answer(folder), "out.parquet", join=True)
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.column("prompt").to_pylist() == ["a", None, None, None]
    reasons = [None, "unsupported_format", "malformed_table", "malformed_table"]
    assert found.column("nightbatch_reason").to_pylist() == reasons
    assert found.column("nightbatch_line").to_pylist() == [1, 0, 0, 0]


def test_one_column_of_two_types_is_told(answer: Make, cli: Any, tmp_path: Path) -> None:
    """Parquet cannot have both; the message names the column and the ways out, one of which works."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    pq.write_table(pa.table({"prompt": ["a"], "day": pa.array([3], pa.date32())}), folder / "1.parquet")
    (folder / "2.csv").write_text("prompt,day\nc,x\n")
    run_id = answer(folder)
    done = cli("export", run_id, "-o", "out.parquet", "--join")
    assert done.returncode == 2
    assert "day" in done.stderr
    assert "--format jsonl" in done.stderr
    assert not (tmp_path / "out.parquet").exists()
    assert cli("export", run_id, "-o", "out.jsonl", "--join").returncode == 0


def test_answers_never_hide_a_column_of_the_input() -> None:
    """Where the input has such a column the prefix is another."""
    assert answer_prefix(["status", "nightbatch_other"]) == "nightbatch_"
    assert answer_prefix(["nightbatch_status"]) == "nightbatch2_"
    assert answer_prefix(["nightbatch_line", "nightbatch2_error"]) == "nightbatch3_"


@pytest.mark.parametrize(
    ("values", "kind", "stored"),
    [
        ([None, None], "text", [None, None]),
        (["a", None], "text", ["a", None]),
        ([True, False], "bool", [True, False]),
        ([True, 1], "json", ["true", "1"]),
        ([1, 2**60], "long", [1, 2**60]),
        ([1, 2**70], "json", ["1", str(2**70)]),
        ([1, 0.5], "float", [1.0, 0.5]),
        ([2**60, 0.5], "json", [str(2**60), "0.5"]),
        (["1", 1], "json", ['"1"', "1"]),
        ([{"é": []}, "x"], "json", ['{"é":[]}', '"x"']),
    ],
)
def test_kinds_of_columns(values: list[Any], kind: str, stored: list[Any]) -> None:
    """A column has the narrowest kind that holds each of its values exactly."""
    kinds = Kinds()
    for value in values:
        kinds.add({"x": value})
    assert kinds.columns == {"x": kind}
    assert [as_kind(value, kind) for value in values] == stored
