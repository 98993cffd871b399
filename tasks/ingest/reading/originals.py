"""The files that a run was made from, read once more: the same rows in the same order, or an InputError."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.core.config import RowConfig
from tasks.core.dataset import Dataset, InputFile
from tasks.core.errors import InputError
from tasks.ingest.finding.sources import SourceFile
from tasks.ingest.reading.formats import read_file
from tasks.ingest.rows import Fault
from tasks.storage.checksums import content_digest

_TABLES = ("parquet", "arrow")
_REMEDY = "put it back, or export without --join"


@dataclass(frozen=True, slots=True)
class Original:
    """One input file, and how its rows were read."""

    file: InputFile
    config: RowConfig

    @property
    def path(self) -> Path:
        return Path(self.file.path)

    @property
    def is_table(self) -> bool:
        """Whether its columns have types of their own."""
        return (self.config.format or self._source_file.format) in _TABLES

    @property
    def _source_file(self) -> SourceFile:
        return SourceFile(self.file.source, self.path, self.file.name, self.file.origin, self.file.format)

    def rows(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Each row's line and its columns; one that could not be read has none."""
        for row in read_file(self._source_file, self.config):
            yield row.line, {} if isinstance(row.content, Fault) else row.content

    def check(self) -> None:
        """Raises InputError when the file is gone, or its bytes are not those that were read."""
        wanted = self.file.digest
        try:
            found = content_digest(self.path)
        except FileNotFoundError as error:
            what = f"{self.path}, the copy of {self.file.origin}," if self.file.origin else self.path
            raise InputError(f"{what} is not there any more, and --join needs it: {_REMEDY}") from error
        except OSError as error:
            raise InputError(f"cannot read {self.path}, which --join needs: {error.strerror}") from error
        if wanted and found != wanted:
            raise InputError(f"{self.path} has changed since the run has read it: {_REMEDY}")


def originals(dataset: Dataset, source: str | None) -> list[Original]:
    """The input files in the order of the dataset's rows, of one source where that is given. Raises InputError."""
    if not dataset.inputs:
        raise InputError("the run did not note where its input lay, as an older version made it: export without --join")
    files = sorted(dataset.inputs, key=lambda file: (file.source, file.name))
    chosen = [file for file in files if source in (None, file.source)]
    return [Original(file, RowConfig(**dataset.rows_of.get(file.source, {}))) for file in chosen]
