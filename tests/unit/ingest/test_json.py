"""JSON documents: whatever shape they have, a bad element costs itself, and nothing behind it is lost."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.core.config import RowConfig
from tasks.ingest.finding.sources import discover
from tasks.ingest.reading.formats import read_file
from tasks.ingest.reading.json_document import read_records, read_values
from tasks.ingest.reading.json_scan import Scanner, TornError
from tasks.ingest.rows import Fault

Rows = list[dict[str, Any]]
Put = Callable[..., Path]
Read = Callable[..., tuple[Rows, Rows]]
A, B = '{"prompt": "a"}', '{"prompt": "b"}'
BAD = [
    ('{"prompt": "cut \\ud83d"}', "encoding"),
    (b'{"prompt": "\xe9"}', "encoding"),
    ('{"prompt": "x", "n": 1e}', "malformed_json"),
    ('{"prompt": "x" "y"}', "malformed_json"),
    ('"prompt"', "not_an_object"),
    ("[1, [2]]", "not_an_object"),
    ("12", "not_an_object"),
    ("oops", "malformed_json"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD)
def test_a_bad_element_costs_itself(put: Put, read: Read, bad: str | bytes, reason: str) -> None:
    """An element that is no row is one reject with its number and place; the elements around it are requests."""
    raw = bad.encode() if isinstance(bad, str) else bad
    requests, [reject] = read(put("in.json", f"[{A},".encode() + raw + f", {B}]".encode()))
    assert [row["text"] for row in requests] == ["a", "b"]
    assert (reject["line"], reject["reason"], reject["byte_offset"]) == (2, reason, len(A) + 2)


def test_numbers_that_other_parsers_stop_at(put: Put, read: Read) -> None:
    """NaN, 1e400 and integers beyond 64 bits in other fields do not cost a row, nor those behind it."""
    values = ["NaN", "-Infinity", "1e400", str(2**64), str(10**40)]
    requests, rejects = read(put("in.json", "[" + ",".join(f'{{"prompt": "a", "x": {value}}}' for value in values) + "]"))
    assert (len(requests), rejects) == (len(values), [])


@pytest.mark.parametrize(
    "text",
    [
        f"[{A}, {B},]",
        f"[{A}, {B}][]",
        f"[{A}]\n[{B}]",
        f"{A}\n{B}",
        f"{A}{B}",
        f"{A}, {B},",
        json.dumps(json.loads(A), indent=2) + "\n" + json.dumps(json.loads(B), indent=2),
        f"\ufeff[{A}, {B}]",
        f'\ufeff{{"rows": [{A}, {B}]}}',
        f'{{"empty": [], "n": [1, 2], "deep": {{"x": "]}}", "rows": [{A}, {B}]}}, "more": [{{}}]}}',
        f'{{"prompt": "a"}}\r\n\r\n{B}\r\n',
    ],
)
def test_shapes(put: Put, read: Read, text: str) -> None:
    """Arrays and objects, alone, within one another or one after another, with a BOM or a comma too many."""
    requests, rejects = read(put("in.json", text))
    assert [row["text"] for row in requests] == ["a", "b"]
    assert rejects == []


@pytest.mark.parametrize(
    ("text", "num_rows"),
    [
        (f"[{A}, {B}", 2),
        (f"[{A}, {{", 1),
        (f'{{"rows": [{A}', 1),
        (f'{{"rows": [{A}], "x": "', 1),
        (f'[{A}, "un', 1),
        ("[", 0),
    ],
)
def test_documents_that_are_cut_off(put: Put, read: Read, text: str, num_rows: int) -> None:
    """What is whole is read, and the end that is missing is one reject that says behind which element."""
    requests, [reject] = read(put("in.json", text))
    assert len(requests) == num_rows
    assert (reject["line"], reject["reason"]) == (num_rows + 1, "malformed_json")
    assert f"behind element {num_rows}" in reject["message"]


def test_a_second_document_behind_the_rows(put: Put, read: Read) -> None:
    """What stands behind an object with rows in it is not passed over in silence."""
    requests, [reject] = read(put("in.json", f'{{"rows": [{A}],\n"x": 1}}\n{{"rows": [{B}]}}'), record_path="rows")
    assert ([row["text"] for row in requests], reject["reason"]) == (["a"], "malformed_json")
    assert "which is not read" in reject["message"]


def test_the_last_of_two_equal_names_counts(put: Put, read: Read) -> None:
    """A name that stands twice in an object has its last value, as in every JSON parser here."""
    [request], _ = read(put("in.json", '[{"prompt": "a", "prompt": "b"}]'))
    assert request["text"] == "b"


def test_a_long_request_is_one_row(put: Put, read: Read) -> None:
    """One pretty-printed request is a row though its messages are an array of objects, however long it is."""
    chat = {"messages": [{"role": "user", "content": "word " * 60_000}]}
    [row] = read_file(discover([put("in.json", json.dumps(chat, indent=2))], None)[0], RowConfig())
    assert row.content == chat


@pytest.mark.parametrize("block", [1, 2, 7, 64])
def test_values_across_blocks(block: int) -> None:
    """Where a block of the stream ends does not matter, within a string or an escape as little as between values."""
    values = [{"prompt": f'q "{i}" \\ ]}}[{{ ' + "x" * i, "n": [i, {"a": None}]} for i in range(40)]

    class Drops:
        def __init__(self) -> None:
            self.data = json.dumps(values).encode()

        def read(self, size: int) -> bytes:
            head, self.data = self.data[:block], self.data[block:]
            return head

    rows = list(read_values(Drops(), 0))  # type: ignore[arg-type]
    assert [row.content for row in rows] == values
    assert all(json.dumps(values).encode()[row.byte_offset or 0 :].startswith(row.raw.encode()) for row in rows)


def test_a_value_over_the_limit() -> None:
    """An element that is longer than a row may be ends the reading, with its size; what is skipped may be of any size."""
    text = json.dumps({"skipped": ["x" * 400_000], "text": "y" * 400_000, "rows": [{"a": 1}, {"b": "z" * 400_000}]})
    scanner = Scanner(io.BytesIO(text.encode()), max_bytes=200_000)
    with pytest.raises(TornError, match="longer than 200,000 bytes"):
        for _ in iter(scanner.peek, b""):
            scanner.value()
    rows = [{"a": 1}, {"b": "z" * 400_000}]
    found = list(read_records(io.BytesIO(text.encode()), 0, "rows"))
    assert [row.content for row in found] == rows


def test_a_million_elements_need_no_memory() -> None:
    """An array is read in the memory of an element: no more than a few blocks are ever kept."""

    class Endless:
        num_reads = 0

        def read(self, size: int) -> bytes:
            assert size <= 1 << 19
            self.num_reads += 1
            return b"[" if self.num_reads == 1 else (A + ",").encode() * 5000 if self.num_reads < 50 else b"]"

    rows = read_values(Endless(), None)  # type: ignore[arg-type]
    num_rows = sum(not isinstance(row.content, Fault) for _, row in zip(range(300_000), rows, strict=False))
    assert num_rows == 48 * 5000
