"""The likely lengths of all answers of a night, learnt from the answers of earlier ones."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tasks.group.arrange import Arranged
from tasks.group.lengths import learn
from tasks.group.static import StaticEncoder
from tasks.storage.history import Answers
from tasks.storage.prompts import PromptFile

QUANTILES = (0.5, 0.95)
"""The likely length, and one that hardly any answer exceeds."""


def predicted(
    arranged: Arranged, prompts: PromptFile, answers: Answers, open_encoder: Callable[[], StaticEncoder]
) -> NDArray[np.int32]:
    """Both lengths of each row, shape (2, rows), in tokens; -1 for sources that were never answered. Some thousand prompts
    in memory at a time."""
    encoder = open_encoder()
    model = learn(answers, encoder)
    takes_vectors = not model.needs_vectors.isdisjoint(arranged.sources)
    lengths, begin = np.empty((len(QUANTILES), len(arranged.source)), np.int32), 0
    for batch in prompts.batches():
        rows = slice(begin, begin + len(batch))
        known = arranged.source[rows], batch.num_tokens, arranged.max_tokens[rows]
        of_batch = encoder.embed_tokens(batch.token_ids, batch.offsets) if takes_vectors else None
        for row, quantile in zip(lengths, QUANTILES, strict=True):
            row[rows] = model.predict(arranged.sources, *known, of_batch, quantile)
        begin += len(batch)
    return lengths
