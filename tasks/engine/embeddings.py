"""The input embedding matrix of a model folder, read from its safetensors files without loading the model."""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NAMES = ("embed_tokens.weight", "wte.weight", "embed_in.weight", "word_embeddings.weight", "tok_embeddings.weight")
_KINDS = {"BF16": "<u2", "F16": "<f2", "F32": "<f4"}
_ROWS_AT_ONCE = 8192
_MAX_HEADER_BYTES = 100_000_000


@dataclass(frozen=True, slots=True)
class EmbeddingMatrix:
    """Where the matrix lies: one row a token id."""

    path: Path
    kind: str
    offset: int
    num_rows: int
    num_columns: int

    def chunks(self) -> Iterator[NDArray[np.float32]]:
        """The rows in order, some thousands at a time."""
        shape = (self.num_rows, self.num_columns)
        stored = np.memmap(self.path, dtype=_KINDS[self.kind], mode="r", offset=self.offset, shape=shape)
        for start in range(0, self.num_rows, _ROWS_AT_ONCE):
            rows = np.asarray(stored[start : start + _ROWS_AT_ONCE])
            if self.kind == "BF16":
                yield (rows.astype(np.uint32) << np.uint32(16)).view(np.float32)
            else:
                yield rows.astype(np.float32)


def find_embeddings(folder: Path) -> EmbeddingMatrix | None:
    """The matrix of a folder with safetensors weights; None where there is none, or none in 16 or 32 bits."""
    for path in sorted(folder.glob("*.safetensors")):
        header, start = _header(path)
        for name, entry in sorted(header.items()):
            if name.endswith(_NAMES) and entry["dtype"] in _KINDS and len(entry["shape"]) == 2 and prod(entry["shape"]):
                return EmbeddingMatrix(path, entry["dtype"], start + entry["data_offsets"][0], *entry["shape"])
    return None


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """The tensors of a file by name, and where the data begin; no tensors for a file that is none of this format."""
    with path.open("rb") as stream:
        first = stream.read(8)
        length = struct.unpack("<Q", first)[0] if len(first) == 8 else 0
        if not 0 < length <= _MAX_HEADER_BYTES:
            return {}, 0
        try:
            header: dict[str, Any] = json.loads(stream.read(length))
        except ValueError:
            return {}, 0
    header.pop("__metadata__", None)
    return header, 8 + length
