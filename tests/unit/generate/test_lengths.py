"""The survival curves of answer lengths."""

import numpy as np
import pytest

from tasks.generate.lengths import LengthClasses, bin_of, places, scale_of


def told(lengths: "np.ndarray[tuple[int], np.dtype[np.float64]]", limit: float = np.inf) -> tuple[LengthClasses, int]:
    """Classes that have seen answers of these lengths, cut off at a limit."""
    classes = LengthClasses()
    class_ = classes.class_of("source", None)
    for length in lengths:
        classes.reach(class_, 0, bin_of(min(length, limit)))
        if length < limit:
            classes.end(class_, bin_of(length))
    return classes, class_


def survival(classes: LengthClasses, class_: int, tokens: float) -> float:
    return float(np.exp(classes.log_survival(np.array([class_]), places(np.array([tokens])))[0]))


@pytest.mark.parametrize("limit", [np.inf, 300.0])
def test_the_curve_is_that_of_the_lengths_seen(limit: float) -> None:
    """After a thousand answers the share that gets beyond a length is right, also where a limit cuts the longest off."""
    lengths = np.random.default_rng(0).lognormal(np.log(100), 0.8, 1000)
    classes, class_ = told(lengths, limit)
    for tokens in (20, 50, 100, 200):
        assert survival(classes, class_, tokens) == pytest.approx(float(np.mean(lengths > tokens)), abs=0.05)


def test_the_mean_is_that_of_the_lengths_seen() -> None:
    """The expected length regards the limit."""
    lengths = np.random.default_rng(1).exponential(200, 1500)
    classes, class_ = told(lengths)
    for limit in (100, 2000):
        expected = float(np.mean(np.minimum(lengths, limit)))
        assert classes.expected_tokens(class_, 1.0, limit) == pytest.approx(expected, rel=0.12)


def test_a_new_source_is_taken_to_be_like_the_others() -> None:
    """A class of which nothing was seen has the pool's curve; of nothing at all, most answers are long."""
    classes, class_ = told(np.random.default_rng(2).lognormal(np.log(60), 0.5, 800))
    new = classes.class_of("another", None)
    assert survival(classes, new, 60) == pytest.approx(survival(classes, class_, 60), abs=0.1)
    assert survival(LengthClasses(), 0, 500) > 0.5


def test_a_prediction_is_the_median_until_more_is_known() -> None:
    """The first curve of predicted lengths has half of the answers end before their prediction."""
    classes = LengthClasses()
    class_ = classes.class_of("source", 300)
    assert survival(classes, class_, 300 * scale_of(300)) == pytest.approx(0.5, abs=0.05)
    assert classes.expected_tokens(class_, scale_of(300), 10_000) == pytest.approx(300 * np.exp(0.18), rel=0.1)


def test_what_was_long_ago_is_forgotten() -> None:
    """Thousands of answers later the curve is that of the newer ones."""
    classes, class_ = told(np.full(3000, 30.0))
    for _ in range(6000):
        classes.reach(class_, 0, bin_of(200))
        classes.end(class_, bin_of(200))
    assert survival(classes, class_, 100) > 0.75
