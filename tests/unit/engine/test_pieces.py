"""Token ids by pieces: those of the library, for any text, or no encoder at all."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from tasks.engine.models import resolve_model
from tasks.engine.pieces import piece_encoder

CORE = Tokenizer.from_file(str(resolve_model("SmolLM2-135M-Instruct").path / "tokenizer.json"))
SPECIAL = sorted(token.content for token in CORE.get_added_tokens_decoder().values())
PIECES = st.text(max_size=12) | st.sampled_from(
    [*SPECIAL, " ", "\n", "\n\n", "  a", "12 345", "it's", "<|im_", "end|>", "<", "é"]
)
TEXTS = st.lists(st.lists(PIECES, max_size=8).map("".join), max_size=6)


@settings(max_examples=80, deadline=None)
@given(TEXTS, TEXTS)
def test_ids_are_those_of_the_whole_text(first: list[str], second: list[str]) -> None:
    """For any texts with special tokens, whole and in parts, anywhere; also when their pieces came before."""
    encoder = piece_encoder(CORE)
    assert encoder is not None
    for texts in (first, second, first):
        assert encoder.encode(texts) == [CORE.encode(text, add_special_tokens=False).ids for text in texts]


def test_old_pieces_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is bounded, and what is forgotten is encoded again."""
    monkeypatch.setattr("tasks.engine.pieces._MAX_KEPT_CHARS", 100)
    encoder = piece_encoder(CORE)
    assert encoder is not None
    texts = [f"piece number {i}<|im_end|>piece number {i}" for i in range(200)]
    assert [encoder.encode([text])[0] for text in texts] == [
        CORE.encode(text, add_special_tokens=False).ids for text in texts
    ]
    assert len(encoder._young) + len(encoder._old) < 30


def bpe(**options: Any) -> Tokenizer:
    core = Tokenizer(models.BPE({"a": 0, "b": 1, "<s>": 2}, [], **options))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return core


def test_tokenizers_that_carry_over_have_none() -> None:
    """A prefix space, a normalizer, a token that takes the white space beside it, chance: such texts are encoded whole."""
    assert piece_encoder(bpe()) is not None
    assert piece_encoder(bpe(dropout=0.1)) is None
    prefixed, metaspace, lowered, greedy, bare = (bpe() for _ in range(5))
    prefixed.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    metaspace.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.Metaspace()])
    lowered.normalizer = normalizers.Lowercase()
    greedy.add_special_tokens([AddedToken("<s>", lstrip=True, normalized=False)])
    bare.pre_tokenizer = None
    assert [piece_encoder(core) for core in (prefixed, metaspace, lowered, greedy, bare)] == [None] * 5
    assert piece_encoder(Tokenizer(models.WordPiece({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))) is None
