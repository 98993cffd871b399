"""What a source's folder says of its own rows, and what is wrong with it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tasks.core.config import RowConfig, SamplingDefaults, SourceConfig
from tasks.core.errors import ConfigError
from tasks.ingest.finding.source_toml import read_source_configs, rows_of
from tasks.ingest.finding.sources import discover

Put = Callable[..., Path]

ROW = {"prompt": "hi"}
ALL = """
format = "jsonl"
encoding = "cp1252"
record_path = "data.items"
prompt_column = "question"
messages_column = "chat"
id_column = "key"
prompt_template = "{{ fields }}"
system = "Be brief."
truncate_prompt = "tail"
fields = ["a", "b"]
reorder_fields = true
priority = -3
deadline = 2026-12-01T06:00:00-05:00

[sampling]
max_tokens = 7
temperature = 0.5
seed = 9
top_p = 0.9
top_k = 40
stop = ["END", "Q:"]
"""


def configs(*paths: Path, source: str | None = None, default: SourceConfig | None = None) -> dict[str, SourceConfig]:
    return read_source_configs(discover(paths, source), paths, source, default or SourceConfig())


def test_everything_that_it_can_say(put: Put, tmp_path: Path) -> None:
    """Every key reaches its setting; the source beside it, without a file, has the run's."""
    put("mails/a.jsonl", ROW)
    put("mails/source.toml", ALL)
    put("other/a.jsonl", ROW)
    default = SourceConfig(RowConfig(system="Be kind."), SamplingDefaults(3))
    found = configs(tmp_path / "in", default=default)
    own = ("jsonl", "cp1252", "data.items", "question", "chat", "key", "{{ fields }}", "Be brief.", "tail")
    rows = RowConfig(*own, fields=("a", "b"), reorder_fields=True)
    due = datetime(2026, 12, 1, 11, tzinfo=UTC)
    assert found == {
        "mails": SourceConfig(rows, SamplingDefaults(7, 0.5, 9, 0.9, 40, ("END", "Q:")), -3, due),
        "other": default,
    }


def test_what_it_does_not_say(put: Put, tmp_path: Path) -> None:
    """What the file leaves out is as the run has it, and an empty text takes the run's back."""
    put("mails/a.jsonl", ROW)
    put("mails/source.toml", 'system = ""\nsampling.temperature = 1', 'prompt_column = ""')
    default = SourceConfig(RowConfig(system="Be kind.", id_column="key", prompt_column="q"), SamplingDefaults(3, 0.0, 5), 2)
    found = configs(tmp_path / "in" / "mails", default=default)
    assert found == {"mails": SourceConfig(RowConfig(id_column="key"), SamplingDefaults(3, 1.0, 5), 2)}


@pytest.mark.parametrize("said", ['prompt_template_file = "ask.j2"', 'prompt_template = "@ask.j2"'])
def test_a_template_in_a_file(put: Put, tmp_path: Path, said: str) -> None:
    """The template's file lies beside source.toml and is no data; its text is what counts."""
    put("s/a.jsonl", ROW)
    put("s/ask.j2", "Q: {{ é }}")
    put("s/source.toml", said)
    assert configs(tmp_path / "in" / "s")["s"].rows.prompt_template == "Q: {{ é }}\n"


def test_columns_of_a_source_without_a_template(put: Put, tmp_path: Path) -> None:
    """The run's template is not for a source that names its own columns."""
    default = SourceConfig(RowConfig(prompt_template="{{ text }}"))
    for name, said in (("own", 'prompt_column = "q"'), ("kept", 'id_column = "q"')):
        put(f"{name}/a.jsonl", ROW)
        put(f"{name}/source.toml", said)
    found = configs(tmp_path / "in", default=default)
    assert [found[name].rows.prompt_template for name in ("own", "kept")] == [None, "{{ text }}"]


def test_a_file_by_itself(put: Put) -> None:
    """A single file is read as the run says, whatever lies beside it."""
    put("s/source.toml", "priority = 5")
    assert configs(put("s/a.jsonl", ROW)) == {"a": SourceConfig()}


def test_a_folder_without_data(put: Put, tmp_path: Path) -> None:
    """What a folder without files says is not looked at, however wrong."""
    put("empty/source.toml", "{")
    put("s/a.jsonl", ROW)
    assert configs(tmp_path / "in") == {"s": SourceConfig()}


def test_one_source_of_two_folders(put: Put, tmp_path: Path) -> None:
    """One file holds for the whole source, two that agree are fine, and two that differ are named."""
    put("a/x.jsonl", ROW)
    put("b/y.jsonl", ROW)
    put("a/source.toml", "priority = 1")
    inbox = tmp_path / "in"
    assert configs(inbox, source="mine") == {"mine": SourceConfig(priority=1)}
    put("b/source.toml", "priority = 1 # too")
    assert configs(inbox / "a", inbox / "b", source="mine") == {"mine": SourceConfig(priority=1)}
    put("b/source.toml", "priority = 2")
    with pytest.raises(ConfigError, match=r"a/source\.toml and .*/b/source\.toml say different things of source 'mine'"):
        configs(inbox, source="mine")


def test_a_file_where_no_source_is(put: Put, tmp_path: Path) -> None:
    """In an inbox itself it would be nobody's, and that is said."""
    put("s/a.jsonl", ROW)
    put("source.toml", "priority = 1")
    with pytest.raises(ConfigError, match=r"source\.toml: its folder has sub-folders"):
        configs(tmp_path / "in")


WRONG: list[tuple[str | bytes, str]] = [
    ("promt_column = 'q'", "unknown key 'promt_column'; did you mean 'prompt_column'?"),
    ("x = 1", "unknown key 'x'; known are format, encoding, "),
    ("[sampling]\nmax_token = 1", "unknown key 'sampling.max_token'; did you mean 'max_tokens'?"),
    ("prompt_column = 5", "prompt_column: "),
    ("priority = '1'", "priority: "),
    ("priority = true", "priority: "),
    ("priority = 3000000000", "priority: "),
    ("sampling = 1", "sampling: "),
    ("[sampling]\nmax_tokens = 1.5", "sampling.max_tokens: "),
    ("[sampling]\nmax_tokens = 0", "max_tokens must be at least 1"),
    ("[sampling]\ntemperature = 3", "temperature must be between 0 and 2"),
    ("sampling.top_p = 0", "top_p must be above 0"),
    ("sampling.top_k = -1", "top_k must be a number of tokens"),
    ("sampling.stop = ['']", "stop must be texts that are not empty"),
    ("sampling.stop = 'END'", "sampling.stop: "),
    ("format = 'xlsx'", "format must be one of"),
    ("truncate_prompt = 'left'", "truncate_prompt must be one of"),
    ("deadline = '2026-12-01T06:00:00Z'", "deadline: "),
    ("deadline = 2026-12-01", "deadline: "),
    ("deadline = 2026-12-01T06:00:00", "deadline must say how far it is from UTC"),
    ("priority = 1\npriority = 2", "not valid TOML: "),
    ("a = \nb = 1", "at line 1, column 5"),
    (b"system = '\xff'", "not valid UTF-8 at byte 10"),
    ("prompt_template = '{{ a'", "prompt_template: line 1: "),
    ("prompt_template_file = 'nowhere.j2'", "nowhere.j2: No such file or directory"),
    ("prompt_template_file = 'a.jsonl'", "'a.jsonl' must end in one of .j2, .jinja"),
    ("prompt_template = 'x'\nprompt_template_file = 'x.j2'", "prompt_template and prompt_template_file are both given"),
]


@pytest.mark.parametrize(("said", "words"), WRONG, ids=[str(said) for said, _ in WRONG])
def test_a_file_that_is_wrong(put: Put, tmp_path: Path, said: str | bytes, words: str) -> None:
    """Every mistake stops the run before it begins and is named with its file and key."""
    put("s/a.jsonl", ROW)
    path = put("s/source.toml", said)
    with pytest.raises(ConfigError) as caught:
        configs(tmp_path / "in")
    assert str(caught.value).startswith(f"{path}: ")
    assert words in str(caught.value)


def test_the_runs_template_file(put: Put, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A template that begins with @ is read from its file at once, and a mistake in it is named by its option."""
    path = put("ask.j2", "Q: {{ a }}")
    monkeypatch.chdir(tmp_path)
    for given in (f"@{path}", "@in/ask.j2"):
        assert rows_of({"prompt_template": given}) == RowConfig(prompt_template="Q: {{ a }}\n")
    assert rows_of({"prompt_template": "{{ a }}@"}).prompt_template == "{{ a }}@"
    assert rows_of({"system": "x"}) == RowConfig(system="x")
    with pytest.raises(ConfigError, match=r"--prompt-template: prompt_template: line 1: "):
        configs(put("a.jsonl", ROW), default=SourceConfig(RowConfig(prompt_template="{{")))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "No such file or directory (a template that begins with @ names a file)"),
        (b"\xff", "not valid UTF-8 at byte 0"),
        (b"x" * 1_100_000, "larger than 1,048,576 bytes"),
    ],
)
def test_a_template_file_that_cannot_be_one(put: Put, data: bytes | None, words: str) -> None:
    """A template file that is missing, binary or far too large is named."""
    path = put("ask.j2", data or "")
    if data is None:
        path.unlink()
    with pytest.raises(ConfigError) as caught:
        rows_of({"prompt_template": f"@{path}"})
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


def test_defaults_are_not_shared(put: Put, tmp_path: Path) -> None:
    """What one source says changes no other's."""
    for name, column in (("a", "x"), ("b", "y")):
        put(f"{name}/a.jsonl", ROW)
        put(f"{name}/source.toml", f'prompt_column = "{column}"')
    found = configs(tmp_path / "in")
    assert found == {
        name: SourceConfig(replace(RowConfig(), prompt_column=column)) for name, column in (("a", "x"), ("b", "y"))
    }
