"""Position-keyed sampling: right probabilities, and noise that is a function of seed, position and token alone."""

import numpy as np
import pytest

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's import


def softmax(logits: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


def frequencies(logits: np.ndarray, top_k: int = 0, top_p: float = 1.0, draws: int = 20_000) -> np.ndarray:  # type: ignore[type-arg]
    from tasks.engine.sampling import choose

    tokens = [choose(logits, 7, position, top_k, top_p) for position in range(draws)]
    return np.bincount(tokens, minlength=len(logits)) / draws


def test_samples_follow_the_softmax() -> None:
    """Over many positions each token comes up as often as its probability says."""
    logits = np.array([2.0, 1.0, 0.0, -1.0, -60.0], dtype=np.float32)
    assert np.abs(frequencies(logits) - softmax(logits)).max() < 0.01


def test_top_k_and_top_p_cut_the_tail() -> None:
    """Only the k best, or the smallest set that reaches p, are ever chosen, in their own proportions."""
    logits = np.array([0.0, 3.0, 2.0, 1.0], dtype=np.float32)
    expected = softmax(np.array([-99.0, 3.0, 2.0, -99.0]))
    assert np.abs(frequencies(logits, top_k=2) - expected).max() < 0.01
    assert np.abs(frequencies(logits, top_p=0.8) - expected).max() < 0.01
    assert frequencies(logits, top_p=0.01, draws=50).tolist() == [0, 1, 0, 0]


def test_noise_depends_on_seed_position_and_token_only() -> None:
    """The noise of a token is the same whatever the other candidates; another seed or position gives other noise."""
    from tasks.engine.sampling import gumbel

    ids = np.arange(1000)
    noise = gumbel(1, 5, ids)
    assert noise.tolist() == [gumbel(1, 5, ids[i : i + 1])[0] for i in range(1000)]
    assert abs(noise.mean() - 0.5772) < 0.15
    for other in (gumbel(2, 5, ids), gumbel(1, 6, ids)):
        assert abs(np.corrcoef(noise, other)[0, 1]) < 0.1
    assert gumbel(-1, 0, ids).tolist() != gumbel(1, 0, ids).tolist()


def test_golden_noise() -> None:
    """The noise is what it was: a change would give other answers for the same seed."""
    from tasks.engine.sampling import gumbel

    assert gumbel(7, 3, np.array([0, 1, 49151])).round(9).tolist() == GOLDEN


GOLDEN = [0.703916009, -1.013388514, -0.122518236]
