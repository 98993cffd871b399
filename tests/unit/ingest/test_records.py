"""Records within nested documents and rows, with what encloses them."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.core.config import RowConfig
from tasks.core.errors import ConfigError

Rows = list[dict[str, Any]]
Put = Callable[..., Path]
Read = Callable[..., tuple[Rows, Rows]]

ARTICLES = [
    {"title": "A", "paragraphs": [{"context": "c1", "qas": [{"id": 1, "q": "q1"}, {"id": 2, "q": "q2"}]}]},
    {"title": "B", "paragraphs": [{"context": "c2", "qas": []}, {"context": "c3", "qas": [{"id": 3, "q": "q3"}]}]},
]
ASK = "{{ up.up.title }} {{ up.context }} {{ q }}"
ASKED = [("1", 1, "A c1 q1"), ("2", 2, "A c1 q2"), ("3", 3, "B c3 q3")]


def asked(requests: Rows) -> list[tuple[str, int, str]]:
    return [(row["custom_id"], row["line"], row["text"]) for row in requests]


def test_a_nested_document(put: Put, read: Read) -> None:
    """Every list on the way is walked, and a record sees what encloses it; the ids are its own."""
    path = put("in.json", json.dumps({"version": 1, "data": ARTICLES}, indent=1))
    requests, rejects = read(path, record_path="data.paragraphs.qas", prompt_template=ASK)
    assert (asked(requests), rejects) == (ASKED, [])


def test_a_document_that_is_a_list(put: Put, read: Read) -> None:
    """The path begins within the elements of a list."""
    requests, _ = read(put("in.json", ARTICLES), record_path="paragraphs.qas", prompt_template=ASK)
    assert asked(requests) == ASKED


@pytest.mark.parametrize("name", ["in.jsonl", "lines.json"])
def test_nested_lines(put: Put, read: Read, name: str) -> None:
    """In JSON lines the path begins within each line, and the rows are numbered through the file."""
    path = put(name, *ARTICLES)
    requests, _ = read(path, record_path="paragraphs.qas", prompt_template=ASK)
    assert asked(requests) == ASKED


def test_nested_parquet(tmp_path: Path, read: Read) -> None:
    """A table's nested columns are walked alike."""
    pq.write_table(pa.Table.from_pylist(ARTICLES), tmp_path / "in.parquet")
    requests, _ = read(tmp_path / "in.parquet", record_path="paragraphs.qas", prompt_template=ASK)
    assert asked(requests) == ASKED


def test_a_record_is_a_plain_row(put: Put, read: Read) -> None:
    """Without a template its columns are found as in any row, and an id may be the enclosing object's."""
    rows = [{"key": "k1", "chats": [{"prompt": "hi"}]}, {"key": "k2", "chats": [{"prompt": "yo", "max_tokens": 3}]}]
    requests, _ = read(put("in.jsonl", *rows), record_path="chats", id_column="up.key")
    assert [(row["custom_id"], row["text"], row["max_tokens"]) for row in requests] == [("k1", "hi", 512), ("k2", "yo", 3)]


def test_generated_ids_are_the_records(put: Put, read: Read) -> None:
    """A record without an id is named by its file and its number in it."""
    requests, _ = read(put("in.jsonl", {"x": [{"prompt": "a"}, {"prompt": "b"}]}, {"x": [{"prompt": "c"}]}), record_path="x")
    assert [row["custom_id"] for row in requests] == ["in.jsonl:1", "in.jsonl:2", "in.jsonl:3"]


@pytest.mark.parametrize("name", ["in.jsonl", "in.json"])
def test_several_paths(put: Put, read: Read, name: str) -> None:
    """Each path's records come out, numbered on."""
    meeting = {"general": [{"q": "g"}], "specific": [{"q": "s1"}, {"q": "s2"}], "talk": "t"}
    text = json.dumps(meeting if name == "in.jsonl" else [meeting], indent=None if name == "in.jsonl" else 1)
    requests, _ = read(put(name, text), record_path="general, specific", prompt_template="{{ up.talk }} {{ q }}")
    assert [(row["line"], row["text"]) for row in requests] == [(1, "t g"), (2, "t s1"), (3, "t s2")]


def test_two_lists_of_one_document(put: Put, read: Read) -> None:
    """The paths may lead to lists that lie beside each other at the top, also within a compressed file."""
    document = {"train": [{"prompt": "a"}], "test": [{"prompt": "b"}]}
    path = put("in.json.gz")
    path.write_bytes(gzip.compress(json.dumps(document, indent=1).encode()))
    requests, _ = read(path, record_path="test,train")
    assert [(row["line"], row["text"]) for row in requests] == [(1, "b"), (2, "a")]


def test_a_path_that_leads_nowhere_behind_one_that_does(put: Put, read: Read) -> None:
    """Its fault has a number of its own, behind the records that were found."""
    path = put("in.json", json.dumps({"items": [{"prompt": "a"}, {"prompt": "b"}], "meta": {"v": 1}}))
    requests, [reject] = read(path, record_path="items,meta.w")
    assert [row["line"] for row in requests] == [1, 2]
    assert (reject["line"], reject["reason"]) == (3, "no_records")


def test_what_encloses_is_not_what_the_record_has(put: Put, read: Read) -> None:
    """A record's own field named `up` is reached through the row, and the enclosing object's fields are none of it."""
    path = put("in.jsonl", {"max_tokens": 5, "posts": [{"up": 3}]})
    [request], _ = read(path, record_path="posts", prompt_template="{{ row.up }} {{ up.max_tokens }}")
    assert (request["text"], request["max_tokens"]) == ("3 5", 512)


def test_a_field_that_lies_further_up(put: Put, read: Read) -> None:
    """Only the record's own fields stand by themselves; the reject shows where the missing one is."""
    _, [reject] = read(
        put("in.jsonl", {"context": "c", "qas": [{"q": "q1"}]}), record_path="qas", prompt_template="{{ context }}"
    )
    assert reject["message"].endswith("no field 'context'; the row has 'q', and up has 'context', 'qas'")


def test_objects_on_the_way(put: Put, read: Read) -> None:
    """An object is entered as well, encloses what is in it, and may be the record itself."""
    path = put("in.jsonl", {"a": {"b": {"prompt": "hi"}, "c": "x"}})
    [request], _ = read(path, record_path="a.b", prompt_template="{{ prompt }} {{ up.c }} {{ up.up.a.c }}")
    assert request["text"] == "hi x x"


def test_paths_that_lead_nowhere(put: Put, read: Read) -> None:
    """A name that is not there is one reject with the names that are; an empty list and a null are none."""
    rows: tuple[Any, ...] = (
        {"qas": [{"prompt": "a"}]},
        {"qs": 1},
        "{",
        {"qas": []},
        {"qas": None},
        {"qas": ["text"]},
        {"qas": {"prompt": "b"}},
    )
    requests, rejects = read(put("in.jsonl", *rows), record_path="qas")
    assert [(row["line"], row["text"]) for row in requests] == [(1, "a"), (5, "b")]
    assert [(row["line"], row["reason"]) for row in rejects] == [
        (2, "no_records"),
        (3, "malformed_json"),
        (4, "not_an_object"),
    ]
    assert "no field 'qas' (--record-path) among 'qs'" in rejects[0]["message"]
    assert rejects[1]["message"].startswith("line 3: ")


@pytest.mark.parametrize(("name", "content"), [("in.jsonl", {"qas": []}), ("in.json", [{"qas": []}]), ("in.json", [])])
def test_a_file_without_any_record(put: Put, read: Read, name: str, content: Any) -> None:
    """Where nothing is found at all, the file says so in one reject."""
    requests, [reject] = read(put(name, content), record_path="qas")
    assert (requests, reject["reason"], reject["line"]) == ([], "no_records", 0)


def test_a_document_that_breaks_off(put: Put, read: Read) -> None:
    """The records of the elements before the damage are requests, and one reject stands behind them."""
    text = json.dumps({"data": ARTICLES})
    requests, [reject] = read(put("in.json", text[:-30]), record_path="data.paragraphs.qas", prompt_template=ASK)
    assert asked(requests) == ASKED[:2]
    assert (reject["reason"], reject["line"]) == ("malformed_json", 3)


@pytest.mark.parametrize("path", ["", ".", "a..b", "a,,b", "a.", ","])
def test_a_path_that_is_none(path: str) -> None:
    """A path with an empty name is a mistake in the settings."""
    with pytest.raises(ConfigError, match="record_path must be"):
        RowConfig(record_path=path)


def test_a_path_to_one_object(put: Put, read: Read) -> None:
    """Where no list is on the way the record is the one that the path leads to, in a document as in a line."""
    nested = {"title": "T", "inner": {"one": {"prompt": "hi"}}}
    for name in ("in.json", "in.jsonl"):
        [request], rejects = read(put(name, nested), record_path="inner.one")
        assert (request["text"], request["line"], rejects) == ("hi", 1, [])
        requests, [reject] = read(put(name, nested), record_path="inner.two")
        assert (requests, reject["reason"]) == ([], "no_records")
        assert "no field 'two'" in reject["message"]
