"""The fast lane against the rules: whatever it says of a line is what validate.py says of it."""

import json
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tasks.core.config import RowConfig, SamplingDefaults
from tasks.core.request import Request
from tasks.engine.tokenizer import ByteTokenizer
from tasks.ingest.fast import FastLane
from tasks.ingest.finding.sources import SourceFile
from tasks.ingest.reading.jsonl import row_of
from tasks.ingest.shapes.validate import Validator

FILE = SourceFile("s", Path("x.jsonl"), "x.jsonl")
TEXTS = st.sampled_from(["hi", "", " ", "\n", "é\u2028", "\0", "user", "[1]", "x" * 600]) | st.text(max_size=5)
NUMBERS = st.sampled_from(
    [0, 1, 2, 64, -1, 0.0, 0.5, 1.0, 2.5, -0.0, 1e400, 2**63, 2**64, 10**40, -(10**40), True, None, "1", float("nan")]
)
ROLES = st.sampled_from(["user", "user", "system", "assistant", "tool", "developer", "robot"])
TURNS = st.fixed_dictionaries({"role": ROLES, "content": TEXTS}, optional={"name": TEXTS, "tool_calls": st.just([])})
MESSAGES = st.lists(TURNS, max_size=4) | TEXTS | st.none()
PARAMETERS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "n", "min_tokens"), NUMBERS),
    **dict.fromkeys(("presence_penalty", "repetition_penalty", "ignore_eos", "max_completion_tokens"), NUMBERS),
    "stop": TEXTS | st.lists(TEXTS, max_size=2) | st.none(),
    "stop_token_ids": st.lists(st.integers(-1, 300), max_size=2) | st.none(),
    "logprobs": st.booleans() | st.none(),
    "tools": st.sampled_from([None, [], [{}], "x"]),
    "response_format": st.sampled_from([None, {"type": "text"}, {"type": "json_object"}]),
}
IDS = st.sampled_from(["a", "", " ", None, 7, 7.0, 2**63, 2**64, -(10**40), True, "b" * 513, "\0", ["x"]])
MODEL = st.sampled_from(["smol", "SMOL", "other", None, 1])
FEW = st.dictionaries(st.sampled_from(sorted(PARAMETERS)), st.none()).flatmap(
    lambda names: st.fixed_dictionaries({name: PARAMETERS[name] for name in names})
)
BODIES = st.builds(
    lambda given, more: given | more,
    st.fixed_dictionaries({"messages": MESSAGES}, optional={"model": MODEL, "user": TEXTS, "stream": st.booleans()}),
    FEW,
)
URLS = st.sampled_from(["/v1/chat/completions", "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "x", None])
BATCH = st.fixed_dictionaries(
    {"custom_id": IDS, "url": URLS, "body": BODIES}, optional={"method": st.sampled_from(["POST", "GET", None])}
)
OWN = {"prompt": TEXTS | st.none() | NUMBERS, "messages": MESSAGES, "system": TEXTS | st.none(), "note": NUMBERS | TEXTS}
PLAIN = st.builds(
    lambda given, more: given | more,
    st.fixed_dictionaries({}, optional={**OWN, "id": IDS, "custom_id": IDS, "request_id": IDS, "url": URLS, "body": BODIES}),
    FEW,
)
LINES = (BATCH | PLAIN).map(lambda row: json.dumps(row).encode()) | st.sampled_from(
    [b'{"prompt":"a","prompt":"b"}', b'{"prompt":"a","x":"\xff"}', b'{"prompt":"\\ud83d"}', b'{"prompt":"a","x":01}', b"{}"]
)
RULES = [
    RowConfig(),
    RowConfig(system="Be brief."),
    RowConfig(prompt_column="note", id_column="id"),
    RowConfig(prompt_column="system"),
    RowConfig(messages_column="prompt", prompt_column="messages"),
]


@settings(max_examples=400, deadline=None)
@given(st.lists(LINES, min_size=1, max_size=6), st.sampled_from(RULES), st.sampled_from([None, frozenset(["smol"])]))
@example([b'{"id": %d, "prompt": "hi"}' % (10**40)], RULES[0], None)
@example([b'{"id": 1, "prompt": "hi", "max_tokens": %d}' % (10**40)], RULES[0], None)
def test_the_lane_says_what_the_rules_say(lines: list[bytes], rules: RowConfig, served: frozenset[str] | None) -> None:
    """For any line: nothing, or exactly the request that the rules make of it, with its prompt."""
    tokenizer = ByteTokenizer()
    validator = Validator(rules, SamplingDefaults(max_tokens=9, temperature=0.5), served, "smol")
    known = FastLane(validator, tokenizer).drafts(lines, 1, [0] * len(lines), "x.jsonl")
    for number, (line, said) in enumerate(zip(lines, known, strict=True), 1):
        if said is None:
            continue
        row = row_of(line, number, 0)
        assert row is not None
        request = validator.request(FILE, row)
        assert isinstance(request, Request)
        fields: dict[str, Any] = {name: getattr(said, name) for name in said.__struct_fields__}
        for name in ("line", "custom_id", "messages", "tools", "text", "sampling", "n", "requested_model"):
            assert fields[name] == getattr(request, name), name
        assert said.prompt == tokenizer.render(json.loads(request.messages or ""))
        assert said.shown_id == validator.shown_id(row)


def test_the_lane_takes_what_most_files_are_full_of() -> None:
    """The shapes that it is for do not fall back to the slow way."""
    chat = {"model": "m", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], "seed": 1}
    batch = json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": chat}).encode()
    plain = json.dumps({"id": 1, "prompt": "hi", "label": [1, {"x": None}]}).encode()
    validator = Validator(RowConfig(), SamplingDefaults(), None, "m")
    for line in (batch, plain):
        assert None not in FastLane(validator, ByteTokenizer()).drafts([line + b"\n"] * 3, 1, [0, 1, 2], "x")
