"""Answers damaged files with the stand-in engine and exports them: in every format each input row is there, in its place.

    .venv/bin/python -m tests.fuzz.export --minutes 2 [--first NUMBER]

A round is a few cases of tests/fuzz/damage.py in one run; `--first NUMBER --minutes 0 --keep FOLDER` is one round and keeps
its files. A finding becomes a test in tests/unit/export.
"""

import argparse
import csv
import json
import random
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq

from tasks import wiring
from tasks.core.config import Config, InputConfig, JournalConfig, ModelConfig, RowConfig, SamplingDefaults
from tasks.core.dataset import Dataset
from tasks.core.errors import InputError
from tasks.delivery import deliver
from tasks.export.settings import Export
from tasks.night import run_night
from tasks.progress import LogDisplay
from tasks.storage.atomic import read_json
from tasks.storage.layout import Layout
from tasks.storage.parquet import read_rows
from tests.fuzz.damage import case
from tests.fuzz.ingest import quick

Row = dict[str, Any]
_NUM_FILES = 8
_OPTIONS: tuple[dict[str, Any], ...] = (
    *({}, {}, {}, {"system": "Be brief."}, {"truncate_prompt": "tail"}, {"prompt_template": "{{ row|tojson }}"}),
    *({"record_path": "data.items,messages"}, {"encoding": "cp1252"}, {"format": "document"}, {"format": "csv"}),
)


def check(number: int, folder: Path) -> None:
    """One run and its exports."""
    dice = random.Random(number)
    for of in range(number * _NUM_FILES, (number + 1) * _NUM_FILES):
        name, content, _ = case(of)
        path = folder / "inbox" / dice.choice(("a", "b")) / f"{of} {name}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    given = InputConfig((folder / "inbox",), None, 1.0, RowConfig(**dice.choice(_OPTIONS)))
    layout = Layout(folder / "data", folder / "checkpoints")
    config = Config(
        input=given,
        data=layout.data,
        checkpoints=layout.checkpoints,
        model=ModelConfig("echo", max_model_len=300),
        sampling=SamplingDefaults(max_tokens=3),
        journal=JournalConfig("process"),
    )
    try:
        night = run_night(config, wiring, LogDisplay())
    except InputError:
        return  # not one row of it can be used
    run = layout.run(night.manifest.run_id)
    dataset = Dataset.from_dict(read_json(layout.dataset_manifest(night.manifest.dataset_id)) or {})
    expected = sorted(outcomes(dataset, run.results, run.failures), key=lambda one: one[0])

    def export(name: str, **settings: Any) -> Path:
        deliver(layout, run.run_id, Export(folder / name, **settings), LogDisplay())
        return folder / name

    batch = export("batch.jsonl")
    for path, is_answer in ((batch, True), (batch.with_suffix(".errors.jsonl"), False)):
        found = [line["custom_id"] for line in _lines(path)] if path.exists() else []
        assert found == [one["custom_id"] for (*_, choice), one in expected if not choice and one["is_answer"] == is_answer]
    wanted = [key for key, _ in expected]
    texts = [one["output_text"] for _, one in expected]
    for join, prefix in ((False, ""), (True, "nightbatch_")):
        for form in ("jsonl", "csv", "parquet"):
            try:
                path = export(f"out{join}.{form}", given_format=form, join=join)
            except InputError as error:
                assert join and form == "parquet", error  # columns of one name and two types
                continue
            names = [f"{prefix}{name}" for name in ("source", "file", "line", "choice_index", "output_text")]
            rows = list(_rows(path, form, names))
            found = [[row[name] for name in names] for row in rows]
            assert [(source, file, int(line), int(choice or 0)) for source, file, line, choice, _ in found] == wanted, form
            assert [text or None for *_, text in found] == [text or None for text in texts], form


def outcomes(dataset: Dataset, results: Path, failures: Path) -> Iterator[tuple[tuple[Any, ...], Row]]:
    """Each row's place and choice, as the tables have it."""
    for table, is_answer in ((results, True), (failures, False)):
        for row in read_rows(sorted(table.glob("*.parquet"))):
            yield (
                (row["source"], row["file"], row["line"], row["choice_index"]),
                {"output_text": None, "is_answer": is_answer} | row,
            )
    for row in read_rows([Path(part) for part in dataset.reject_parts]):
        yield (row["source"], row["file"], row["line"], 0), row | {"output_text": None, "is_answer": False}


def _lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def _rows(path: Path, form: str, names: list[str]) -> Iterator[Row]:
    if form == "jsonl":
        return iter(_lines(path))
    if form == "parquet":
        return iter(pq.ParquetFile(path).read(names).to_pylist())
    return csv.DictReader(path.open(encoding="utf-8-sig", newline=""))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    until, number, found = time.monotonic() + 60 * given.minutes, given.first, 0
    while number == given.first or time.monotonic() < until:
        with nullcontext(str(given.keep)) if given.keep else TemporaryDirectory() as folder, quick():
            try:
                check(number, Path(folder))
            except Exception:
                found += 1
                print(f"round {number}: {traceback.format_exc(limit=-4)}", flush=True)
        number += 1
    print(f"{number - given.first} rounds, {found} findings")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
