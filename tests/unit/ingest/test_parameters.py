"""Sampling parameters: honoured, ignored where they change no answer, and otherwise refused by name."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.core.config import SamplingDefaults
from tasks.core.request import SamplingParams, StructuredOutputs

Rows = list[dict[str, Any]]
Chat = Callable[..., str]
Put = Callable[..., Path]
Read = Callable[..., tuple[Rows, Rows]]

REFUSED: list[tuple[str, Any]] = [
    ("n", 0),
    ("n", 129),
    ("n", 3_000_000_000),
    ("n", True),
    ("n", 1.5),
    ("temperature", -1),
    ("temperature", 2.1),
    ("temperature", math.nan),
    ("temperature", math.inf),
    ("temperature", "0.5"),
    ("temperature", True),
    ("max_tokens", 0),
    ("max_tokens", -5),
    ("max_tokens", "64"),
    ("max_tokens", 64.5),
    ("max_tokens", math.nan),
    ("max_tokens", [64]),
    ("max_completion_tokens", 0),
    ("min_tokens", -1),
    ("top_p", 0),
    ("top_p", 1.01),
    ("top_p", -math.inf),
    ("top_k", -2),
    ("top_k", 3_000_000_000),
    ("top_k", 0.5),
    ("min_p", 1.5),
    ("seed", 2**63),
    ("seed", 2**70),
    ("seed", "7"),
    ("seed", 1.5),
    ("presence_penalty", 3),
    ("frequency_penalty", -2.5),
    ("repetition_penalty", 0),
    ("stop", ""),
    ("stop", ["a", ""]),
    ("stop", [["a"]]),
    ("stop", 5),
    ("stop", "\0"),
    ("stop_token_ids", 5),
    ("stop_token_ids", [-1]),
    ("stop_token_ids", ["5"]),
    ("stop_token_ids", [1.5]),
    ("stop_token_ids", [True]),
    ("stop_token_ids", list(range(129))),
    ("ignore_eos", "yes"),
    ("ignore_eos", 1),
    ("bad_words", "no"),
    ("bad_words", [""]),
    ("bad_words", ["a\0"]),
    ("bad_words", ["no"] * 129),
    ("logit_bias", {"5": 100.5}),
    ("logit_bias", {"5": "1"}),
    ("logit_bias", {"5": math.nan}),
    ("logit_bias", {"-5": 1}),
    ("logit_bias", {"05": 1}),
    ("logit_bias", {"²": 1}),
    ("logit_bias", {"": 1}),
    ("logit_bias", {"yes": 1}),
    ("logit_bias", {"9" * 40: 1}),
    ("logit_bias", {str(i): 1 for i in range(1025)}),
    ("logit_bias", [[5, 1]]),
    ("logprobs", 5),
    ("logprobs", "true"),
    ("top_logprobs", 3),
    ("top_logprobs", 21),
    ("top_logprobs", -1),
    ("top_logprobs", True),
]


def test_silly_values_are_refused(put: Put, chat: Chat, read: Read) -> None:
    """A value out of range or of the wrong type costs its row, with the parameter's name, in both kinds of rows."""
    lines = [chat(i, "hi", **{name: value}) for i, (name, value) in enumerate(REFUSED)]
    plain = [{"id": f"plain {i}", "prompt": "hi", name: value} for i, (name, value) in enumerate(REFUSED)]
    [request], rejects = read(put("in.jsonl", *lines, *plain, chat("ok", "hi")))
    assert request["custom_id"] == "ok"
    assert {row["reason"] for row in rejects} == {"invalid_request"}
    assert [re.split(r"[.:]", row["message"])[0] for row in rejects] == [name for name, _ in REFUSED] * 2


def test_more_tokens_wanted_than_allowed(put: Put, chat: Chat, read: Read) -> None:
    """A minimum above the maximum, be that the run's default, names both."""
    lines = (chat("a", "hi", min_tokens=9, max_tokens=8), chat("b", "hi", min_tokens=600))
    _, rejects = read(put("in.jsonl", *lines))
    assert [row["message"] for row in rejects] == [
        "min_tokens 9 is more than max_tokens 8",
        "min_tokens 600 is more than max_tokens 512",
    ]


NOT_HONOURED: list[tuple[str, Any]] = [
    ("prompt_logprobs", 1),
    ("best_of", 4),
    ("echo", True),
    ("suffix", "end"),
    ("max_token", 64),
    ("Temperature", 1),
    ("max_tokens ", 64),
    ("guided_whitespace_pattern", " "),
    ("audio", {"voice": "x"}),
    ("n_predict", 0.5),
    ("x" * 10_000, 1),
]


def test_what_is_not_honoured_is_refused(put: Put, chat: Chat, read: Read) -> None:
    """An unsupported parameter or a typo in a batch line is a reject that names it."""
    lines = [chat(i, "hi", **{name: value}) for i, (name, value) in enumerate(NOT_HONOURED)]
    [request], rejects = read(put("in.jsonl", *lines, chat("ok", "hi")))
    assert request["custom_id"] == "ok"
    expected = [f"the parameter {name!r} is not supported"[:499] for name, _ in NOT_HONOURED]
    assert [row["message"][: len(message)] for row, message in zip(rejects, expected, strict=True)] == expected


NEUTRAL: list[tuple[str, Any]] = [
    ("tools", []),
    ("tools", None),
    ("tool_choice", "none"),
    ("response_format", {"type": "text"}),
    ("response_format", None),
    ("structured_outputs", None),
    ("logprobs", False),
    ("top_logprobs", 0),
    ("top_logprobs", None),
    ("logit_bias", {}),
    ("stop_token_ids", []),
    ("bad_words", []),
    ("anything", None),
    ("user", "ann"),
    ("metadata", {"team": "a", "deep": [[1]]}),
    ("stream", True),
    ("stream_options", {"include_usage": True}),
    ("store", True),
    ("service_tier", "flex"),
]


def test_what_changes_no_answer_is_accepted(put: Put, chat: Chat, read: Read) -> None:
    """A parameter at its neutral value, and one that is not about the answer, are passed over."""
    lines = [chat(i, "hi", **{name: value}) for i, (name, value) in enumerate(NEUTRAL)]
    requests, rejects = read(put("in.jsonl", *lines))
    assert [row["sampling"] for row in requests] == ['{"max_tokens":512}'] * len(NEUTRAL)
    assert rejects == []


def test_a_plain_row_cannot_ask_for_it_either(put: Put, read: Read) -> None:
    """A known parameter that is not honoured is refused in a plain row too; any other field is the user's own."""
    refused = {"functions": [{"name": "f"}], "prompt_logprobs": 1, "best_of": 2}
    own = {"tools": "hammer, saw", "logprobs": False, "max_token": 5, "body": "x"}
    lines = [{"prompt": "hi", name: value} for fields in (refused, own) for name, value in fields.items()]
    requests, rejects = read(put("in.jsonl", *lines))
    assert [row["message"].split(": ")[0] for row in rejects] == [
        f"the parameter {name!r} is not supported" for name in refused
    ]
    assert [row["sampling"] for row in requests] == ['{"max_tokens":512}'] * len(own)


def test_every_parameter_arrives(put: Put, chat: Chat, read: Read) -> None:
    """Each parameter that is honoured is in the stored sampling under its own name."""
    given: dict[str, Any] = {
        "max_tokens": 40,
        "min_tokens": 2,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.05,
        "seed": -(2**63),
        "presence_penalty": -2,
        "frequency_penalty": 2,
        "repetition_penalty": 1.1,
        "stop": ["END", "\n\n"],
        "stop_token_ids": [9, 3, 9, 256],
        "ignore_eos": True,
        "bad_words": ["no", " never", "no"],
        "logit_bias": {"100": 5, "9": -100, "0": 0.25},
    }
    as_asked = {"logprobs": True, "top_logprobs": 4, "response_format": {"type": "json_object"}}
    lines = (chat("a", "hi", n=3, **given, **as_asked), {"id": "b", "prompt": "hi", "n": 3} | given | as_asked)
    requests, _ = read(put("in.jsonl", *lines))
    as_kept: dict[str, Any] = {
        "stop": ("END", "\n\n"),
        "stop_token_ids": (3, 9, 256),
        "bad_words": ("no", " never"),
        "logit_bias": ((0, 0.25), (9, -100.0), (100, 5.0)),
        "logprobs": 4,
        "structured_outputs": StructuredOutputs("json_object"),
    }
    expected = SamplingParams(**given | as_kept)
    assert len(requests) == 2
    for request in requests:
        assert SamplingParams.from_json(request["sampling"]) == expected
        assert (request["n"], request["max_tokens"]) == (3, 40)


@pytest.mark.parametrize(("asked", "expected"), [(None, None), (False, None), (0, 0), (20, 20)])
def test_logprobs_of_a_completion(put: Put, read: Read, asked: int | None, expected: int | None) -> None:
    """A completion line says the number of alternatives itself; 0 wants the tokens' own and nothing else."""
    [request], _ = read(put("in.jsonl", {"url": "/v1/completions", "body": {"prompt": "hi", "logprobs": asked}}))
    assert SamplingParams.from_json(request["sampling"]).logprobs == expected


@pytest.mark.parametrize("asked", [21, -1, True, 1.5, "5"])
def test_silly_logprobs_of_a_completion(put: Put, read: Read, asked: Any) -> None:
    """Its number has the same bounds, and the chat's spelling is none of a completion's."""
    bodies = [{"prompt": "hi", "logprobs": asked}, {"prompt": "hi", "logprobs": 1, "top_logprobs": 2}]
    requests, rejects = read(put("in.jsonl", *[{"url": "/v1/completions", "body": body} for body in bodies]))
    assert requests == []
    assert rejects[0]["message"].startswith("logprobs: ")
    assert rejects[1]["message"] == "the parameter 'top_logprobs' is not supported"


def test_logprobs_of_a_chat(put: Put, chat: Chat, read: Read) -> None:
    """True alone wants the tokens' own, `top_logprobs` alternatives too, and never without it."""
    asked: list[dict[str, Any]] = [
        {"logprobs": True},
        {"logprobs": True, "top_logprobs": 0},
        {"logprobs": True, "top_logprobs": 20},
        {"logprobs": False, "top_logprobs": 2},
    ]
    requests, [reject] = read(put("in.jsonl", *[chat(i, "hi", **body) for i, body in enumerate(asked)]))
    assert [SamplingParams.from_json(row["sampling"]).logprobs for row in requests] == [0, 0, 20]
    assert reject["message"] == "top_logprobs: needs 'logprobs' to be true"


@pytest.mark.parametrize(
    ("name", "value"), [("stop_token_ids", [5, 257]), ("stop_token_ids", [2**31 - 1]), ("logit_bias", {"5": 1, "257": 0})]
)
def test_tokens_that_the_model_does_not_have(put: Put, chat: Chat, read: Read, name: str, value: Any) -> None:
    """An id beyond the vocabulary is a reject with the parameter, the id and the size of the vocabulary."""
    _, [reject] = read(put("in.jsonl", chat("a", "hi", **{name: value})))
    worst = max(map(int, value))
    assert reject["reason"] == "invalid_request"
    assert reject["message"] == f"{name}: there is no token {worst}, the model's vocabulary has 257 (from 0)"


def test_lists_and_objects_in_cells(put: Put, read: Read) -> None:
    """A cell that begins with a bracket holds its list or object as JSON; other text there is refused with the parameter."""
    header = "prompt;stop_token_ids;logit_bias;bad_words;response_format;stop;logprobs;top_logprobs"
    good = [
        "hi;;;;;;;",
        'hi;[5, 6];"{""7"": -1}";"[""no""]";"{""type"": ""json_object""}";"[""x"", ""y""]";true;3',
        "hi;;;;;[END;;",
    ]
    bad = ["hi;5;;;;;;", "hi;;[;;;;;", "hi;;;no;;;;", "hi;;;;text;;;"]
    requests, rejects = read(put("in.csv", header, *good, *bad))
    plain, full, bracket = [SamplingParams.from_json(row["sampling"]) for row in requests]
    assert plain == SamplingParams(max_tokens=plain.max_tokens)
    assert (full.stop_token_ids, full.logit_bias, full.bad_words) == ((5, 6), ((7, -1.0),), ("no",))
    assert (full.stop, full.logprobs, bracket.stop) == (("x", "y"), 3, ("[END",))
    assert full.structured_outputs == StructuredOutputs("json_object")
    assert [row["message"].split(":")[0] for row in rejects] == header.split(";")[1:5]


def test_parameters_in_cells(put: Put, read: Read) -> None:
    """In CSV numbers are text: read as numbers, empty cells as absent, and what does not parse refused by name."""
    header = "id,prompt,max_tokens,temperature,seed,stop,ignore_eos,n"
    good = ["a,hi, 40 ,0.5,7,END,true,2", "b,hi,,,,,,", "c,hi,16.0,1,,,,"]
    bad = [
        "d,hi,many,,,,,",
        "e,hi,,warm,,,,",
        "f,hi,,nan,,,,",
        "g,hi,,,1.5,,,",
        "h,hi,,,,,,0",
        "i,hi,1e3,,,,,",
        "j,hi,,,,,si,",
    ]
    requests, rejects = read(put("in.csv", header, *good, *bad))
    sampling = [json.loads(row["sampling"]) for row in requests]
    assert sampling == [
        {"max_tokens": 40, "temperature": 0.5, "seed": 7, "stop": ["END"], "ignore_eos": True},
        {"max_tokens": 512},
        {"max_tokens": 16, "temperature": 1.0},
    ]
    assert [row["n"] for row in requests] == [2, 1, 1]
    assert [row["message"].split(":")[0] for row in rejects] == [
        "max_tokens",
        "temperature",
        "temperature",
        "seed",
        "n",
        "max_tokens",
        "ignore_eos",
    ]


@pytest.mark.parametrize("huge", [3_000_000_000, 2**63 - 1])
def test_a_huge_number_of_tokens_is_cut_to_the_context(put: Put, chat: Chat, read: Read, huge: int) -> None:
    """What would overflow the table's integers is first cut to the room in the context, in JSON and in CSV."""
    put("s/a.jsonl", chat("a", "hi", max_tokens=huge, min_tokens=huge))
    path = put("s/b.csv", "prompt,max_tokens", f"hi,{huge}", f"hi,{'9' * 40}")
    requests, rejects = read(path.parent)
    room = 8192 - requests[0]["prompt_tokens"]
    assert [row["max_tokens"] for row in requests] == [room] * 3
    assert json.loads(requests[0]["sampling"]) == {"max_tokens": room, "min_tokens": room}
    assert rejects == []


def test_the_runs_defaults(put: Put, chat: Chat, read: Read) -> None:
    """A row that says nothing gets the run's defaults, and keeps what it does say."""
    lines = (chat("a", "hi"), chat("b", "hi", max_tokens=5, temperature=0), chat("c", "hi", max_completion_tokens=6))
    requests, _ = read(put("in.jsonl", *lines), defaults=SamplingDefaults(max_tokens=99, temperature=0.3))
    assert [json.loads(row["sampling"]) for row in requests] == [
        {"max_tokens": 99, "temperature": 0.3},
        {"max_tokens": 5},
        {"max_tokens": 6, "temperature": 0.3},
    ]


def test_the_runs_defaults_of_sampling(put: Put, chat: Chat, read: Read) -> None:
    """top_p, top_k and stop of the run hold where a row has none; a row takes them back, and greedy rows need no top."""
    bodies: tuple[dict[str, Any], ...] = ({}, {"top_p": 1, "top_k": -1, "stop": []}, {"stop": "x"}, {"temperature": 0})
    path = put("in.jsonl", *(chat(i, "hi", **body) for i, body in enumerate(bodies)))
    requests, _ = read(path, defaults=SamplingDefaults(9, 1.0, top_p=0.9, top_k=40, stop=("END",)))
    sampled = SamplingParams(9, temperature=1.0, top_p=0.9, top_k=40, stop=("END",))
    assert [SamplingParams.from_json(row["sampling"]) for row in requests] == [
        sampled,
        SamplingParams(9, temperature=1.0),
        replace(sampled, stop=("x",)),
        SamplingParams(9, stop=("END",)),
    ]


def test_greedy_rows_are_equal_whatever_else_they_say(put: Put, chat: Chat, read: Read) -> None:
    """At temperature 0 the seed and the cuts of the distribution change nothing, and are left out."""
    [request], _ = read(put("in.jsonl", chat("a", "hi", temperature=0, seed=7, top_p=0.5, top_k=5, min_p=0.1)))
    assert request["sampling"] == '{"max_tokens":512}'


def test_top_k_that_cuts_nothing(put: Put, chat: Chat, read: Read) -> None:
    """Both -1 and 0 mean all tokens."""
    lines = [chat(k, "hi", temperature=1, top_k=k) for k in (-1, 0)]
    requests, _ = read(put("in.jsonl", *lines))
    assert {row["sampling"] for row in requests} == {'{"max_tokens":512,"temperature":1.0}'}
