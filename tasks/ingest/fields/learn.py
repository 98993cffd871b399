"""The files of a source, read once before they are read for good, to the order of their rows' fields."""

from collections.abc import Iterable
from dataclasses import replace

from tasks.ingest.fields.sample import Sample
from tasks.ingest.finding.source_file import SourceFile
from tasks.ingest.reading.formats import read_file
from tasks.ingest.rows import Fault, RowError
from tasks.ingest.shapes.validate import Validator


def with_field_order(validator: Validator, files: Iterable[SourceFile]) -> Validator:
    """The rules, with the order in which fields go so that the prompts of these files share the longest beginnings.

    Rows that give no fields have no say; they are rejected when they are read for good. In bounded memory.
    """
    sample = Sample(validator.config.fields)
    for file in files:
        for row in read_file(file, validator.config):
            if isinstance(row.content, Fault):
                continue
            try:
                cells = validator.cells(row)
            except RowError:
                continue
            sample.add(cells)
    return replace(validator, order=sample.order())
