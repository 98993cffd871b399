"""Input files to the `requests` and `rejects` tables of one dataset.

Every row of every file is in exactly one of the two, with its file and line; asserted for each part. The dataset's
manifest is written last and makes the dataset exist. Memory is bounded by a few chunks of rows and 16 bytes an id.
"""

import gc
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from hashlib import blake2b
from itertools import chain, groupby, islice, zip_longest
from pathlib import Path

from tasks.core.dataset import Dataset, InputFile
from tasks.core.protocols import Tokenizer
from tasks.ingest.finding.sources import SourceFile
from tasks.ingest.parts import Part, known_parts, packs, record
from tasks.ingest.read import ClashError, Meter, SourceReader
from tasks.ingest.rows import as_unicode
from tasks.ingest.shapes import checker
from tasks.ingest.shapes.validate import Validator
from tasks.storage.atomic import write_json
from tasks.storage.layout import Layout

_NUM_EXAMPLES = 5
_VERSION = 1
"""Part of every part's name; raised when a change of nightbatch changes what is made of a row."""


def ingest(
    files: Sequence[tuple[SourceFile, str]],
    validator_of: Callable[[str], Validator],
    tokenizer: Tokenizer,
    layout: Layout,
    *,
    tokens: str,
    dataset_id: str,
    ds: str,
    on_progress: Callable[[int, int], None] = lambda rows, size: None,
) -> Dataset:
    """Read all files, each with the BLAKE2b of its bytes, into the two tables; each source by its own rules.

    `tokens` names the tokenizer and its context, `ds` is the date partition of what is read now. `on_progress` hears how
    many rows and bytes are done.
    """
    meter = Meter(on_progress)
    parts: list[Part] = []
    ordered = sorted(files, key=lambda one: (one[0].source, one[0].name))
    gc.freeze()  # what is there already, libraries above all, need not be looked through again and again: 8 % of the time
    try:
        for source, of_source in groupby(ordered, key=lambda one: one[0].source):
            own = list(of_source)
            validator = _learnt(validator_of(source), [file for file, _ in own])
            rules = (_VERSION, source, tokens, validator.identity)
            folder = layout.parts / blake2b(repr(rules).encode(), digest_size=12).hexdigest()
            reader = SourceReader(source, validator, tokenizer, layout, ds, meter)
            parts += _parts_of(own, reader, folder)
    finally:
        gc.unfreeze()
        checker.close()
    dataset = _dataset(parts, [file for file, _ in ordered], [digest for _, digest in ordered], dataset_id, ds, validator_of)
    write_json(layout.dataset_manifest(dataset_id), dataset.to_dict())
    return dataset


def _learnt(validator: Validator, files: Sequence[SourceFile]) -> Validator:
    """The rules with what can only be known of all rows together."""
    if not validator.config.reorder_fields:
        return validator
    from tasks.ingest.fields.learn import with_field_order

    return with_field_order(validator, files)


def _parts_of(files: list[tuple[SourceFile, str]], reader: SourceReader, folder: Path) -> list[Part]:
    """The parts of one source: those that are known and still hold, and those read now.

    Which of two rows with one id is the first depends on all files, so when a known part has an id in common with anything
    else the whole source is read again.
    """
    inputs = [InputFile(file.source, file.name, "", digest) for file, digest in files]
    known = known_parts(folder, inputs)
    try:
        return _read(files, known, reader, folder)
    except ClashError:
        return _read(files, [], reader, folder)


def _read(files: list[tuple[SourceFile, str]], known: list[Part], reader: SourceReader, folder: Path) -> list[Part]:
    reader.begin()
    for part in known:
        reader.take(part)
    covered = {of for part in known for of in part.files}
    rest = [(file, digest) for file, digest in files if (file.name, digest) not in covered]
    reader.meter.skip(sum(file.path.stat().st_size for file, digest in files if (file.name, digest) in covered))
    parts = list(known)
    for places in packs([file.path.stat().st_size for file, _ in rest]):
        pack = [rest[place] for place in places]
        part, is_alone = reader.read([file for file, _ in pack], [digest for _, digest in pack], folder.name)
        if is_alone:
            record(part, folder)
        parts.append(part)
    return parts


def _dataset(
    parts: Sequence[Part],
    files: Sequence[SourceFile],
    digests: Sequence[str],
    dataset_id: str,
    ds: str,
    validator_of: Callable[[str], Validator],
) -> Dataset:
    reasons: Counter[str] = Counter()
    for part in parts:
        reasons.update(part.reject_reasons)
    tables = [(part.tables[0], part.checksums[0]) for part in parts]
    refused = [(part.tables[1], part.checksums[1]) for part in parts if len(part.tables) > 1]
    named = zip(files, digests, strict=True)
    return Dataset(
        dataset_id=dataset_id,
        ds=ds,
        files=len(files),
        rows=sum(part.rows for part in parts),
        requests=sum(part.requests for part in parts),
        truncated=sum(part.truncated for part in parts),
        reject_reasons=dict(reasons),
        examples=_examples(parts),
        request_parts=tuple(table for table, _ in tables),
        reject_parts=tuple(table for table, _ in refused),
        inputs=tuple(_input_file(file, digest) for file, digest in named),
        rows_of={source: asdict(validator_of(source).config) for source in {file.source: None for file in files}},
        checksums=tuple(wanted for _, wanted in (*tables, *refused)),
    )


def _examples(parts: Sequence[Part]) -> tuple[str, ...]:
    """A few rejects of as many kinds as there are: the first of each reason, then the second of each."""
    of_reason: dict[str, list[str]] = {}
    for reason, text in chain.from_iterable(part.examples for part in parts):
        of_reason.setdefault(reason, []).append(text)
    rounds = zip_longest(*of_reason.values())
    return tuple(text for texts in islice(rounds, 2) for text in texts if text is not None)[:_NUM_EXAMPLES]


def _input_file(file: SourceFile, digest: str) -> InputFile:
    origin = None if file.origin is None else file.shown
    return InputFile(file.source, file.name, as_unicode(str(file.path.absolute())), digest, origin, file.sniffed)
