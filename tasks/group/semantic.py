"""The sentence encoder: texts to vectors that are near where the texts mean the same.

It is what near-duplicates are told by; lengths of answers are learnt with the static encoder, which is a thousand times as
fast. The libraries are imported when an encoder is opened.
"""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

_BATCH = 64
_READ_AT_ONCE = 4096
_MAX_CHARS_PER_TOKEN = 100
"""A longer word is an unknown one."""


class Encoder(Protocol):
    """Sentences to unit vectors."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Shape (len(texts), dimension); each row has length one."""
        ...

    def reads_whole(self, texts: Sequence[str]) -> list[bool]:
        """Whether a text's vector is one of all of it: no end is cut off, no word is unknown to the model."""
        ...


class SentenceEncoder:
    """A sentence-transformers model from a local folder, on the CPU: the GPU is the engine's."""

    def __init__(self, folder: Path) -> None:
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging

        logging.disable_progress_bar()  # type: ignore[no-untyped-call]

        self._model: Any = SentenceTransformer(str(folder), device="cpu")

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = self._model.encode(
            list(texts), batch_size=_BATCH, normalize_embeddings=True, show_progress_bar=False, convert_to_numpy=True
        )
        return np.asarray(vectors, dtype=np.float32)

    def reads_whole(self, texts: Sequence[str]) -> list[bool]:
        longest, tokenizer = self._model.max_seq_length, self._model.tokenizer
        short = ((i, text) for i, text in enumerate(texts) if len(text) <= longest * _MAX_CHARS_PER_TOKEN)
        is_whole = [False] * len(texts)
        while some := list(islice(short, _READ_AT_ONCE)):
            encoded = tokenizer([text for _, text in some], truncation=False, verbose=False)["input_ids"]
            for (i, _), ids in zip(some, encoded, strict=True):
                is_whole[i] = len(ids) <= longest and tokenizer.unk_token_id not in ids
        return is_whole
