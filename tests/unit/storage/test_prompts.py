"""The file of prompts: read by row, in small batches, and named when it is damaged."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tasks.core.errors import DamageError
from tasks.storage.prompts import LABELS, PromptFile, Prompts, prompt_writer


def prompts(lengths: list[int], first: int = 0) -> Prompts:
    """Prompt i has so many tokens, each of them `first` + i."""
    offsets = np.cumsum([0, *lengths]).astype(np.int64)
    token_ids = np.repeat(np.arange(first, first + len(lengths), dtype=np.int32), lengths)
    labels = [{"request_id": f"r{first + i}", "sampling": "{}", "n": 1, "max_tokens": 2} for i in range(len(lengths))]
    return Prompts(token_ids, offsets, pa.RecordBatch.from_pylist(labels, schema=LABELS))


def test_each_row_is_found(tmp_path: Path) -> None:
    """Rows of all lengths, over many batches, come back by their number, in any order and again."""
    lengths = [1, 0, 700_000, 400_000, 3, *[2] * 9000, 1_500_000, 1]
    with prompt_writer(tmp_path / "p.arrow") as writer:
        writer.append(prompts(lengths))
        writer.append(prompts([5, 6], first=len(lengths)))
    with PromptFile(tmp_path / "p.arrow") as file:
        assert len(file) == len(lengths) + 2
        for row in (9006, 0, 2, 1, 3, 4500, 9005, 2, 9007, 9008):
            found = file.token_ids(row)
            assert len(found) == [*lengths, 5, 6][row]
            assert (found == row).all()
        sizes = [len(batch.token_ids) for batch in file.batches()]
        assert max(sizes) == 1_500_000
        assert sorted(sizes)[-2] <= 1 << 20
        ids = [request_id for batch in file.labels() for request_id in batch["request_id"].to_pylist()]
        assert ids == [f"r{i}" for i in range(len(lengths) + 2)]


def test_slices_stand_alone() -> None:
    """A slice has its own tokens and labels."""
    part = prompts([1, 2, 3, 4]).slice(1, 3)
    assert part.token_ids.tolist() == [1, 1, 2, 2, 2]
    assert part.strings("request_id") == ["r1", "r2"]
    assert part.num_tokens.tolist() == [2, 3]


@pytest.mark.parametrize("damage", ["cut", "garbage"])
def test_damage_is_named(tmp_path: Path, damage: str) -> None:
    """A file that is cut off, or is none, raises DamageError with its name."""
    path = tmp_path / "p.arrow"
    with prompt_writer(path) as writer:
        writer.append(prompts([2] * 100))
    path.write_bytes(path.read_bytes()[:-200] if damage == "cut" else b"no arrow at all")
    with pytest.raises(DamageError, match=r"p\.arrow is damaged"):
        PromptFile(path)
