"""JSON lines: bad ones cost themselves, encodings are told apart, and a line may be of any size."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.ingest.reading.jsonl import read_jsonl
from tasks.ingest.rows import Fault

Rows = list[dict[str, Any]]
Chat = Callable[..., str]
Put = Callable[..., Path]
Read = Callable[..., tuple[Rows, Rows]]

BOM = b"\xef\xbb\xbf"


def test_a_malformed_line_costs_itself(put: Put, chat: Chat, read: Read) -> None:
    """A broken line in the middle is a reject with line, byte offset and sample; the lines around it are requests."""
    first, broken = chat("a", "hi"), '{"custom_id":"b","body":{'
    requests, [reject] = read(put("in.jsonl", first, broken, chat("c", "yo")))
    assert [(row["custom_id"], row["line"]) for row in requests] == [("a", 1), ("c", 3)]
    assert (reject["line"], reject["byte_offset"], reject["raw"]) == (2, len(first) + 1, broken)
    assert reject["reason"] == "malformed_json"
    assert (reject["source"], reject["file"], reject["custom_id"]) == ("in", "in.jsonl", None)


def test_the_sample_is_clipped(put: Put, read: Read) -> None:
    """Of a long bad line the reject keeps the first 64 KiB."""
    _, [reject] = read(put("in.jsonl", "x" * 100_000))
    assert reject["raw"] == "x" * 65_536


def test_a_line_that_is_no_object(put: Put, read: Read) -> None:
    """JSON that is no object is a reject that says what it is."""
    lines = ["[]", '"text"', "5", "null", "true", '[{"prompt": "hi"}]']
    _, rejects = read(put("in.jsonl", *lines))
    assert {row["reason"] for row in rejects} == {"not_an_object"}
    assert [row["message"].split()[-1] for row in rejects] == ["list", "str", "int", "NoneType", "bool", "list"]


def test_blank_lines_are_no_rows(put: Put, read: Read) -> None:
    """Empty lines and lines of blanks are passed over, and still count as lines."""
    requests, rejects = read(put("in.jsonl", "", '{"prompt": "a"}', "  \t", '{"prompt": "b"}', "", ""))
    assert [row["line"] for row in requests] == [2, 4]
    assert rejects == []


def test_windows_line_ends_and_no_last_one(put: Put, read: Read) -> None:
    """CRLF is a line end, and the last line needs none; offsets are those of the bytes."""
    path = put("in.jsonl")
    path.write_bytes(b'{"prompt": "a"}\r\n{"prompt": \r\n\r\n{"prompt": "b"}')
    requests, [reject] = read(path)
    assert [row["line"] for row in requests] == [1, 4]
    assert (reject["line"], reject["byte_offset"], reject["raw"]) == (2, 17, '{"prompt": ')


def test_other_line_separators_are_text(put: Put, read: Read) -> None:
    """U+2028, U+0085 and a form feed within a string do not end a line."""
    prompt = "a\u2028b\u0085c\u2029d"
    [request], _ = read(put("in.jsonl", json.dumps({"prompt": prompt}, ensure_ascii=False)))
    assert request["text"] == prompt


def test_a_bom_is_dropped(put: Put, chat: Chat, read: Read) -> None:
    """A UTF-8 BOM is no part of the first row, nor of a later one where files with a BOM were put together."""
    requests, rejects = read(put("in.jsonl", BOM + chat("a", "hi").encode(), BOM + chat("b", "yo").encode()))
    assert [row["custom_id"] for row in requests] == ["a", "b"]
    assert rejects == []


def test_a_bom_alone_is_an_empty_file(put: Put, read: Read) -> None:
    """A file of nothing but a BOM has no rows."""
    assert read(put("in.jsonl", BOM)) == ([], [])


def test_a_file_of_zeros_is_not_called_utf16(put: Put, read: Read) -> None:
    """The zeros that a power cut leaves are malformed rows."""
    _, [reject] = read(put("in.jsonl", bytes(4096)))
    assert reject["reason"] == "malformed_json"


def test_an_empty_file_has_no_rows(put: Put, read: Read) -> None:
    """No bytes, no rows."""
    assert read(put("in.jsonl")) == ([], [])


NO_TEXT = [
    (b'{"custom_id": "s", "prompt": "cut \\ud83d"}', "encoding"),
    (b'{"custom_id": "s", "prompt": "\\ude00 cut"}', "encoding"),
    (b'{"\\ud83d": 1, "prompt": "in a name"}', "encoding"),
    (b'{"custom_id": "\\ud83d", "prompt": "in the id"}', "encoding"),
    (b'{"custom_id": "s", "prompt": "latin \xe9"}', "encoding"),
    (b'{"custom_id": "s", "prompt": "\xed\xa0\xbd"}', "encoding"),
    (b'{"custom_id": "s", "prompt": "nul \x00"}', "malformed_json"),
    (b'{"custom_id": "s", "prompt": "nul \\u0000"}', "invalid_request"),
    (b'{"custom_id": "s\\u0000", "prompt": "nul"}', "invalid_id"),
]


def test_text_that_is_no_text(put: Put, read: Read) -> None:
    """Half a surrogate pair, bytes that are not UTF-8, or a NUL cost their row alone."""
    [request], rejects = read(put("in.jsonl", *(line for line, _ in NO_TEXT), '{"custom_id": "ok", "prompt": "hi"}'))
    assert request["custom_id"] == "ok"
    assert [row["reason"] for row in rejects] == [reason for _, reason in NO_TEXT]


def test_a_whole_surrogate_pair_is_text(put: Put, read: Read) -> None:
    """An escaped emoji is read as the character it is."""
    [request], _ = read(put("in.jsonl", '{"prompt": "\\ud83d\\ude00"}'))
    assert request["text"] == "😀"


def test_deep_nesting_costs_one_row(put: Put, read: Read) -> None:
    """However deep a value goes, it is one reject and the next row is read."""
    shapes = ('{"custom_id": %s, "prompt": "hi"}', '{"prompt": %s}', '{"messages": %s}')
    lines = [shape % ("[" * depth + "]" * depth) for shape in shapes for depth in (1000, 1030, 200_000)]
    [request], rejects = read(put("in.jsonl", *lines, '{"id": "ok", "prompt": "hi"}'))
    assert (request["custom_id"], len(rejects)) == ("ok", len(lines))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_numbers_that_are_no_json_fall_to_their_field(put: Put, read: Read, number: str) -> None:
    """What Python writes for missing numbers costs the row where it matters, with the field's name, and not elsewhere."""
    matters = f'{{"prompt": "hi", "temperature": {number}}}'
    [request], [reject] = read(put("in.jsonl", f'{{"id": "ok", "prompt": "hi", "score": {number}}}', matters))
    assert request["custom_id"] == "ok"
    assert reject["message"].startswith("temperature: ")


def test_a_number_of_a_thousand_digits(put: Put, read: Read) -> None:
    """An integer that no machine reads is a reject."""
    requests, [reject] = read(put("in.jsonl", f'{{"id": {"9" * 5000}, "prompt": "hi"}}', '{"prompt": "hi"}'))
    assert (len(requests), reject["line"]) == (1, 1)


def test_a_line_over_the_limit_is_read_over(put: Put) -> None:
    """A line that is longer than a row may be is one fault, however long it is, and the next line is a row."""
    path = put("in.jsonl", '{"a": 1}', "x" * 3_000_000, '{"b": 2}', "y" * 64)
    rows = list(read_jsonl(path, max_row_bytes=64))
    assert [(row.line, row.byte_offset) for row in rows] == [(1, 0), (2, 9), (3, 3_000_010), (4, 3_000_019)]
    faults = [row.content.reason if isinstance(row.content, Fault) else None for row in rows]
    assert faults == [None, "row_too_large", None, "row_too_large"]
    assert rows[1].raw == "x" * 64
