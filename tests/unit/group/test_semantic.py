"""Meaning: the real encoder."""

import numpy as np
import pytest

from tasks.engine.models import resolve_encoder
from tasks.group.clusters import split
from tasks.group.semantic import SentenceEncoder

CARDS = ["I lost my bank card", "My card was stolen", "Where is my new card?", "My card has not arrived"]
RATES = ["What exchange rate do you use?", "How do you set exchange rates?", "Euro to dollar rate?", "Is the rate fair?"]


@pytest.mark.filterwarnings("ignore")  # the libraries' own deprecations
def test_requests_about_one_thing_come_together() -> None:
    """Cards and exchange rates, mixed, fall into the two clusters a person would make."""
    encoder = SentenceEncoder(resolve_encoder("all-MiniLM-L6-v2").path)
    texts = [text for pair in zip(CARDS, RATES, strict=True) for text in pair]
    embeddings = encoder.embed(texts)
    assert embeddings.shape == (8, 384)
    assert np.allclose(np.linalg.norm(embeddings, axis=1), 1, atol=1e-5)
    labels = split(embeddings, 4).labels.tolist()
    assert len({*labels[::2]}) == len({*labels[1::2]}) == 1
    assert len({*labels}) == 2


@pytest.mark.filterwarnings("ignore")  # the libraries' own deprecations
def test_what_is_read_whole() -> None:
    """The encoder reads short texts of words that it knows; no long one, whose end it cuts off, nor unknown characters."""
    encoder = SentenceEncoder(resolve_encoder("all-MiniLM-L6-v2").path)
    texts = [CARDS[0], "card " * 254, "card " * 255, "你好，世界", "Karte verloren, naïve?", "x" * 30_000, "\U0001f469"]
    assert encoder.reads_whole(texts) == [True, True, False, False, True, False, False]
    assert encoder.reads_whole([]) == []
