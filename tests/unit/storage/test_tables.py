"""Tables that others wrote: every Arrow type as plain values that lose nothing, and files that are no rows said clearly."""

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from tasks.core.errors import DamageError
from tasks.storage.frames import file_frames
from tasks.storage.tables import TableError, read_table_rows

NS = 1_735_689_600_123_456_789
TYPES: list[tuple[pa.DataType, Any, Any]] = [
    (pa.string_view(), "a", "a"),
    (pa.binary_view(), b"a", "a"),
    (pa.large_binary(), b"a", "a"),
    (pa.dictionary(pa.int8(), pa.string()), "a", "a"),
    (pa.timestamp("ns"), NS, "2025-01-01 00:00:00.123456789"),
    (pa.timestamp("ns", "Europe/Berlin"), NS, "2025-01-01 01:00:00.123456789+0100"),
    (pa.date32(), date(2026, 1, 2), "2026-01-02"),
    (pa.date32(), 10**7, "29349-01-26"),
    (pa.time64("ns"), 123_456_789, "00:00:00.123456789"),
    (pa.list_(pa.timestamp("ns")), [NS], ["2025-01-01 00:00:00.123456789"]),
    (pa.large_list(pa.timestamp("ns")), [NS], ["2025-01-01 00:00:00.123456789"]),
    (pa.list_(pa.timestamp("ns"), 1), [NS], ["2025-01-01 00:00:00.123456789"]),
    (pa.list_view(pa.string()), ["a", None], ["a", None]),
    (pa.struct([("t", pa.timestamp("ns")), ("n", pa.null())]), {"t": NS}, {"t": "2025-01-01 00:00:00.123456789"}),
    (pa.map_(pa.string(), pa.timestamp("ns")), [("k", NS)], {"k": "2025-01-01 00:00:00.123456789"}),
    (pa.map_(pa.string(), pa.string()), [("k", "1"), ("k", "2")], [["k", "1"], ["k", "2"]]),
    (pa.map_(pa.int8(), pa.string()), [(1, "a")], [[1, "a"]]),
    (pa.list_(pa.map_(pa.string(), pa.string())), [[("role", "user")]], [{"role": "user"}]),
    (pa.decimal128(5, 2), Decimal("1.50"), "1.50"),
    (pa.uuid(), b"0" * 16, "30303030-3030-3030-3030-303030303030"),
    (pa.null(), None, None),
    (pa.list_(pa.struct([("a", pa.list_(pa.null()))])), [{"a": []}, {"a": [None]}], [{"a": []}, {"a": [None]}]),
    (pa.float64(), float("nan"), None),
    (pa.uint64(), 2**64 - 1, 2**64 - 1),
]


@pytest.mark.parametrize(("kind", "value", "expected"), TYPES, ids=[str(kind) for kind, _, _ in TYPES])
def test_every_type(tmp_path: Path, kind: pa.DataType, value: Any, expected: Any) -> None:
    """A value of any type, at any depth, comes out whole, and a missing one is None."""
    path = tmp_path / "in.arrows"
    table = pa.table({"prompt": ["hi", "yo"], "x": pa.array([value, None], kind)})
    with pa.ipc.new_stream(str(path), table.schema) as sink:
        sink.write_table(table)
    assert list(read_table_rows(path)) == [{"prompt": "hi", "x": expected}, {"prompt": "yo", "x": None}]


def parquet(path: Path, table: pa.Table, **options: Any) -> Path:
    pq.write_table(table, path, **options)
    return path


def test_what_a_file_is_its_bytes_say(tmp_path: Path) -> None:
    """A Parquet or Arrow file is read as what it is, whatever it is called."""
    table = pa.table({"x": [1]})
    assert list(read_table_rows(parquet(tmp_path / "a.arrow", table))) == [{"x": 1}]
    pyarrow.feather.write_feather(table, tmp_path / "b.parquet")
    assert list(read_table_rows(tmp_path / "b.parquet")) == [{"x": 1}]


@pytest.mark.parametrize("row_group_size", [1, 7, 1000, 5000])
def test_shares_add_up_to_the_file(tmp_path: Path, row_group_size: int) -> None:
    """Over many row groups, many batches or a single one, what is heard of the bytes is in sum the file's size."""
    path = parquet(tmp_path / "in.parquet", pa.table({"x": range(3000)}), row_group_size=row_group_size)
    heard: list[int] = []
    assert sum(row["x"] for row in read_table_rows(path, heard.append)) == sum(range(3000))
    assert sum(heard) == path.stat().st_size
    assert len(heard) > 1
    stream = tmp_path / "in.arrows"
    with pa.ipc.new_stream(str(stream), pa.schema([("x", pa.int64())])) as sink:
        sink.write_table(pa.table({"x": range(3000)}), max_chunksize=row_group_size)
    heard.clear()
    assert sum(1 for _ in read_table_rows(stream, heard.append)) == 3000
    assert 0 <= stream.stat().st_size - sum(heard) <= 8  # the mark of the end is no batch


def test_wide_rows_are_read_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many rows are in memory at once follows from how large they are."""
    sizes: list[int] = []
    iter_batches = pq.ParquetFile.iter_batches

    def spying(self: Any, batch_size: int) -> Any:
        sizes.append(batch_size)
        return iter_batches(self, batch_size=batch_size)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", spying)
    wide = pa.table({"x": [f"{i}" + "x" * 3_000_000 for i in range(10)]})
    assert sum(1 for _ in read_table_rows(parquet(tmp_path / "wide.parquet", wide))) == 10
    assert sum(1 for _ in read_table_rows(parquet(tmp_path / "slim.parquet", pa.table({"x": range(10)})))) == 10
    assert sizes[0] <= 3
    assert sizes[1] >= 100


@pytest.mark.parametrize("table", [pa.table({"x": pa.array([], pa.string())}), pa.table({})])
def test_no_rows(tmp_path: Path, table: pa.Table) -> None:
    """A file without rows, or without columns, has none."""
    assert list(read_table_rows(parquet(tmp_path / "in.parquet", table))) == []


def test_columns_of_one_name(tmp_path: Path) -> None:
    """Which of two columns of one name is meant cannot be known."""
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    with pytest.raises(TableError, match="two columns are named 'x'"):
        list(read_table_rows(parquet(tmp_path / "in.parquet", table)))


def feather_1(path: Path) -> None:
    path.write_bytes(b"FEA1\0\0\0\0")


def encrypted(path: Path) -> None:
    path.write_bytes(b"PARE" + bytes(50) + b"PARE")


@pytest.mark.parametrize(("write", "said"), [(feather_1, "version 1"), (encrypted, "encrypted")])
def test_kinds_that_are_not_read(tmp_path: Path, write: Callable[[Path], None], said: str) -> None:
    """An old or encrypted file says what it is and what to do."""
    write(tmp_path / "in")
    with pytest.raises(TableError, match=said):
        list(read_table_rows(tmp_path / "in"))


def test_a_file_that_is_cut_off(tmp_path: Path) -> None:
    """A Parquet file without its end is damaged; of a stream, what is whole is read."""
    path = parquet(tmp_path / "in.parquet", pa.table({"x": range(1000)}))
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DamageError, match=r"in\.parquet: not readable as a table"):
        list(read_table_rows(path))
    stream = tmp_path / "in.arrows"
    with pa.ipc.new_stream(str(stream), pa.schema([("x", pa.int64())])) as sink:
        sink.write_table(pa.table({"x": range(100)}), max_chunksize=50)
    stream.write_bytes(stream.read_bytes()[:-100])
    rows: list[int] = []
    with pytest.raises((DamageError, OSError)):
        for row in read_table_rows(stream):
            rows.append(row["x"])  # noqa: PERF401  it raises on the way
    assert rows == list(range(50))


@pytest.mark.parametrize("at", [600, 1100])
@pytest.mark.parametrize("offset", [-1, 2**31 - 1, 0])
def test_offsets_that_point_anywhere(tmp_path: Path, at: int, offset: int) -> None:
    """Of a damaged Arrow file, which has no checksums, the rows before the damage are read, and the rest is an error."""
    path = tmp_path / "in.arrow"
    names = pa.array([f"name {i}" for i in range(1500)])
    table = pa.table({"prompt": names, "turns": [[{"role": "user"}]] * 1500})
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    offsets = bytes(names.buffers()[1])[: 4 * 1501]
    damaged = offsets[: 4 * at] + offset.to_bytes(4, "little", signed=True) + offsets[4 * (at + 1) :]
    data = path.read_bytes()
    assert data.count(offsets) == 1
    path.write_bytes(data.replace(offsets, damaged))
    rows: list[Any] = []
    reader = read_table_rows(path)
    with pytest.raises(DamageError, match=r"in\.arrow: not readable as a table"):
        rows += reader
    found = list(file_frames(path))
    assert len(rows) == sum(frame.num_rows for frame in found[:-1]) == at // 512 * 512
    assert found[-1].num_rows == 1
