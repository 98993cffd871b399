"""Every request has an id of its own: the row's, or one made from its place."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.engine.tokenizer import ByteTokenizer

Rows = list[dict[str, Any]]
Chat = Callable[..., str]
Put = Callable[..., Path]
Read = Callable[..., tuple[Rows, Rows]]


def test_the_first_with_an_id_is_the_request(put: Put, chat: Chat, read: Read) -> None:
    """A later row with the same id is a reject that names the file and line of the first."""
    requests, [reject] = read(put("dup.jsonl", chat("a", "hi"), chat("a", "yo"), chat("b", "x")))
    assert [(row["custom_id"], row["text"]) for row in requests] == [("a", "hi"), ("b", "x")]
    assert (reject["line"], reject["custom_id"], reject["reason"]) == (2, "a", "duplicate_id")
    assert "dup.jsonl line 1" in reject["message"]


def test_identical_lines_are_duplicates_too(put: Put, chat: Chat, read: Read) -> None:
    """A line that stands in the file three times is one request and two rejects."""
    requests, rejects = read(put("dup.jsonl", *[chat("a", "hi")] * 3))
    assert [row["line"] for row in requests] == [1]
    assert [(row["line"], row["reason"]) for row in rejects] == [(2, "duplicate_id"), (3, "duplicate_id")]
    assert all("line 1" in row["message"] for row in rejects)


def test_ids_are_unique_in_a_source_not_beyond(put: Put, chat: Chat, read: Read, tmp_path: Path) -> None:
    """The same id in a second file of the source is a duplicate; in another source it is another request."""
    for name in ("one/x.jsonl", "one/y.jsonl", "two/x.jsonl"):
        put(name, chat("a", name))
    requests, [reject] = read(tmp_path / "in")
    assert [row["request_id"] for row in requests] == ["one/a", "two/a"]
    assert (reject["file"], reject["source"]) == ("y.jsonl", "one")
    assert "x.jsonl line 1" in reject["message"]


@pytest.mark.parametrize("first", ["", "x" * 100])
def test_a_rejected_row_does_not_take_its_id(put: Put, chat: Chat, read: Read, first: str) -> None:
    """A row that is refused, be it for its length, leaves its id to a later one that is good."""
    [request], [reject] = read(put("in.jsonl", chat("a", first), chat("a", "hi")), tokenizer=ByteTokenizer(64))
    assert (request["custom_id"], request["line"]) == ("a", 2)
    assert (reject["line"], reject["reason"]) == (1, "prompt_too_long" if first else "empty_prompt")


def test_a_blank_id_is_made_from_the_place(put: Put, chat: Chat, read: Read) -> None:
    """An empty, blank or null id gives way to file and line, the same each time."""
    path = put("in.jsonl", chat("a", "hi"), *(chat(blank, "yo") for blank in ("", "  ", "\n\t", None)))
    requests, rejects = read(path)
    assert [row["custom_id"] for row in requests] == ["a", *(f"in.jsonl:{line}" for line in (2, 3, 4, 5))]
    assert [row["request_id"] for row in requests] == ["in/a", *(f"in/in.jsonl:{line}" for line in (2, 3, 4, 5))]
    assert (read(path), rejects) == ((requests, []), [])


def test_a_missing_id_is_made_from_the_place(put: Put, read: Read, tmp_path: Path) -> None:
    """Rows without an id in two files of a source do not clash."""
    put("s/a.jsonl", {"url": "/v1/completions", "body": {"prompt": "hi"}}, {"prompt": "hi"})
    put("s/b.csv", "prompt", "hi", '"two', 'lines"', "yo")
    requests, rejects = read(tmp_path / "in" / "s")
    assert [row["custom_id"] for row in requests] == ["a.jsonl:1", "a.jsonl:2", "b.csv:2", "b.csv:3", "b.csv:5"]
    assert rejects == []


def test_an_id_is_kept_as_it_is(put: Put, chat: Chat, read: Read) -> None:
    """Slashes, emoji, blanks around it and line breaks belong to the id."""
    ids = ["a/b/../c", "😀 ü", " padded ", "padded", "two\nlines", "a" * 512, "'; drop table", "x:1"]
    requests, rejects = read(put("in.jsonl", *(chat(custom_id, "hi") for custom_id in ids)))
    assert [row["custom_id"] for row in requests] == ids
    assert [row["request_id"] for row in requests] == [f"in/{custom_id}" for custom_id in ids]
    assert rejects == []


def test_a_whole_number_is_an_id(put: Put, chat: Chat, read: Read) -> None:
    """A number stands for its digits; 0 is an id like any other."""
    requests, _ = read(put("in.jsonl", *(chat(number, "hi") for number in (7, 0, -1, 2**63))))
    assert [row["custom_id"] for row in requests] == ["7", "0", "-1", str(2**63)]


def test_what_cannot_be_an_id(put: Put, read: Read) -> None:
    """Any other value, and text that is too long for an id, is a reject, in a batch line and in a plain row."""
    wrong = [True, False, 1.5, [], ["a"], {}, {"$oid": "a"}, "a" * 513, "a\0"]
    lines = [{"url": "/v1/completions", "body": {"prompt": "hi"}, "custom_id": custom_id} for custom_id in wrong]
    plain = [{"prompt": "hi", "id": custom_id} for custom_id in wrong]
    [request], rejects = read(put("in.jsonl", {"prompt": "hi"}, *lines, *plain))
    assert request["line"] == 1
    assert [row["reason"] for row in rejects] == ["invalid_id"] * 2 * len(wrong)


@pytest.mark.parametrize("name", ["custom_id", "id", "request_id"])
def test_where_a_plain_row_has_its_id(put: Put, read: Read, name: str) -> None:
    """A plain row's id stands in any of three columns, in JSON and in CSV, and its reject shows it too."""
    put("s/a.jsonl", {name: "j1", "prompt": "hi"}, {name: "j2", "prompt": ""})
    path = put("s/b.csv", f"{name},prompt", "c1,hi", "c2,")
    requests, rejects = read(path.parent)
    assert [row["custom_id"] for row in requests] == ["j1", "c1"]
    assert [row["custom_id"] for row in rejects] == ["j2", "c2"]


def test_a_blank_id_column_gives_way_to_the_next(put: Put, read: Read) -> None:
    """Of several columns that may hold the id, the first that has one counts."""
    [request], _ = read(put("in.jsonl", {"custom_id": " ", "id": None, "request_id": "r", "prompt": "hi"}))
    assert request["custom_id"] == "r"


def test_an_id_column_of_the_users_choice(put: Put, read: Read) -> None:
    """With `id_column` only that column is the id: blank there, one is made; a row without the column is a reject."""
    rows = ({"ticket": "t1", "id": "x", "prompt": "hi"}, {"ticket": " ", "prompt": "yo"}, {"id": "x", "prompt": "yo"})
    requests, [reject] = read(put("in.jsonl", *rows), id_column="ticket")
    assert [row["custom_id"] for row in requests] == ["t1", "in.jsonl:2"]
    assert (reject["line"], reject["reason"]) == (3, "no_id")
    assert "no field 'ticket'" in reject["message"]


def test_a_given_id_that_looks_made_up(put: Put, read: Read) -> None:
    """An id that equals the place of another row is a duplicate like any other, not an overwrite."""
    requests, [reject] = read(put("in.jsonl", {"id": "in.jsonl:2", "prompt": "a"}, {"prompt": "b"}))
    assert [row["text"] for row in requests] == ["a"]
    assert (reject["line"], reject["reason"]) == (2, "duplicate_id")
