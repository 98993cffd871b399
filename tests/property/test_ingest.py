"""Whatever bytes a file holds, every row of it ends in exactly one of the two tables, and text comes back as it was."""

import csv
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.core.config import RowConfig, SamplingDefaults
from tasks.core.dataset import Dataset
from tasks.engine.tokenizer import ByteTokenizer
from tasks.ingest.finding.sources import digest_file, discover
from tasks.ingest.ingest import ingest
from tasks.ingest.shapes.validate import Validator
from tasks.storage.layout import Layout
from tasks.storage.parquet import read_rows
from tasks.storage.transcode import encoding_of

Rows = list[dict[str, Any]]

FIELDS = (
    "custom_id",
    "id",
    "url",
    "body",
    "method",
    "prompt",
    "messages",
    "system",
    "max_tokens",
    "n",
    "stop",
    "tools",
    "logprobs",
    "params",
    "conversations",
)
LATER = (
    "tool_choice",
    "output_format",
    "text",
    "include",
    "stop_sequences",
    "logit_bias",
    "stop_token_ids",
    "bad_words",
    "response_format",
    "structured_outputs",
    "top_logprobs",
)
NAMES = st.sampled_from(("role", "content", "type", "x", "from", "value", "input", "id", "name", "arguments", *FIELDS))
TEXTS = st.text() | st.sampled_from(
    [
        "",
        "a",
        "b",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "text",
        "tool_use",
        "human",
        "user",
        "gpt",
        "[1]",
        "[]",
        "POST",
        "\ud83d",
        "\0",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)
KINDS = st.sampled_from(
    ["text", "tool_use", "tool_result", "function", "function_call", "function_call_output", "json_schema"]
)
PARTS = st.fixed_dictionaries(
    {"type": KINDS}, optional=dict.fromkeys(("text", "id", "name", "input", "content", "call_id"), VALUES)
)
TURNS = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "system", "assistant", "tool"]),
        "content": TEXTS | VALUES | st.lists(PARTS, max_size=3),
    }
)
SPOKEN = st.fixed_dictionaries({"from": st.sampled_from(["human", "gpt", "function_call"]), "value": TEXTS | VALUES})
ASKED = {"messages": st.lists(TURNS, max_size=3), "prompt": TEXTS, "input": st.lists(TURNS | PARTS, max_size=3) | TEXTS}
BODIES = st.fixed_dictionaries(
    {}, optional=ASKED | {"n": VALUES, "tools": st.lists(PARTS, max_size=2), "output_format": PARTS}
)
ROWS = st.dictionaries(st.sampled_from((*FIELDS, *LATER)), VALUES, max_size=5)
IDS = {"custom_id": st.sampled_from(["a", "b", " "]) | VALUES}
URLS = st.sampled_from(["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"])
ROWS |= st.fixed_dictionaries({"url": URLS | TEXTS, "body": BODIES}, optional=IDS)
ROWS |= st.fixed_dictionaries({"params": BODIES}, optional=IDS)
ROWS |= st.fixed_dictionaries({"conversations": st.lists(SPOKEN, max_size=3)}, optional=IDS)
JSON_LINES = ROWS.map(lambda row: json.dumps(row).encode())
PLAIN_LINES = st.builds(lambda i, text: json.dumps({"id": i, "prompt": text}).encode(), st.integers(0, 3), st.text())
LINES = st.lists(
    PLAIN_LINES
    | JSON_LINES
    | st.binary(max_size=40).map(lambda data: data.replace(b"\n", b"\r"))
    | st.sampled_from([b"", b" \t", b"\r", b"{}", b"[]", b"null", b'{"prompt": NaN}', b"\xef\xbb\xbf", b"\0\0"]),
    max_size=12,
)
CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(str.strip)


pytestmark = pytest.mark.usefixtures("hasty")


def ingested(path: Path, content: bytes, **options: Any) -> tuple[Dataset, Rows, Rows]:
    """Both tables of a file with this content; options are fields of RowConfig."""
    path.write_bytes(content)
    layout = Layout(path.parent / "data", path.parent / "checkpoints")
    validator = Validator(RowConfig(**options), SamplingDefaults(), frozenset(["smol"]), "smol")
    files = [(file, digest_file(file)) for file in discover([path], None)]
    rules: dict[str, Any] = {"validator_of": lambda _: validator, "tokenizer": ByteTokenizer(512)}
    dataset = ingest(files, layout=layout, tokens="bytes", dataset_id="d", ds="2026-01-02", **rules)
    tables = [[Path(part) for part in parts] for parts in (dataset.request_parts, dataset.reject_parts)]
    return dataset, list(read_rows(tables[0])), list(read_rows(tables[1]))


@settings(deadline=None, max_examples=100)
@given(LINES, st.sampled_from([b"\n", b"\r\n"]), st.booleans())
def test_every_line_is_in_exactly_one_table(lines: list[bytes], line_end: bytes, is_ended: bool) -> None:
    """For any lines: no exception, and each that is not blank is a request or a reject, by its number, once."""
    content = line_end.join(lines) + (line_end if is_ended else b"")
    with tempfile.TemporaryDirectory() as folder:
        dataset, requests, rejects = ingested(Path(folder) / "in.jsonl", content)
    assert dataset.rows == len(requests) + len(rejects)
    if encoding_of(content, None):  # bytes that look like UTF-16 are read as that, and have no places in the file
        return
    physical = content.split(b"\n")
    expected = [i for i, line in enumerate(physical, start=1) if line.removeprefix(b"\xef\xbb\xbf").strip()]
    assert sorted(row["line"] for row in requests + rejects) == expected
    assert len({row["request_id"] for row in requests}) == len(requests)
    for reject in rejects:
        assert content[reject["byte_offset"] :].split(b"\n")[0] == physical[reject["line"] - 1]
    for request in requests:
        assert request["text"].strip()
        assert request["prompt_tokens"] + request["max_tokens"] <= 512


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=8), st.sampled_from(",;\t|"), st.sampled_from(["\n", "\r\n"]))
def test_cells_come_back_as_they_were(rows: list[tuple[str, str]], delimiter: str, line_end: str) -> None:
    """Any text that a CSV writer puts into cells is the request's text, to the last character."""
    table = io.StringIO(newline="")
    writer = csv.writer(table, delimiter=delimiter, lineterminator=line_end, quoting=csv.QUOTE_ALL)
    writer.writerows([("id", "prompt"), *((f"{i}", prompt) for i, (_, prompt) in enumerate(rows))])
    with tempfile.TemporaryDirectory() as folder:
        _, requests, rejects = ingested(Path(folder) / "in.csv", table.getvalue().encode())
    prompts = {f"{i}": prompt for i, (_, prompt) in enumerate(rows)}
    too_long = {row["custom_id"] for row in rejects}
    assert {row["reason"] for row in rejects} <= {"prompt_too_long"}
    assert {row["custom_id"]: row["text"] for row in requests} == {i: p for i, p in prompts.items() if i not in too_long}


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=120), st.sampled_from([b"id,prompt\n", b"prompt\n", b""]))
def test_any_bytes_are_read_as_a_table(content: bytes, header: bytes) -> None:
    """For any bytes in a CSV file: no exception, every row in one table, no line twice, and every line with text seen."""
    with tempfile.TemporaryDirectory() as folder:
        dataset, requests, rejects = ingested(Path(folder) / "in.csv", header + content)
    lines = [row["line"] for row in requests + rejects]
    assert dataset.rows == len(lines) == len(set(lines))


JSON_PIECES = st.lists(
    st.sampled_from(
        [b"[", b"]", b"{", b"}", b'"', b"\\", b",", b":", b" ", b"\n", b"1", b"null", b'"prompt":"a"', b"\xef\xbb\xbf"]
    )
    | JSON_LINES
    | st.binary(max_size=4),
    max_size=14,
).map(b"".join)


@settings(deadline=None, max_examples=200)
@given(JSON_PIECES, st.sampled_from(["in.json", "in.jsonl", "in.txt", "in.csv", "in.parquet", "in.arrow", "in.json.gz"]))
def test_any_bytes_are_read_as_anything(content: bytes, name: str) -> None:
    """For any bytes under any name: no exception, and no row in both tables or twice in one."""
    with tempfile.TemporaryDirectory() as folder:
        dataset, requests, rejects = ingested(Path(folder) / name, content)
    lines = [row["line"] for row in requests + rejects]
    assert dataset.rows == len(lines) == len(set(lines))


@settings(deadline=None, max_examples=60)
@given(st.lists(ROWS, max_size=6), st.sampled_from([None, 1, 3]))
def test_elements_of_a_document_are_the_lines_of_a_file(rows: list[dict[str, Any]], indent: int | None) -> None:
    """The same rows give the same requests and rejects, as lines or as an array, however it is laid out."""
    with tempfile.TemporaryDirectory() as folder:
        _, *as_lines = ingested(Path(folder) / "in.jsonl", b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    with tempfile.TemporaryDirectory() as folder:
        _, *as_array = ingested(Path(folder) / "in.json", json.dumps(rows, indent=indent).encode())
    if rows:
        lines, elements = (
            [[(row["line"], row["custom_id"]) for row in table] for table in both] for both in (as_lines, as_array)
        )
        assert [[line for line, _ in table] for table in lines] == [[line for line, _ in table] for table in elements]


NESTED = st.recursive(
    st.none() | TEXTS | st.integers(0, 9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abq"), inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.lists(st.dictionaries(st.sampled_from("abq"), NESTED, min_size=1, max_size=3), min_size=1, max_size=4)
PATHS = st.sampled_from(["a", "a.b", "b.a", "a,b", "a.b,a", "b"])
ASKING = st.sampled_from(
    [{"prompt_column": "q"}, {"prompt_template": "{{ row }}"}, {"prompt_template": "{{ up.a }} {{ q }}"}]
)


@settings(deadline=None, max_examples=150)
@given(OBJECTS, PATHS, ASKING, st.sampled_from([None, 1]))
def test_records_of_a_document_are_those_of_its_lines(
    objects: list[dict[str, Any]], path: str, asking: dict[str, str], indent: int | None
) -> None:
    """A path leads to the same records in lines and in an array of the same objects, and each is in one table."""
    found = []
    for name, content in (
        ("in.jsonl", "".join(json.dumps(one) + "\n" for one in objects)),
        ("in.json", json.dumps(objects)),
    ):
        content = json.dumps(objects, indent=indent) if name == "in.json" else content
        with tempfile.TemporaryDirectory() as folder:
            dataset, requests, rejects = ingested(Path(folder) / name, content.encode(), record_path=path, **asking)
        assert dataset.rows == len({row["line"] for row in requests + rejects}) == len(requests) + len(rejects)
        found.append((sorted(row["text"] for row in requests), sorted(row["reason"] for row in rejects)))
    if "," not in path:  # of several paths each goes through a document by itself, and a file of lines line by line
        assert found[0] == found[1]
