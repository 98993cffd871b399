"""Whatever stands in a source.toml or a template, it is right or a ConfigError, and rows made by it are in one table."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.core.config import RowConfig, SamplingDefaults, SourceConfig
from tasks.core.errors import ConfigError
from tasks.engine.tokenizer import ByteTokenizer
from tasks.ingest.finding.source_toml import read_source_configs
from tasks.ingest.finding.sources import digest_file, discover
from tasks.ingest.ingest import ingest
from tasks.ingest.shapes.validate import Validator
from tasks.storage.layout import Layout

TOML_PIECES = st.sampled_from(
    [
        *(
            "prompt_column",
            "encoding",
            "format",
            "record_path",
            "priority",
            "deadline",
            "seed",
            "stop",
            "max_tokens",
            "top_k",
        ),
        *(
            "prompt_template",
            "prompt_template_file",
            "system",
            "temperature",
            "[sampling]",
            "[[sampling]]",
            "truncate_prompt",
            "fields",
            "reorder_fields",
        ),
        *(" = ", "\n", "\r", "'", '"', '"""', "[", "]", "{", "}", ",", "#", ".", "\\", "\\u0000", "\\ud83d", "\0", "\ufeff"),
        *("'{{ a }}'", "'{{ a'", "'@x'", "'utf-16'", "'rot13'", "'jsonl'", "'head'", "true", "nan", "inf", "1e400", "-1"),
        *("9" * 30, "0x7f", "2030-01-01", "2030-01-01T06:00:00Z", "06:00:00", "['a', '']", "''", "'a..b'", "['\\n']", "0.5"),
    ]
)
TOMLS = st.lists(TOML_PIECES | st.text(max_size=3), max_size=14).map("".join)
TOMLS |= st.lists(st.builds("{} = {}".format, TOML_PIECES, TOML_PIECES), max_size=4).map("\n".join)
JINJA_PIECES = st.sampled_from(
    [
        *(
            "{{",
            "}}",
            "{%",
            "%}",
            "{#",
            "#}",
            " ",
            "\n",
            "-",
            "|",
            "(",
            ")",
            "[",
            "]",
            ".",
            "'",
            '"',
            ",",
            "~",
            "*",
            "**",
            "%",
        ),
        *(
            "prompt",
            "row",
            "up",
            "items",
            "for x in",
            "row",
            "endfor",
            "if",
            "else",
            "endif",
            "set a =",
            "macro f()",
            "range",
        ),
        *(
            "endmacro",
            "include 'x'",
            "import 'x' as y",
            "extends 'x'",
            "raw",
            "endraw",
            "self",
            "loop",
            "recursive",
            "block b",
        ),
        *(
            "length",
            "tojson",
            "upper",
            "join",
            "batch(2)",
            "round",
            "int",
            "format",
            "map('int')",
            "sort",
            "random",
            "urlize",
        ),
        *(
            "9",
            "99999999",
            "-1",
            "0",
            "none",
            "true",
            "[]",
            "{}",
            "namespace()",
            "dict()",
            "__class__",
            "x",
            "call",
            "filter",
        ),
    ]
)
TEMPLATES = st.lists(JINJA_PIECES, max_size=14).map(" ".join)
TEMPLATES |= st.lists(JINJA_PIECES, max_size=5).map(lambda pieces: "{{ " + " ".join(pieces) + " }}") | st.text(max_size=9)
ROWS = b"""
{"prompt": "p", "items": [1, "x", null], "n": 9, "x": {"y": "z"}}
{"prompt": null, "items": {}, "n": 1e300, "x": []}
{"prompt": "{{ prompt }}", "row": 1, "up": "u", "range": 3}
"""


pytestmark = pytest.mark.usefixtures("hasty")


def configured(folder: Path, default: SourceConfig) -> SourceConfig | None:
    """What holds for the folder's rows; None where that is a mistake of the user's, which is told in words."""
    (folder / "in.jsonl").write_bytes(ROWS)
    os.utime(folder / "in.jsonl", (0, 0))  # it need not settle
    try:
        (config,) = read_source_configs(discover([folder], "s"), [folder], "s", default).values()
    except ConfigError as error:
        assert str(error).strip()
        return None
    return config


def ingest_all(folder: Path, config: SourceConfig) -> int:
    """Read the rows as configured; how many there are in the two tables."""
    validator = Validator(config.rows, config.sampling, None, "m", config.priority, config.deadline)
    files = [(file, digest_file(file)) for file in discover([folder], "s", format=config.rows.format)]
    layout = Layout(folder / ".data", folder / ".checkpoints")
    dataset = ingest(files, lambda _: validator, ByteTokenizer(512), layout, tokens="t", dataset_id="d", ds="2026-01-02")
    return dataset.requests + dataset.rejects


@settings(deadline=None, max_examples=150)
@given(TOMLS | st.binary(max_size=30))
def test_any_source_toml(said: str | bytes) -> None:
    """It is read or refused; by what it says the rows are read."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "source.toml").write_bytes(said if isinstance(said, bytes) else said.encode("utf-8", "surrogatepass"))
        if (config := configured(folder, SourceConfig())) is not None:
            assert ingest_all(folder, config) >= 1


@settings(deadline=None, max_examples=250)
@given(TEMPLATES)
def test_any_template(text: str) -> None:
    """It is compiled or refused; each row becomes a request or a reject by it."""
    with tempfile.TemporaryDirectory() as name:
        try:
            rows = RowConfig(prompt_template=text)
        except ConfigError:
            return
        if (config := configured(Path(name), SourceConfig(rows, SamplingDefaults(max_tokens=9)))) is not None:
            assert ingest_all(Path(name), config) == 3
