"""Text in other encodings: decoded where it is known, and never by a guess; what is no text costs its row alone."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.core.config import RowConfig
from tasks.core.errors import ConfigError

Rows = list[dict[str, Any]]
Put = Callable[..., Path]
Read = Callable[..., tuple[Rows, Rows]]
PROMPT = "naïve 日本 🌶 a\u2028b"
FILES = {
    "in.jsonl": json.dumps({"prompt": PROMPT}, ensure_ascii=False) + "\n",
    "in.json": json.dumps([{"prompt": PROMPT}], ensure_ascii=False, indent=1),
    "pretty.json": json.dumps({"prompt": PROMPT}, ensure_ascii=False, indent=1),
    "lines.json": (json.dumps({"prompt": PROMPT}, ensure_ascii=False) + "\n") * 2,
    "in.csv": f'id;prompt\n1;"{PROMPT}"\n',
    "in.tsv": f"id\tprompt\n1\t{PROMPT}\n",
    "in.txt": f"{PROMPT}\r\n",
}
WIDE = ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]


@pytest.mark.parametrize("encoding", WIDE)
@pytest.mark.parametrize("name", FILES)
def test_wide_files_of_every_format(put: Put, read: Read, encoding: str, name: str) -> None:
    """UTF-16 and UTF-32 are read in every text format, compressed too, as long as they begin with Latin letters."""
    data = FILES[name].replace(PROMPT, f"ab {PROMPT}").encode(encoding)
    for path, content in ((put(name), data), (put(f"{name}.gz"), gzip.compress(data))):
        path.write_bytes(content)
        requests, rejects = read(path)
        assert {row["text"] for row in requests} == {f"ab {PROMPT}"}
        assert rejects == []


@pytest.mark.parametrize("name", FILES)
def test_a_given_encoding(put: Put, read: Read, name: str) -> None:
    """`encoding` decodes files of every text format; without it their rows are rejects that name it."""
    text = "Grüße aus Köln, wo man für fünf Euro schöne Brötchen kaufen kann"
    path = put(name)
    path.write_bytes(FILES[name].replace(PROMPT, text).encode("cp1252"))
    requests, rejects = read(path, encoding="cp1252")
    assert {row["text"] for row in requests} == {text}
    assert rejects == []
    requests, rejects = read(path)
    assert requests == []
    assert {row["reason"] for row in rejects} == {"encoding"}
    assert "--encoding cp125" in rejects[0]["message"]


@pytest.mark.parametrize("written", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("name", FILES)
def test_a_wide_encoding_without_its_mark(put: Put, read: Read, written: str, name: str) -> None:
    """`utf-16` and `utf-32` are right for either order of bytes, told by the Latin letters at the beginning."""
    path = put(name)
    path.write_bytes(FILES[name].replace(PROMPT, f"ab {PROMPT}").encode(written))
    requests, rejects = read(path, encoding=written.rpartition("-")[0])
    assert ({row["text"] for row in requests}, rejects) == ({f"ab {PROMPT}"}, [])


def test_a_wide_encoding_without_mark_or_latin_letters(put: Put, read: Read) -> None:
    """Then the order of bytes is the usual one; a file in another encoding costs its rows, not the run."""
    path = put("in.txt")
    path.write_bytes("日本語です\n中文\n".encode("utf-16-le"))
    assert [row["text"] for row in read(path, encoding="utf-16")[0]] == ["日本語です", "中文"]
    requests, rejects = read(put("in.jsonl", {"prompt": "hi"}), encoding="utf-32")
    assert (requests, {row["reason"] for row in rejects}) == ([], {"encoding"})


def test_rows_that_do_not_decode(put: Put, read: Read) -> None:
    """Bytes that the given encoding does not know cost their row, which has no place in bytes; the others are read."""
    path = put("in.jsonl", b'{"prompt": "caf\xe9"}', b'{"prompt": "\x81"}', b'{"prompt": "ok"}')
    requests, [reject] = read(path, encoding="cp1252")
    assert [row["text"] for row in requests] == ["café", "ok"]
    assert (reject["line"], reject["reason"], reject["byte_offset"]) == (2, "encoding", None)
    assert "not valid cp1252" in reject["message"]


def test_one_bad_byte_in_a_long_file(put: Put, read: Read) -> None:
    """The one row that is not UTF-8 is a reject, wherever it stands; all others are read as they are."""
    lines = [f'{{"prompt": "née {i}"}}'.encode() for i in range(3000)]
    lines[2000] = b'{"prompt": "n\xe9e"}'
    requests, [reject] = read(put("in.jsonl", *lines))
    assert len(requests) == 2999
    assert (reject["line"], reject["reason"]) == (2001, "encoding")
    assert reject["message"].startswith("not valid UTF-8")


@pytest.mark.parametrize("name", ["klingon", "base64", "rot13", "", "a\0b", "undefined", "idna", "punycode"])
def test_an_encoding_that_is_none(name: str) -> None:
    """A name that no text can be decoded by stops before anything is read, and names some that can."""
    with pytest.raises(ConfigError, match=r"encoding must be .*cp1252"):
        RowConfig(encoding=name)
    assert RowConfig(encoding="Shift-JIS").encoding == "Shift-JIS"
