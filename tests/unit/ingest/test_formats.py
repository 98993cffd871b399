"""Files of every kind that is read, compressed or not, whole or cut off: the same rows, and each of them accounted for."""

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from tasks.core.config import RowConfig
from tasks.ingest.finding.sources import discover
from tasks.ingest.reading.formats import read_file
from tasks.ingest.reading.text import read_text
from tasks.ingest.rows import Fault

Put = Callable[..., Path]
Read = Callable[..., tuple[list[dict[str, Any]], list[dict[str, Any]]]]
ROWS = [{"id": f"r{i}", "prompt": f"question {i} naïve 日本 🌶", "max_tokens": 5 + i} for i in range(20)]


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
}


def lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def table(rows: list[dict[str, Any]]) -> bytes:
    return ("id,prompt,max_tokens\n" + "".join(f"{r['id']},{r['prompt']},{r['max_tokens']}\n" for r in rows)).encode()


def asked(requests: list[dict[str, Any]]) -> list[tuple[str, str, int]]:
    return [(row["custom_id"], row["text"], row["max_tokens"]) for row in requests]


EXPECTED = [(row["id"], row["prompt"], row["max_tokens"]) for row in ROWS]


@pytest.mark.parametrize("ending", COMPRESS)
@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("in.jsonl", lines(ROWS)),
        ("in.json", json.dumps(ROWS, ensure_ascii=False).encode()),
        ("pretty.json", json.dumps(ROWS, indent=2).encode()),
        ("lines.json", lines(ROWS)),
        ("nested.json", json.dumps({"meta": {"n": 20, "tags": ["a"]}, "data": {"items": ROWS}}).encode()),
        ("in.csv", table(ROWS)),
        ("in.tsv", table(ROWS).replace(b",", b"\t")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_same_rows_whatever_they_are_wrapped_in(put: Put, read: Read, name: str, data: bytes, ending: str) -> None:
    """Every format under every compression gives the same requests."""
    path = put(name + ending)
    path.write_bytes(COMPRESS[ending](data))
    requests, rejects = read(path)
    assert rejects == []
    assert asked(requests) == EXPECTED


@pytest.mark.parametrize("ending", [ending for ending in COMPRESS if ending])
def test_file_that_is_cut_off_keeps_its_rows(put: Put, read: Read, ending: str) -> None:
    """Of a compressed file that ends early the rows before the end are requests, and the rest is one reject."""
    many = [{"prompt": f"{i} {'x' * (i % 97)} {i * i}"} for i in range(20_000)]
    path = put("in.jsonl" + ending)
    whole = COMPRESS[ending](lines(many))
    path.write_bytes(whole[: len(whole) // 2])
    requests, rejects = read(path)
    assert rejects[-1]["reason"] in ("damaged_file", "malformed_json")
    assert any(reject["reason"] == "damaged_file" for reject in rejects)
    assert len(rejects) <= 2
    assert [row["text"] for row in requests] == [row["prompt"] for row in many[: len(requests)]]


def test_plain_text_is_a_prompt_a_line(put: Put, read: Read) -> None:
    """Blank lines are no rows, a line that is no UTF-8 is a reject with its number."""
    requests, [reject] = read(put("in.txt", "one", "", b"\xff\xfe\xfd", "  two  "))
    assert [(row["line"], row["text"]) for row in requests] == [(1, "one"), (4, "  two  ")]
    assert (reject["line"], reject["reason"]) == (3, "encoding")


def test_record_path(put: Put, read: Read) -> None:
    """--record-path names the array; one that is not there is a reject that says so."""
    path = put("in.json", {"first": [{"x": 1}], "second": {"rows": [{"prompt": "hi"}, {"prompt": "yo"}, 3]}})
    requests, [reject] = read(path, record_path="second.rows")
    assert [row["text"] for row in requests] == ["hi", "yo"]
    assert (reject["line"], reject["reason"]) == (3, "not_an_object")
    requests, [reject] = read(path, record_path="third")
    assert (requests, reject["reason"], "--record-path" in reject["message"]) == ([], "no_records", True)


def test_one_request_alone_in_a_document(put: Put, read: Read) -> None:
    """An object that is a request itself is one row, though it has an array in it."""
    chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
    [request], rejects = read(put("in.json", json.dumps(chat, indent=2)))
    assert (request["text"], request["max_tokens"], rejects) == ("hi", 3, [])


def test_broken_json_array_keeps_its_rows(put: Put, read: Read) -> None:
    """Elements before the break are requests; the break is one reject that says behind which."""
    requests, [reject] = read(put("in.json", '[{"prompt": "a"}, {"prompt": "b"}, {"prompt": '))
    assert [row["text"] for row in requests] == ["a", "b"]
    assert (reject["reason"], reject["line"]) == ("malformed_json", 3)


CHATS = [[{"role": "user", "content": f"hi {i}"}] for i in range(3)]


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("in.parquet", pq.write_table),
        ("in.arrow", lambda table, path: _ipc(table, path, pa.ipc.new_file)),
        ("stream.arrow", lambda table, path: _ipc(table, path, pa.ipc.new_stream)),
        ("in.feather", pyarrow.feather.write_feather),
    ],
    ids=["parquet", "arrow file", "arrow stream", "feather"],
)
def test_tables_of_columns(put: Put, read: Read, name: str, write: Callable[[pa.Table, Path], None]) -> None:
    """Parquet, Arrow and Feather: messages as lists of structs, text of any Arrow type, missing values, whole floats."""
    columns = {
        "id": pa.array(["a", "b", "c"]).dictionary_encode(),
        "messages": pa.array(CHATS),
        "system": pa.array(["be brief", None, None], pa.large_string()),
        "max_tokens": pa.array([4.0, None, float("nan")]),
        "when": pa.array([datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)] * 3, pa.timestamp("ns", "Europe/Berlin")),
        "day": pa.array([date(2026, 1, 2)] * 3),
        "price": pa.array([Decimal("1.50")] * 3),
        "blob": pa.array([b"x"] * 3),
    }
    path = put(name)
    write(pa.table(columns), path)
    requests, rejects = read(path)
    assert rejects == []
    assert [(row["custom_id"], row["text"]) for row in requests] == [("a", "hi 0"), ("b", "hi 1"), ("c", "hi 2")]
    assert [row["max_tokens"] for row in requests] == [4, 512, 512]
    assert [len(json.loads(row["messages"])) for row in requests] == [2, 1, 1]


def _ipc(table: pa.Table, path: Path, writer: Callable[..., Any]) -> None:
    with writer(str(path), table.schema) as sink:
        sink.write_table(table)


def test_prompts_that_look_like_times_or_numbers_stay_text(put: Put, read: Read) -> None:
    """Nothing guesses a type: a prompt is what stands in the file."""
    prompts = ["2026-01-02 03:04:05", "18446744073709551616", "1e5", "true", "NaN"]
    path = put("in.parquet")
    pq.write_table(pa.table({"prompt": prompts}), path)
    for one in (path, put("in.csv", "prompt", *prompts), put("in.txt", *prompts)):
        assert [row["text"] for row in read(one)[0]] == prompts


def test_parts_whose_columns_differ(put: Put, read: Read) -> None:
    """A field that only one of two parts has is kept, whichever is read first."""
    named = [[{"role": "user", "name": "eve", "content": "hi"}]]
    pq.write_table(pa.table({"messages": pa.array([CHATS[0]])}), put("s/m1.parquet"))
    pq.write_table(pa.table({"messages": pa.array(named)}), put("s/m2.parquet"))
    requests, rejects = read(put("s/m0.txt", "x").parent)
    assert rejects == []
    assert json.loads(requests[2]["messages"])[0]["name"] == "eve"
    assert "name" not in json.loads(requests[1]["messages"])[0]


@pytest.mark.parametrize(
    "name", ["in.parquet", "in.arrow", "in.feather", "in.jsonl.gz", "in.csv.zst", "in.txt.xz", "in.json.bz2"]
)
def test_file_that_is_not_what_its_name_says(put: Put, read: Read, name: str) -> None:
    """Bytes that are no such file are one reject with its name, and the other files are read."""
    put("s/ok.txt", "hi")
    [request], [reject] = read(put(f"s/{name}", b"\x00no such file" * 20).parent)
    assert (request["text"], reject["file"], reject["reason"]) == ("hi", name, "damaged_file")


def test_a_text_line_over_the_limit_is_read_over(put: Put) -> None:
    """A line that is longer than a row may be is one fault, however long it is, and the next line is a row."""
    rows = list(read_text(put("in.txt", "a", "x" * 3_000_000, "b"), RowConfig(), max_row_bytes=64))
    assert [(row.line, row.byte_offset) for row in rows] == [(1, 0), (2, 2), (3, 3_000_003)]
    assert [isinstance(row.content, Fault) for row in rows] == [False, True, False]


# A file, a prompt


def test_each_file_is_a_prompt(put: Put, read: Read) -> None:
    """With the format `document` a file of any ending is one row: its whole text, and its name as the id."""
    for name, text in (("a.md", "# A\n\ntext"), ("b.txt", "b\nb"), ("c", "c"), ("README.md", "about"), ("d.html.gz", "")):
        put(f"s/{name}").write_bytes(gzip.compress(b"<p>") if name.endswith("gz") else text.encode("utf-8-sig"))
    folder = put("s/empty.txt").parent
    requests, [reject] = read(folder, format="document")
    assert [(row["custom_id"], row["text"]) for row in requests] == [
        ("a.md", "# A\n\ntext"),
        ("b.txt", "b\nb"),
        ("c", "c"),
        ("d.html.gz", "<p>"),
    ]
    assert (reject["file"], reject["custom_id"]) == ("empty.txt", "empty.txt")
    assert read(put("s/a.md", "x"), format="document", id_column="name", prompt_column="text")[0][0]["custom_id"] == "a.md"


def test_a_document_that_is_no_text(put: Put, read: Read) -> None:
    """A file of other bytes is one reject that says so, and decoded where its encoding is given."""
    path = put("a.txt", b"caf\xe9")
    _, [reject] = read(path, format="document")
    assert (reject["line"], reject["reason"]) == (1, "encoding")
    assert read(path, format="document", encoding="cp1252")[0][0]["text"] == "café\n"


# Progress


@pytest.mark.parametrize("ending", COMPRESS)
@pytest.mark.parametrize("name", ["in.jsonl", "in.json", "object.json", "in.csv", "in.txt", "in.document", "in.xlsx"])
def test_progress_is_told_in_bytes(put: Put, name: str, ending: str) -> None:
    """Over any file, whole or cut off, `on_bytes` hears of all its bytes, and before the end of a large one."""
    rows = [{"prompt": f"{i} {'x' * (i % 97)} {i * i}"} for i in range(20_000)]
    data = {"in.json": json.dumps(rows), "object.json": json.dumps({"rows": rows}), "in.csv": lines(rows).decode()}
    whole = COMPRESS[ending](data.get(name, lines(rows).decode()).encode())
    for part in (whole, whole[: len(whole) // 2]):
        path = put(name + ending)
        path.write_bytes(part)
        [file] = discover([path], None)
        heard: list[int] = []
        config = RowConfig(format="document") if "document" in name else RowConfig()
        for _ in read_file(file, config, heard.append):
            pass
        assert sum(heard) == len(part)
        assert min(heard) > 0
        assert len(heard) > 1 or len(part) < 1 << 18 or "xlsx" in name


# Tables as files


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("a.xlsx", "as CSV"), ("a.parquet.gz", "decompress it"), ("a.orc", "convert it to Parquet"), ("a.zip", "unpack it")],
)
def test_kinds_that_can_be_converted(put: Put, read: Read, name: str, remedy: str) -> None:
    """A file of a kind that is not read says how it becomes one that is."""
    _, [reject] = read(put(name, "x"))
    assert (reject["reason"], reject["line"]) == ("unsupported_format", 0)
    assert remedy in reject["message"]


def test_columns_of_one_name(put: Put, read: Read) -> None:
    """A table in which two columns have one name is one reject."""
    path = put("in.parquet")
    pq.write_table(pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["prompt", "prompt"]), path)
    _, [reject] = read(path)
    assert (reject["reason"], reject["line"]) == ("malformed_table", 0)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_messages_whose_fields_drift(put: Put, read: Read, order: tuple[int, int]) -> None:
    """Of two Parquet files with other fields in their messages none is lost, in either order, nor content in parts."""
    parts = [[{"role": "user", "content": [{"type": "text", "text": "hi"}]}]]
    tables = [pa.table({"messages": pa.array([CHATS[0]])}), pa.table({"messages": pa.array(parts)})]
    named = pa.table({"messages": pa.array([[{"role": "user", "name": "eve", "content": "hi"}]])})
    for name, table in zip(("m1", "m2"), (tables[order[0]], tables[order[1]]), strict=True):
        pq.write_table(table, put(f"s/{name}.parquet"))
    pq.write_table(named, put("s/m0.parquet"))
    requests, rejects = read(put("s/m3.txt", "x").parent)
    assert rejects == []
    found = [json.loads(row["messages"])[0] for row in requests[:3]]
    assert found[0]["name"] == "eve"
    assert found[1 + order[0]]["content"] == CHATS[0][0]["content"]
    assert found[1 + order[1]]["content"] == parts[0][0]["content"]


def test_gzip_with_something_behind_it(put: Put, read: Read) -> None:
    """The rows are read, and what stands behind them is one reject."""
    path = put("in.jsonl.gz")
    path.write_bytes(gzip.compress(lines(ROWS)) + b"garbage")
    requests, [reject] = read(path)
    assert (len(requests), reject["reason"], reject["line"]) == (20, "damaged_file", 21)
