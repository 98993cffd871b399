"""Cases for tests/fuzz/ingest.py: a number to a damaged file and the settings that it is read by, always the same."""

import json
import random
from typing import Any

from tests.fuzz.seeds import SEEDS

_WORDS = (
    *(b'"', b"'", b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\n", b"\r", b"\r\n", b"\t", b" ", b"\0", b"\xff", b"\x85"),
    *(b"\xef\xbb\xbf", b"null", b"true", b"NaN", b"-Infinity", b"1e999", b"-0", b"7.0", b"9" * 400, b"\\ud83d", b"\\u0000"),
    *(b"[" * 3000, b'{"a":' * 900, b'"prompt":', b'"messages":', b'"n":0', b'""', b"\xe2\x80\xa8", b"\xf0\x9f", b"x" * 700),
)
_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        7.0,
        0.5,
        1e308,
        float("nan"),
        float("inf"),
        2**31,
        2**53 + 1,
        2**63,
        10**40,
        -(2**63) - 1,
    ),
    *(
        "",
        " ",
        "\0",
        "\ud83d",
        "x" * 600,
        "[]",
        "[1]",
        "{}",
        "null",
        "user",
        "tool",
        "text",
        "/v1/chat/completions",
        "\u2028",
    ),
    *([], {}, [None], [[]], {"": None}, [{}], {"type": "text"}, {"type": "text", "text": ""}, [["a"]] * 3, {"role": "user"}),
    *({"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}, {"type": "function", "function": {"name": "f"}}),
)
_NAMES = (
    *(
        "messages",
        "prompt",
        "n",
        "seed",
        "stop",
        "max_tokens",
        "temperature",
        "top_p",
        "top_k",
        "tools",
        "logprobs",
        "system",
    ),
    *(
        "custom_id",
        "id",
        "url",
        "body",
        "params",
        "conversations",
        "role",
        "content",
        "type",
        "response_format",
        "logit_bias",
    ),
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
    way = dice.random()
    if way < 0.4 and ".json" in seed.name:
        inner = twisted(inner, dice)
    elif way < 0.9:
        inner = damaged(inner, dice)
    data = seed.pack(inner)
    if dice.random() < (0.5 if data != inner else 0.1):
        data = damaged(data, dice)
    if dice.random() < 0.15:
        options |= dice.choice(_OPTIONS)
    return seed.name, data, options


def twisted(data: bytes, dice: random.Random) -> bytes:
    """Lines of JSON, or a document, with values in the place of others: still JSON, and no longer what was meant."""
    lines = data.split(b"\n")
    for _ in range(dice.choice((1, 2, 5))):
        place = dice.randrange(len(lines))
        try:
            value = json.loads(lines[place])
        except ValueError:
            continue
        lines[place] = json.dumps(_twisted(value, dice), ensure_ascii=dice.random() < 0.5).encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def _twisted(value: Any, dice: random.Random) -> Any:
    """The value with one of those within it another, gone, there twice or under another name."""
    if not isinstance(value, dict | list) or not value or dice.random() < 0.15:
        return dice.choice(_VALUES)
    key = dice.choice(list(value) if isinstance(value, dict) else range(len(value)))
    match dice.randrange(8):
        case 0:
            inner = value.pop(key)
            if isinstance(value, dict) and dice.random() < 0.5:
                value[dice.choice(_NAMES)] = inner
        case 1:
            if isinstance(value, dict):
                value[dice.choice(_NAMES)] = dice.choice(_VALUES)
            else:
                value += value[key:] * dice.choice((1, 9))
        case _:
            value[key] = _twisted(value[key], dice)
    return value


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
