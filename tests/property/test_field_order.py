"""Whatever is in a table, putting its fields in order loses none of them, and hangs on its rows alone."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.core.config import RowConfig, SamplingDefaults
from tasks.engine.tokenizer import ByteTokenizer
from tasks.ingest.fields.order import Cell
from tasks.ingest.fields.sample import Sample
from tasks.ingest.finding.sources import digest_file, discover
from tasks.ingest.ingest import ingest
from tasks.ingest.shapes.validate import Validator
from tasks.storage.layout import Layout
from tasks.storage.parquet import read_rows

pytestmark = pytest.mark.usefixtures("hasty")

NAMES = st.sampled_from(["a", "b", "c", "d", "é", "fields", "items"])
VALUES = st.sampled_from(["", "x", "y", "long " * 20, "\n", "\0", "a: b"]) | st.text(max_size=3)
ROWS = st.lists(st.dictionaries(NAMES, VALUES, max_size=6), max_size=30)


def order_of(rows: list[dict[str, str]], max_cells: int) -> Any:
    sample = Sample(max_cells=max_cells)
    for row in rows:
        sample.add(list(row.items()))
    return sample.order()


@settings(deadline=None, max_examples=150)
@given(ROWS, st.randoms(use_true_random=False), st.sampled_from([10, 60, 10_000]))
def test_any_table(rows: list[dict[str, str]], random: Any, max_cells: int) -> None:
    """Each row keeps its cells; the order is one for the same rows in another order, and a row's is decided by itself."""
    order = order_of(rows, max_cells)
    for row in rows:
        cells: list[Cell] = list(row.items())
        arranged = order.arrange(cells)
        assert sorted(arranged) == sorted(cells)
        assert sorted(order.fields([0] * len(order.names))) == list(range(len(order.names)))
    shuffled = random.sample(rows, len(rows))
    assert order_of(shuffled, max_cells) == order


JSON_VALUES = st.sampled_from([None, "", "x", "y", "long " * 20, 1, 0.5, True, [1], {"k": None}, 10**40])
JSON_ROWS = st.lists(st.dictionaries(st.sampled_from(["id", "a", "b", "fields", "temperature"]), JSON_VALUES), max_size=9)


@settings(deadline=None, max_examples=60)
@given(JSON_ROWS, st.sampled_from([(), ("a",), ("b", "a"), ("temperature", "fields", "b")]))
def test_any_rows_with_and_without_an_order(rows: list[dict[str, Any]], fields: tuple[str, ...]) -> None:
    """The same rows become requests, with the same ids and parameters; of their prompts only the lines' order differs."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "in.jsonl")
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (0, 0))  # it need not settle
        given, ordered = (read(path, fields, is_ordered) for is_ordered in (False, True))
    if not fields and any("fields" in row for row in rows):
        return  # without an order `fields` is that row's own
    assert [row["line"] for row in given] == [row["line"] for row in ordered]
    for one, other in zip(given, ordered, strict=True):
        assert sorted(one["text"].split("\n")) == sorted(other["text"].split("\n"))
        for column in ("request_id", "custom_id", "sampling", "n", "requested_model"):
            assert one[column] == other[column]


def read(path: Path, fields: tuple[str, ...], is_ordered: bool) -> list[dict[str, Any]]:
    config = RowConfig(prompt_template="Do:\n{{ fields }}\nNow.", fields=fields, reorder_fields=is_ordered)
    validator = Validator(config, SamplingDefaults(), None, "m")
    files = [(file, digest_file(file)) for file in discover([path], None)]
    layout = Layout(path.parent / f"{is_ordered}", path.parent / "c")
    dataset = ingest(files, lambda _: validator, ByteTokenizer(4096), layout, tokens="t", dataset_id="d", ds="2026-01-02")
    assert dataset.requests + dataset.rejects == dataset.rows
    return sorted(read_rows(dataset.request_paths), key=lambda row: row["line"])
