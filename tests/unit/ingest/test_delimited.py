"""CSV and TSV: cells stay text with all that is in them, and a row whose quotes or cells do not add up costs itself."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.engine.tokenizer import ByteTokenizer
from tasks.ingest.reading.delimited import read_csv
from tasks.ingest.reading.dialects import Dialect
from tasks.ingest.rows import Fault

Rows = list[dict[str, Any]]
Put = Callable[..., Path]
Read = Callable[..., tuple[Rows, Rows]]


def test_newlines_and_quotes_in_cells(put: Put, read: Read) -> None:
    """Of 25,001 rows none is lost: not the first with its line break, nor the last with a comma in quotes."""
    middle = [f"{i},plain" for i in range(2, 25_001)]
    path = put("q.csv", "id,prompt", '1,"two\nlines, ""quoted"""', *middle, '25001,"late, quoted"')
    requests, rejects = read(path)
    assert (len(requests), rejects) == (25_001, [])
    assert (requests[0]["text"], requests[0]["line"]) == ('two\nlines, "quoted"', 2)
    assert (requests[1]["text"], requests[1]["line"]) == ("plain", 4)
    assert (requests[-1]["custom_id"], requests[-1]["text"]) == ("25001", "late, quoted")


@pytest.mark.parametrize(
    ("name", "delimiter"),
    [("in.csv", ","), ("in.csv", ";"), ("in.csv", "\t"), ("in.csv", "|"), ("in.tsv", "\t"), ("IN.TSV", "\t")],
)
def test_delimiters(put: Put, read: Read, name: str, delimiter: str) -> None:
    """The delimiter of a .csv file is read off its header; a .tsv file has tabs."""
    others = "".join({",", ";", "|"} - {delimiter})
    path = put(name, delimiter.join(["id", "prompt", "note"]), delimiter.join(["1", f"a {others} b", "c"]))
    [request], rejects = read(path)
    assert (request["custom_id"], request["text"]) == ("1", f"a {others} b")
    assert rejects == []


def test_a_tsv_header_with_commas(put: Put, read: Read) -> None:
    """A .tsv file has tabs though its header has more commas."""
    [request], _ = read(put("in.tsv", "a,b,c,d\tprompt", "x\thi"))
    assert request["text"] == "hi"


def test_a_single_column(put: Put, read: Read) -> None:
    """A table of one column needs no delimiter; a quoted empty cell is a row, an empty line is none."""
    requests, [reject] = read(put("in.csv", "prompt", "hi", "", '""', '"a, b"'))
    assert [row["text"] for row in requests] == ["hi", "a, b"]
    assert (reject["line"], reject["reason"]) == (4, "no_prompt")


def test_bom_crlf_and_no_last_line_end(put: Put, read: Read) -> None:
    """A file as a spreadsheet saves it is read as it is meant, CRLF within a cell kept."""
    path = put("in.csv")
    path.write_bytes(b'\xef\xbb\xbfprompt;id\r\nhi;1\r\n"two\r\nlines";2\r\n\r\nlast;3')
    requests, rejects = read(path)
    assert [(row["custom_id"], row["text"], row["line"]) for row in requests] == [
        ("1", "hi", 2),
        ("2", "two\r\nlines", 3),
        ("3", "last", 6),
    ]
    assert rejects == []


@pytest.mark.parametrize(("row", "num_cells"), [("1", 1), ("1,hi,more", 3), ("1,hi,", 3)])
def test_too_many_or_too_few_cells(put: Put, read: Read, row: str, num_cells: int) -> None:
    """A row of another length than the header is a reject with both numbers and the row as it stands."""
    [request], [reject] = read(put("in.csv", "id,prompt", row, "2,yo"))
    assert (request["custom_id"], request["line"]) == ("2", 3)
    assert (reject["line"], reject["reason"], reject["raw"]) == (2, "malformed_csv", row)
    assert reject["message"] == f"{num_cells} cells in a row of a table with 2 columns"


@pytest.mark.parametrize("lines", [[], [""], ["", "", ""], ["id,prompt"], ["id,prompt", "", ",", ",,,,"]])
def test_no_rows(put: Put, read: Read, lines: list[str]) -> None:
    """An empty file, a header alone, and rows of nothing but delimiters give no rows."""
    assert read(put("in.csv", *lines)) == ([], [])


def test_an_empty_cell_is_absent(put: Put, read: Read) -> None:
    """An empty cell is no id and no parameter, and as the prompt it is a reject that names the column and shows the id."""
    requests, [reject] = read(put("in.csv", "id,prompt,max_tokens", ",hi,", "2,,"))
    assert [row["custom_id"] for row in requests] == ["in.csv:2"]
    assert (reject["custom_id"], reject["message"]) == ("2", "prompt: is empty")


def test_blanks_around_column_names(put: Put, read: Read) -> None:
    """Blanks in the header are not part of the names; in the cells they are part of the text."""
    [request], _ = read(put("in.csv", "id , prompt", "1, hi "))
    assert (request["custom_id"], request["text"]) == ("1", " hi ")


def test_a_column_that_stands_twice(put: Put, read: Read) -> None:
    """Which of two columns of one name is meant cannot be known, so each row says so; nameless ones do not matter."""
    _, rejects = read(put("in.csv", "prompt,id,prompt", "a,1,b", "c,2,d"))
    assert [(row["line"], row["reason"]) for row in rejects] == [(2, "malformed_csv"), (3, "malformed_csv")]
    assert "'prompt'" in rejects[0]["message"]
    requests, _ = read(put("nameless.csv", "prompt,,", "a,,", "b,x,y"))
    assert [row["text"] for row in requests] == ["a", "b"]


def test_a_quote_that_is_never_closed(put: Put, read: Read) -> None:
    """It costs its own line and does not swallow the rows after it."""
    path = put("in.csv", "id,prompt", "1,hi", '2,"open', "3,yo", "4,ho", '5,"fine, too"', '6,"open again', "7,end")
    requests, rejects = read(path)
    assert [(row["custom_id"], row["line"]) for row in requests] == [("1", 2), ("3", 4), ("4", 5), ("5", 6), ("7", 8)]
    assert [(row["line"], row["reason"], row["raw"]) for row in rejects] == [
        (3, "malformed_csv", '2,"open'),
        (7, "malformed_csv", '6,"open again'),
    ]
    assert "never closed" in rejects[1]["message"]


@pytest.mark.parametrize("row", ['"a" b,1', '"say ""hi"" "now",1', '"a"b"c",1'])
def test_quotes_that_do_not_add_up(put: Put, read: Read, row: str) -> None:
    """A row with text after a closing quote is refused, not read as something else."""
    [request], [reject] = read(put("in.csv", "prompt,id", row, "hi,2"))
    assert (request["custom_id"], reject["line"], reject["raw"]) == ("2", 2, row)


def test_a_quote_within_an_unquoted_cell_is_text(put: Put, read: Read) -> None:
    """Inches and apostrophes need no quoting."""
    requests, _ = read(put("in.csv", "prompt,id", '5" pipe,1', "it's,2", 'a "b" c,3'))
    assert [row["text"] for row in requests] == ['5" pipe', "it's", 'a "b" c']


def test_a_broken_header(put: Put, read: Read) -> None:
    """A header that cannot be read is one reject."""
    requests, [reject] = read(put("in.csv", 'id,"prompt', "1,hi"))
    assert requests == []
    assert (reject["line"], reject["reason"]) == (1, "malformed_csv")


def test_bytes_that_are_not_utf8(put: Put, read: Read) -> None:
    """A row in another encoding is a reject with a readable sample, wherever in it the byte stands; others go on."""
    path = put("in.csv", "id,prompt,note", b"1,caf\xe9,", b"2,hi,caf\xe9", "3,café,")
    [request], rejects = read(path)
    assert (request["custom_id"], request["text"]) == ("3", "café")
    assert [(row["line"], row["reason"], row["raw"]) for row in rejects] == [
        (2, "encoding", "1,caf\ufffd,"),
        (3, "encoding", "2,hi,caf\ufffd"),
    ]


def test_a_header_that_is_not_utf8(put: Put, read: Read) -> None:
    """Column names in another encoding are only names."""
    path = put("in.csv", b"pr\xe9nom,prompt", "ann,hi")
    [request], _ = read(path)
    assert request["text"] == "hi"
    _, [reject] = read(path, prompt_column="text")
    assert "'prompt'" in reject["message"]


def test_nul_bytes(put: Put, read: Read) -> None:
    """A NUL in the prompt or the id costs its row alone."""
    [request], rejects = read(put("in.csv", "id,prompt", b"1,a\0b", b"2\0,hi", "3,hi"))
    assert request["custom_id"] == "3"
    assert [(row["line"], row["reason"]) for row in rejects] == [(2, "invalid_request"), (3, "invalid_id")]


def test_a_cell_over_the_limit(put: Put) -> None:
    """A cell that is larger than a row may be costs its first line."""
    path = put("in.csv", "id,prompt", "1," + "x" * 5000, "2,hi")
    before = csv.field_size_limit(1000)
    try:
        rows = list(read_csv(path, delimiter=None))
    finally:
        csv.field_size_limit(before)
    assert [(row.line, isinstance(row.content, Fault)) for row in rows] == [(2, True), (3, False)]


@pytest.mark.parametrize("ends", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("line", ["x" * 5000, '1,"' + "x" * 5000 + '"', "," * 5000], ids=["text", "in quotes", "commas"])
def test_a_line_over_the_limit_is_read_over(put: Put, monkeypatch: pytest.MonkeyPatch, line: str, ends: bytes) -> None:
    """A line that is longer than a row may be is one fault wherever it stands, and never whole in memory."""
    monkeypatch.setattr("tasks.ingest.reading.delimited.MAX_ROW_BYTES", 1000)
    monkeypatch.setattr("tasks.ingest.reading.delimited._SKIPPED_CHARS", 999)
    for lines, expected in (
        (["id,prompt", line, "2,hi"], {2: True, 3: False}),
        (["id,prompt", "1,hi", line, '2,"two', 'lines"', line, '3,"', line, '4,hi"'], {
            2: False, 3: True, 4: False, 6: True, 7: True, 8: True, 9: False}),
        ([line, "1,hi"], {1: True}),
    ):  # fmt: skip
        path = put("in.csv")
        path.write_bytes(ends.join(one.encode() for one in lines))
        rows = list(read_csv(path, delimiter=None))
        assert {row.line: isinstance(row.content, Fault) for row in rows} == expected
        big = [row.content for row in rows if row.raw.startswith(line[:500])]
        assert {one.reason for one in big if isinstance(one, Fault)} <= {"row_too_large", "malformed_csv"}


def test_a_quote_over_very_many_lines(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quote that is not closed within reason costs its line, and the lines behind it are rows."""
    monkeypatch.setattr("tasks.ingest.reading.delimited._MAX_RECORD_LINES", 50)
    path = put("in.csv", "id,prompt", '1,"open', *(f"{i},hi" for i in range(2, 500)), '500,"', "x", '"')
    rows = list(read_csv(path, delimiter=None))
    assert [row.line for row in rows if isinstance(row.content, Fault)] == [2]
    assert len(rows) == 500
    assert isinstance(rows[0].content, Fault)
    assert rows[0].content.reason == "row_too_large"


def test_given_format_goes_before_the_ending(put: Put, read: Read) -> None:
    """With `format` a file of any name is read as that."""
    assert read(put("a.txt", "id\tprompt", "1\thi, there"), format="tsv")[0][0]["text"] == "hi, there"
    assert read(put("b.csv", '{"prompt": "hi"}'), format="jsonl")[0][0]["text"] == "hi"
    assert read(put("c.txt", "id;prompt", "1;hi"), format="csv")[0][0]["text"] == "hi"


# How a file is written

DIALECTS = {
    "delimiters in quoted names": ['"a,b,c,d";"id";"prompt"', '"x,y";"1";"hi, yo; ho"'],
    "delimiters in unquoted names": ["note (a, b, c, d);id;prompt", "x;1;hi, yo; ho".replace("; ho", " ho")],
    "as a spreadsheet says it": ["sep=;", "a,b;id;prompt", 'x;1;"hi, yo; ho"'],
    "in quotes": ['"sep=|"', "a,b;x|id|prompt", "x|1|hi, yo; ho"],
    "tabs under another name": ["a, b\tid\tprompt", "x\t1\thi, yo; ho"],
    "blanks behind the delimiter": ["id, prompt, note", '1, "hi, yo; ho", "a ""b"" c"'],
    "quotes escaped by a backslash": ["id,prompt,note", '1,"hi, yo; ho","say \\"a, b\\" to C:\\new, \\\\"', '2,plain,"x"'],
    "single quotes": ["id,prompt,note", "1,'hi, yo; ho','it''s'", "2,plain,x"],
    "single quotes in the header": ["'id','prompt'", "'1','hi yo; ho'"],
}


@pytest.mark.parametrize("name", DIALECTS)
def test_how_a_file_is_written_is_seen_from_its_records(put: Put, read: Read, name: str) -> None:
    """The way under which the records fit their header is the one that a file is read by."""
    requests, rejects = read(put("in.csv", *DIALECTS[name]))
    assert rejects == []
    assert requests[0]["custom_id"] == "1"
    assert requests[0]["text"].replace(",", "").replace(";", "") == "hi yo ho"


@pytest.mark.parametrize(
    ("line", "cells"),
    [
        ('1,"say \\"a, b\\"",x', ["1", 'say "a, b"', "x"]),
        ('1,"C:\\new, \\\\",x', ["1", "C:\\new, \\", "x"]),
        ('1,"\\\\\\"a\\\\\\"",x', ["1", '\\"a\\"', "x"]),
        ("1,C:\\new,x", ["1", "C:\\new", "x"]),
    ],
)
def test_backslashes(line: str, cells: list[str]) -> None:
    """Before a quote a backslash escapes, where it does at all; anywhere else it is text."""
    assert list(Dialect(is_escaped=True).records([line])) == [cells]


@pytest.mark.parametrize(
    "lines",
    [
        ["id,prompt", "1,'tis so", "2,'twas so", "3,it's"],
        ["id,prompt", '1,C:\\"x"', "2,a\\", '3,"b\\"'],
        ["id,prompt", "1, padded ", "2,  more"],
    ],
)
def test_the_usual_way_goes_first(put: Put, read: Read, lines: list[str]) -> None:
    """Apostrophes, backslashes and blanks are text in a file whose records fit as they are."""
    requests, rejects = read(put("in.csv", *lines))
    assert rejects == []
    texts = [line.partition(",")[2] for line in lines[1:]]
    assert [row["text"] for row in requests] == [text.strip('"') if text.startswith('"') else text for text in texts]


def test_lines_are_counted_with_the_one_that_says_the_delimiter(put: Put, read: Read) -> None:
    """A row's line is that of the file."""
    requests, _ = read(put("in.csv", "sep=;", "id;prompt", "1;hi", "2;yo"))
    assert [row["line"] for row in requests] == [3, 4]


def test_blank_lines_before_the_header(put: Put, read: Read) -> None:
    """The header is the first line that is not empty."""
    requests, rejects = read(put("in.csv", "", "", "id;prompt", "1;hi, yo"))
    assert [(row["custom_id"], row["text"], row["line"]) for row in requests] == [("1", "hi, yo", 4)]
    assert rejects == []


def test_old_line_ends(put: Put, read: Read) -> None:
    """CR alone ends a line of a table, too."""
    path = put("in.csv")
    path.write_bytes(b"id,prompt\r1,hi\r2,yo\r")
    requests, rejects = read(path)
    assert [(row["custom_id"], row["text"], row["line"]) for row in requests] == [("1", "hi", 2), ("2", "yo", 3)]
    assert rejects == []


def test_text_with_commas_in_a_single_column(put: Put, read: Read) -> None:
    """It is refused with what to do, as the part behind the comma may be anything."""
    [request], [reject] = read(put("in.csv", "prompt", "hello, world", "hi; there | you"))
    assert request["text"] == "hi; there | you"
    assert reject["message"].endswith("belongs in quotes")


def test_a_first_row_that_is_longer_than_what_is_looked_at(put: Put, read: Read) -> None:
    """A cell over many lines, or of any size, does not mislead."""
    long = "\n".join(f"a; b; c {i}" for i in range(20_000))
    requests, rejects = read(put("in.csv", "id,prompt", f'1,"{long}"', "2,x"), tokenizer=ByteTokenizer(1_000_000))
    assert [row["text"] for row in requests] == [long, "x"]
    assert rejects == []
