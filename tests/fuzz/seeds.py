"""Valid input files of every format and shape of rows, for tests/fuzz/ingest.py to damage."""

import bz2
import gzip
import io
import json
import lzma
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq


@dataclass(frozen=True)
class Seed:
    """A file's name, its content before `pack` wraps it, and the RowConfig that it is read by."""

    name: str
    content: bytes
    options: dict[str, Any] = field(default_factory=dict)
    pack: Callable[[bytes], bytes] = bytes


def _batch(custom_id: str, url: str, **body: Any) -> dict[str, Any]:
    return {"custom_id": custom_id, "method": "POST", "url": f"/v1/{url}", "body": body}


_CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Wie geht's, 日本 👩‍👩‍👧?"}]
_PARTS = [{"role": "user", "content": [{"type": "text", "text": "two"}, {"type": "text", "text": "parts"}]}]
_CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"q": 1}'}}
_TOOL = {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {"q": {"type": "integer"}}}}
_HISTORY = [
    {"role": "user", "content": "look"},
    {"role": "assistant", "content": None, "tool_calls": [_CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "seen"},
    {"role": "user", "content": "and?"},
]
_OPENAI: list[dict[str, Any]] = [
    _batch("a", "chat/completions", model="m", messages=_CHAT, max_tokens=8, temperature=0.5, seed=7, stop=["\n"]),
    _batch("b", "chat/completions", messages=_PARTS, n=2, top_p=0.9, logprobs=True, top_logprobs=2, max_tokens=None),
    _batch("c", "completions", prompt="Once upon", max_tokens=4, stop="x", min_tokens=1),
    _batch("d", "chat/completions", messages=_HISTORY, tools=[{"type": "function", "function": _TOOL}], tool_choice="auto"),
    _batch("e", "responses", input="hi", instructions="Be brief.", max_output_tokens=9),
    _batch("f", "responses", input=[{"role": "user", "content": [{"type": "input_text", "text": "yo"}]}]),
]
_ANTHROPIC: list[dict[str, Any]] = [
    {"custom_id": "a", "params": {"model": "m", "max_tokens": 9, "system": "s", "messages": _CHAT[1:]}},
    {"custom_id": "b", "params": {"max_tokens": 9, "stop_sequences": ["x"], "messages": _PARTS, "top_k": 3}},
]
_SHAREGPT: list[dict[str, Any]] = [
    {"id": "a", "conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "hi"}]},
    {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}, {"from": "human", "value": "c"}]},
]
_PLAIN: list[dict[str, Any]] = [
    {"id": 1, "prompt": "plain", "max_tokens": 5, "label": [1, {"x": None}]},
    {"id": "2", "messages": _CHAT, "system": "over"},
    {"prompt": "ünïcode \u2028 and \\ud83d \t tab", "seed": None, "score": 1.5e10},
]
_NESTED = {"meta": {"v": 1}, "data": [{"title": "T", "items": [{"q": "one"}, {"q": "two"}]}, {"title": "U", "items": []}]}
_QUESTIONS = [{"title": "T", "body": "long text " * 8, "tags": ["x", "y"], "n": 3, "user": {"name": "Ö"}}] * 3
_CELLS = 'id,prompt,max_tokens\n1,"two\nlines, ""quoted""",5\n2,plain ü,\n,"x, y",7\n4,short\n'.encode()


def _lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=i % 2 == 0).encode() + b"\n" for i, row in enumerate(rows))


def _table(kind: str) -> bytes:
    columns = {"id": ["a", "b", None], "prompt": ["x", "日本", "z"], "at": [1, None, 3], "messages": [_CHAT, _CHAT, None]}
    table = pa.table(columns).append_column("when", pa.array([0, 1, 2], pa.timestamp("ns", "Europe/Berlin")))
    out = io.BytesIO()
    if kind == "parquet":
        pq.write_table(table, out, row_group_size=2)
    elif kind == "arrow":
        with pa.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table)
    elif kind == "arrows":
        with pa.ipc.new_stream(out, table.schema) as stream:
            stream.write_table(table)
    else:
        feather.write_feather(table, out)
    return out.getvalue()


def _encoded(encoding: str) -> Callable[[bytes], bytes]:
    return lambda data: data.decode("utf-8", "replace").encode(encoding, "replace")


_ZSTD = pa.Codec("zstd")
_TEMPLATE = "{% for tag in tags %}{{ tag }},{% endfor %}{{ title }}: {{ body[:20] * n }} {{ user.name|upper }}"
_ALL = _lines(_OPENAI + _ANTHROPIC + _SHAREGPT + _PLAIN)

SEEDS = [
    *(Seed("in.jsonl", _lines(rows)) for rows in (_OPENAI, _ANTHROPIC, _SHAREGPT, _PLAIN)),
    Seed("in.jsonl", _ALL, {"truncate_prompt": "middle"}),
    Seed("in.jsonl", _ALL * 40, {"system": "Be kind."}),
    Seed("in.jsonl", _lines(_QUESTIONS), {"prompt_template": _TEMPLATE}),
    Seed("in.jsonl", _lines(_QUESTIONS), {"prompt_column": "body", "id_column": "user.name"}),
    Seed("in.jsonl", _lines([_NESTED] * 3), {"record_path": "data.items", "prompt_template": "{{ up.title }}: {{ q }}"}),
    Seed("in.json", json.dumps(_OPENAI + _PLAIN, indent=1).encode()),
    Seed("in.json", json.dumps({"meta": {"n": [1]}, "rows": _PLAIN}).encode()),
    Seed("in.json", json.dumps(_NESTED).encode(), {"record_path": "data.items,meta", "prompt_column": "q"}),
    Seed("in.json", _lines(_SHAREGPT) + json.dumps(_PLAIN[0], indent=2).encode()),
    Seed("in.csv", _CELLS),
    Seed("in.csv", b"sep=;\r\n" + _CELLS.replace(b",", b";").replace(b"\n", b"\r\n")),
    Seed("in.tsv", _CELLS.replace(b",", b"\t"), {"prompt_template": "{{ id }} {{ prompt }}"}),
    Seed("in.csv", _CELLS.replace(b'""', b'\\"')),
    Seed("in.txt", "one line\n\n  \nzwei Zeilen ü\r\n".encode()),
    Seed("in.md", "# A document\n\nwith text ü\n".encode(), {"format": "document"}),
    *(Seed(f"in.{kind}", _table(kind)) for kind in ("parquet", "arrow", "arrows", "feather")),
    Seed("in.parquet", _table("parquet"), {"record_path": "messages", "prompt_column": "content"}),
    Seed("in.jsonl.gz", _ALL, pack=gzip.compress),
    Seed("in.jsonl.gz", _ALL, pack=lambda data: gzip.compress(data[:700]) + gzip.compress(data[700:])),
    Seed("in.jsonl.bz2", _ALL, pack=bz2.compress),
    Seed("in.csv.xz", _CELLS, pack=lzma.compress),
    Seed("in.json.zst", json.dumps(_PLAIN).encode(), pack=lambda data: bytes(_ZSTD.compress(data))),
    Seed("in.jsonl", _lines(_PLAIN), pack=_encoded("utf-16")),
    Seed("in.csv", _CELLS, pack=_encoded("utf-16-le")),
    Seed("in.csv", _CELLS, {"encoding": "cp1252"}, _encoded("cp1252")),
    Seed("in.jsonl", _ALL, {"encoding": "shift_jis"}, _encoded("shift_jis")),
]
