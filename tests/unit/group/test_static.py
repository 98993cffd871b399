"""The static encoder: what is alike is near in any script, and the vectors are the same however they are computed."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.engine.embeddings import find_embeddings
from tasks.engine.models import resolve_model
from tasks.engine.tokenizer import ModelTokenizer
from tasks.group import kernels, static
from tasks.group.static import StaticEncoder, open_static_encoder

Csr = tuple[NDArray[np.int32], NDArray[np.int64]]

CARDS = ["I lost my bank card", "My card was stolen", "Where is my new card?", "My card has not arrived"]
RATES = ["What exchange rate do you use?", "How do you set exchange rates?", "Euro to dollar rate?", "Is the rate fair?"]
THAI = ["บัตรของฉันหาย", "บัตรของฉันถูกขโมย", "อัตราแลกเปลี่ยนเท่าไร", "อัตราแลกเปลี่ยนวันนี้"]
CHINESE = ["我的银行卡丢了", "我的银行卡被偷了", "汇率是多少?", "今天的汇率"]
ARABIC = ["فقدت بطاقتي المصرفية", "سرقت بطاقتي المصرفية", "ما هو سعر الصرف", "سعر الصرف اليوم"]


def csr(rows: list[list[int]]) -> Csr:
    """Rows as flat ids and offsets."""
    ids = np.array([token for row in rows for token in row], dtype=np.int32)
    return ids, np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)


def random_rows(number: int, longest: int = 40) -> Csr:
    rng = np.random.default_rng(0)
    return csr([rng.integers(0, 500, rng.integers(0, longest)).tolist() for _ in range(number)])


@pytest.fixture(scope="module")
def tokenizer() -> ModelTokenizer:
    return ModelTokenizer(resolve_model("SmolLM2-135M-Instruct").path, None)


def embed(texts: list[str], tokenizer: ModelTokenizer) -> NDArray[np.float32]:
    encoder = open_static_encoder(resolve_model("SmolLM2-135M-Instruct").path, tokenizer.vocab_size)
    rows = csr(tokenizer.encode(texts, rendered=[True] * len(texts)))
    encoder.fit(*rows)
    return encoder.embed_tokens(*rows)


@pytest.mark.filterwarnings("ignore")  # the libraries' own deprecations
def test_related_questions_are_near(tokenizer: ModelTokenizer) -> None:
    """Questions on cards are nearer to each other on the whole than to those on exchange rates."""
    vectors = embed(CARDS + RATES, tokenizer)
    assert vectors.shape == (8, static.DIMENSION)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    cosines = vectors @ vectors.T
    within = (cosines[:4, :4].sum() + cosines[4:, 4:].sum() - 8) / 24
    assert within > cosines[:4, 4:].mean() + 0.05


@pytest.mark.filterwarnings("ignore")  # the libraries' own deprecations
@pytest.mark.parametrize("texts", [THAI, CHINESE, ARABIC], ids=["Thai", "Chinese", "Arabic"])
def test_scripts_in_pieces(texts: list[str], tokenizer: ModelTokenizer) -> None:
    """Where tokens are pieces of characters, the text with most in common is the nearest one as well."""
    cosines = embed(texts, tokenizer) @ embed(texts, tokenizer).T - 2 * np.eye(4)
    assert cosines.argmax(axis=1).tolist() == [1, 0, 3, 2]


def test_what_all_prompts_have_weighs_nothing() -> None:
    """A common system prompt does not change the vectors."""
    ids, offsets = random_rows(60)
    bare = [ids[start:end].tolist() for start, end in pairwise(offsets)]
    bare = [row for row in bare if row]
    framed = [[900, 901, 902, *row, 903] for row in bare]
    vectors = []
    for rows in (bare, framed):
        encoder = open_static_encoder(None, 1000)
        encoder.fit(*csr(rows))
        vectors.append(encoder.embed_tokens(*csr(rows)))
    cosines = (vectors[0] * vectors[1]).sum(axis=1)
    assert cosines.min() > 0.8  # pairs over the frame's edge are the difference
    assert np.median(cosines) > 0.95


def test_batches_and_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bytes in one batch or in many, by one thread or by several, counted at once or in turn."""
    ids, offsets = random_rows(300)
    whole, pieces = open_static_encoder(None, 500), open_static_encoder(None, 500)
    whole.fit(ids, offsets)
    for start in range(0, 300, 70):
        pieces.fit(ids, offsets[start : start + 71])
    wanted = whole.embed_tokens(ids, offsets)
    monkeypatch.setattr(static, "_ROWS_AT_ONCE", 7)
    assert pieces.embed_tokens(ids, offsets).tobytes() == wanted.tobytes()
    monkeypatch.setattr(static, "_num_threads", lambda: 1)
    assert pieces.embed_tokens(ids, offsets).tobytes() == wanted.tobytes()


def test_rows_that_say_nothing_are_zero() -> None:
    """An empty prompt, and prompts that are all the same, have no direction."""
    encoder = open_static_encoder(None, 10)
    rows = csr([[], [1, 2, 3], [1, 2, 3]])
    encoder.fit(*rows)
    assert not encoder.embed_tokens(*csr([[]])).any()
    encoder = open_static_encoder(None, 10)
    encoder.fit(*csr([[1, 2, 3], [1, 2, 3]]))
    assert not encoder.embed_tokens(*csr([[1, 2, 3]])).any()


def test_long_prompts_are_read_at_both_ends() -> None:
    """Beyond the limit the middle is left out, and the sum does not overflow."""
    half = kernels.MAX_READ // 2
    head, tail = [1, 2] * (half // 2), [3, 4] * (half // 2)
    encoder = open_static_encoder(None, 10)
    encoder.fit(*csr([[7], [8]]))
    short, long = encoder.embed_tokens(*csr([head + tail, [*head, *([9] * 50_000), *tail]]))
    assert short @ long > 0.999
    assert np.linalg.norm(long) == pytest.approx(1)


@pytest.mark.parametrize("token", [-1, 500])
def test_ids_beyond_the_vocabulary_are_refused(token: int) -> None:
    """The compiled code never sees an id that it has no vector for."""
    encoder = open_static_encoder(None, 500)
    for use in (encoder.fit, encoder.embed_tokens):
        with pytest.raises(ValueError, match="token ids must be from 0 to 499"):
            use(*csr([[1, token]]))


def test_a_folder_without_weights_gives_random_vectors(tmp_path: Path) -> None:
    """No matrix, or a file that is none: the encoder works on words alone."""
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 64)
    (tmp_path / "other.safetensors").write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00no json!")
    assert find_embeddings(tmp_path) is None
    encoder = open_static_encoder(tmp_path, 50)
    assert isinstance(encoder, StaticEncoder)
    encoder.fit(*csr([[1, 2], [3, 4]]))
    same, other = encoder.embed_tokens(*csr([[1, 2], [3, 4]])) @ encoder.embed_tokens(*csr([[1, 2]]))[0]
    assert same == pytest.approx(1)
    assert abs(other) < 0.4


def test_the_matrix_is_the_models(tmp_path: Path) -> None:
    """bfloat16, float16 and float32 rows come out as they went in, under any of the usual names."""
    from safetensors.numpy import save_file

    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    for name, kind in (("model.embed_tokens.weight", np.float32), ("transformer.wte.weight", np.float16)):
        save_file({name: rows.astype(kind), "lm_head.weight": rows}, tmp_path / "model.safetensors")
        found = find_embeddings(tmp_path)
        assert found is not None
        assert np.array_equal(np.concatenate(list(found.chunks())), rows)
    default = find_embeddings(resolve_model("SmolLM2-135M-Instruct").path)
    assert default is not None
    assert (default.kind, default.num_rows, default.num_columns) == ("BF16", 49152, 576)
    first = next(default.chunks())
    assert np.isfinite(first).all()
    assert 0.01 < first.std() < 1
