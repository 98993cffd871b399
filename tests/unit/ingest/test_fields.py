"""A template's place for fields: what stands there, in which order, and what is wrong with it."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tasks.core.config import RowConfig, SamplingDefaults, SourceConfig
from tasks.core.errors import ConfigError
from tasks.ingest.finding.source_toml import check_template, read_source_configs, rows_of
from tasks.ingest.finding.sources import discover
from tasks.storage.layout import Layout

Rows = list[dict[str, Any]]
Put = Callable[..., Path]
Read = Callable[..., tuple[Rows, Rows]]

TEMPLATE = "Classify.\n{{ fields }}\nAnswer:"
PRODUCTS = [
    {"id": f"p{i}", "title": f"thing number {i}", "brand": f"brand {i % 3}", "about": "a long text " * (1 + i % 2)}
    for i in range(12)
]


def asked(requests: Rows) -> list[str]:
    return [row["text"].removeprefix("Classify.\n").removesuffix("\nAnswer:") for row in requests]


def shared(texts: list[str]) -> int:
    """How many leading lines sorted neighbours have in common, in characters."""
    total = 0
    for one, other in pairwise(sorted(text.split("\n") for text in texts)):
        for left, right in zip(one, other, strict=False):
            if left != right:
                break
            total += len(left)
    return total


def test_all_fields_as_they_are_given(put: Put, read: Read) -> None:
    """Without a list these are all of the row's fields but its id, each as `name: value`, null as nothing."""
    row = {"id": 7, "b": "x\ny", "a": None, "n": 1.5, "yes": True, "tags": ["é"]}
    [request], _ = read(put("in.jsonl", row), prompt_template=TEMPLATE)
    assert request["text"] == 'Classify.\nb: x\ny\na: \nn: 1.5\nyes: true\ntags: ["é"]\nAnswer:'
    assert request["custom_id"] == "7"


def test_the_column_that_is_named_as_id_is_no_field(put: Put, read: Read) -> None:
    """Which fields are ids is said by --id-column; then `id` is one like any other."""
    [request], _ = read(put("in.jsonl", {"key": 1, "id": 2}), prompt_template="{{ fields }}", id_column="key")
    assert (request["custom_id"], request["text"]) == ("1", "id: 2")


def test_fields_that_are_named(put: Put, read: Read) -> None:
    """In the order of the list; a path leads into a field or to what encloses the record; the id may be among them."""
    path = put("in.jsonl", {"title": "T", "rows": [{"id": 1, "meta": {"k": ["v"]}, "a.b": "dot", "n": 3, "fields": "f"}]})
    names = ("up.title", "meta.k.0", "a.b", "id", "fields", "n")
    [request], _ = read(path, prompt_template="{{ fields }}", fields=names, record_path="rows")
    assert request["text"] == "up.title: T\nmeta.k.0: v\na.b: dot\nid: 1\nfields: f\nn: 3"
    assert (request["custom_id"], request["n"]) == ("1", 1)


def test_a_template_may_write_them_in_another_form(put: Put, read: Read) -> None:
    """They are pairs of names and values, in their order; joined to text they are their lines."""
    template = "{% for name, value in fields %}<{{ name }}>{{ value }}{% endfor %}{{ '|' ~ fields }}"
    [request], _ = read(put("in.csv", "b,a", "1,2"), prompt_template=template)
    assert request["text"] == "<b>1<a>2|b: 1\na: 2"


def test_a_column_called_fields(put: Put, read: Read) -> None:
    """It is itself where nothing is said of fields; where something is, it is reached through the row."""
    path = put("in.jsonl", {"fields": "own", "a": "x"})
    [own], _ = read(path, prompt_template="{{ fields }}")
    [ours], _ = read(path, prompt_template="{{ fields }} {{ row.fields }}", fields=("a",))
    assert (own["text"], ours["text"]) == ("own", "a: x own")


def test_parameters_among_the_fields(put: Put, read: Read) -> None:
    """A field that stands in the prompt is data, whatever its name; one that is left out counts as a parameter."""
    path = put("in.jsonl", {"a": "x", "n": "many", "max_tokens": 7})
    [named], _ = read(path, prompt_template="{{ fields }}", fields=("a", "n"))
    [whole], _ = read(path, prompt_template="{{ fields }}")
    assert (named["max_tokens"], whole["max_tokens"]) == (7, SamplingDefaults().max_tokens)


@pytest.mark.parametrize("is_ordered", [False, True])
def test_a_row_without_a_field(put: Put, read: Read, is_ordered: bool) -> None:
    """It is a reject that says which fields it has; the others go on."""
    path = put("in.jsonl", {"a": 1, "b": 2}, {"a": 1}, "{", '{"b": 1, "a": ' + "1" * 4400 + "}")
    [request], rejects = read(path, prompt_template="{{ fields }}", fields=("b", "a"), reorder_fields=is_ordered)
    assert sorted(request["text"].split("\n")) == ["a: 1", "b: 2"]
    assert [row["line"] for row in rejects] == [2, 3, 4]
    assert rejects[0]["message"] == "fields: no field 'b'; the row has 'a'"


def test_an_order_changes_the_prompts_and_nothing_else(put: Put, read: Read) -> None:
    """Prompts share more of their beginnings, and each is still of its own row."""
    path = put("in.jsonl", *PRODUCTS)
    given, _ = read(path, prompt_template=TEMPLATE)
    ordered, _ = read(path, prompt_template=TEMPLATE, reorder_fields=True)
    assert shared(asked(ordered)) > 2 * shared(asked(given)) + 100
    for one, other in zip(given, ordered, strict=True):
        assert sorted(asked([one])[0].split("\n")) == sorted(asked([other])[0].split("\n"))
        assert (one["request_id"], one["line"], one["sampling"]) == (other["request_id"], other["line"], other["sampling"])


def test_the_order_hangs_on_all_files_of_a_source(put: Put, read: Read, layout: Layout) -> None:
    """It is the same however the rows are spread over files; a further file may change what was made of the others."""
    both = put("one/x.jsonl", *PRODUCTS)
    put("two/a.jsonl", *PRODUCTS[7:])
    put("two/b.csv", "id,title,brand,about", *(",".join(row.values()) for row in PRODUCTS[:7]))
    whole, _ = read(both, prompt_template=TEMPLATE, reorder_fields=True, source="s")
    parted, _ = read(both.parent.parent / "two", prompt_template=TEMPLATE, reorder_fields=True, source="t")
    by_id = {row["custom_id"]: row["text"] for row in whole}
    assert by_id == {row["custom_id"]: row["text"] for row in parted}
    titled = [
        {"id": f"q{i}", "title": "the very same title " * 9, "brand": f"brand {i}", "about": str(i)} for i in range(40)
    ]
    put("two/c.jsonl", *titled)
    more, _ = read(both.parent.parent / "two", prompt_template=TEMPLATE, reorder_fields=True, source="t")
    assert len(more) == 52
    assert asked([row for row in more if row["custom_id"] == "q7"])[0].startswith("title: ")
    again, _ = read(both.parent.parent / "two", prompt_template=TEMPLATE, reorder_fields=True, source="t")
    assert again == more


def test_settings_that_have_no_place() -> None:
    """Fields without a template, or a template without a place for them, are mistakes in the settings."""
    settings: list[dict[str, Any]] = [{"fields": ("a",)}, {"reorder_fields": True}]
    for given in settings:
        [key] = given
        with pytest.raises(ConfigError, match=f"^{key} needs a prompt_template with a place for fields"):
            replace(RowConfig(), **given)
        with pytest.raises(ConfigError, match=f"here: {key} needs a place in the prompt template"):
            check_template(replace(RowConfig(prompt_template="{{ a }}"), **given), "here")
    for names in (("a", "a"), ("",), ("a\0",)):
        with pytest.raises(ConfigError, match="fields must be names, each once"):
            RowConfig(prompt_template=TEMPLATE, fields=names)


def test_a_list_on_the_command_line() -> None:
    """Commas part the names."""
    assert rows_of({"prompt_template": TEMPLATE, "fields": "brand, meta.key"}).fields == ("brand", "meta.key")
    assert rows_of({"prompt_template": TEMPLATE, "fields": None}).fields == ()


def test_what_a_source_says_of_fields(put: Put, tmp_path: Path) -> None:
    """A source's own list goes before the run's; one with a template or columns of its own takes neither from the run."""
    default = SourceConfig(RowConfig(prompt_template=TEMPLATE, fields=("a",), reorder_fields=True))

    def rows(*said: str) -> RowConfig:
        put("s/x.jsonl", {"a": "b"})
        put("s/source.toml", *said)
        return read_source_configs(discover([tmp_path / "in" / "s"], None), [tmp_path / "in" / "s"], None, default)["s"].rows

    assert rows("fields = ['b', 'a.c']") == replace(default.rows, fields=("b", "a.c"))
    assert rows("fields = []", "reorder_fields = false") == RowConfig(prompt_template=TEMPLATE)
    assert rows("prompt_template = '{{ a }}'") == RowConfig(prompt_template="{{ a }}")
    assert rows("prompt_column = 'a'") == RowConfig(prompt_column="a")
    with pytest.raises(ConfigError, match=r"source.toml: .*reorder_fields needs a place in the prompt template"):
        rows("prompt_template = '{{ a }}'", "reorder_fields = true")
    with pytest.raises(ConfigError, match=r"source.toml: fields: "):
        rows("fields = 'a,b'")


def test_settings_survive_the_manifest(put: Put, read: Read, layout: Layout) -> None:
    """How the rows were read is noted with the dataset, so that an export finds them again."""
    read(put("in.csv", "a,b", "1,2"), prompt_template="{{ fields }}", fields=("b",), reorder_fields=True)
    noted = json.loads(layout.dataset_manifest("d1").read_text())["rows_of"]["in"]
    assert (noted["fields"], noted["reorder_fields"]) == (["b"], True)
