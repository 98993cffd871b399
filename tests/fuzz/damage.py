"""Cases for tests/fuzz/ingest.py: a number to a damaged file and the settings that it is read by, always the same."""

import random
from typing import Any

from tests.fuzz.seeds import SEEDS

_WORDS = (
    *(b'"', b"'", b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\n", b"\r", b"\r\n", b"\t", b" ", b"\0", b"\xff", b"\x85"),
    *(b"\xef\xbb\xbf", b"null", b"true", b"NaN", b"-Infinity", b"1e999", b"-0", b"7.0", b"9" * 400, b"\\ud83d", b"\\u0000"),
    *(b"[" * 3000, b'{"a":' * 900, b'"prompt":', b'"messages":', b'"n":0', b'""', b"\xe2\x80\xa8", b"\xf0\x9f", b"x" * 700),
)
_ENCODINGS = ("utf-16", "utf-16-be", "utf-32", "utf-8-sig", "cp1252", "shift_jis", "utf-7")
_OPTIONS: tuple[dict[str, Any], ...] = (
    *({"format": name} for name in ("jsonl", "json", "csv", "tsv", "txt", "document", "parquet", "arrow")),
    *({"truncate_prompt": name} for name in ("head", "tail", "middle")),
    *({"encoding": name} for name in ("utf-8", "utf-16", "utf-32", "latin-1", "gb18030", "utf-7", "iso2022_jp", "idna")),
    *({"record_path": name} for name in ("messages", "body.messages", "data", "rows", "a,b", "conversations,params")),
    *({"prompt_template": text} for text in ("{{ prompt }}", "{{ row }}", "{{ row|tojson|length }}", "{{ x.y[0] }}")),
    *({"id_column": name} for name in ("id", "body.n", "prompt")),
    *({"prompt_column": name} for name in ("messages", "body", "id", "")),
    *({"system": text} for text in ("\0", " ", "", "\udcff")),
    {"messages_column": "prompt"},
)


def case(number: int) -> tuple[str, bytes, dict[str, Any]]:
    """A file's name and bytes, and how it is to be read."""
    dice = random.Random(number)
    seed = dice.choice(SEEDS)
    inner, options = seed.content, dict(seed.options)
    if dice.random() < 0.8:
        inner = damaged(inner, dice)
    data = seed.pack(inner)
    if dice.random() < (0.5 if data != inner else 0.1):
        data = damaged(data, dice)
    if dice.random() < 0.15:
        options |= dice.choice(_OPTIONS)
    return seed.name, data, options


def damaged(data: bytes, dice: random.Random) -> bytes:
    """The bytes after a few changes of all kinds."""
    for _ in range(dice.choice((1, 1, 1, 2, 3, 6, 12))):
        at, end = sorted((dice.randint(0, len(data)), dice.randint(0, len(data))))
        short = min(end, at + dice.choice((1, 1, 2, 4, 16, 64)))
        match dice.randrange(9):
            case 0 if at < len(data):
                data = data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]
            case 1:
                data = data[:at] + dice.choice(_WORDS) + data[at:]
            case 2:
                data = data[:at] + data[short:]
            case 3:
                data = data[:at] + data[at:end][:2000] * dice.choice((2, 3)) + data[end:]
            case 4:
                other = dice.choice(SEEDS).content
                there = dice.randrange(len(other))
                behind = end if dice.random() < 0.3 else at
                data = data[:at] + other[there : there + dice.choice((8, 80, 800))] + data[behind:]
            case 5 if dice.random() < 0.5:
                data = data[:at]
            case 6 if dice.random() < 0.2:
                data = data.decode("utf-8", "replace").encode(dice.choice(_ENCODINGS), "replace")
            case 7:
                data = data[:at] + dice.choice(_WORDS) + data[short:]
            case _:
                data = data[:at] + dice.randbytes(dice.choice((1, 2, 8))) + data[short:]
    return data[:300_000]
