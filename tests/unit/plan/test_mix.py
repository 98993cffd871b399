"""How much of the work ahead is prefill."""

import numpy as np
import pytest

from tasks.core.step import PREFILL_STEPS
from tasks.plan.mix import prefill_shares


def test_shares_are_of_the_engines_time() -> None:
    """Prompts count in steps by their tokens, answers by their tokens over what is in flight."""
    prefill = np.array([512, 512, 0, 5120], np.int64)
    output = np.array([10, 10, 10, 0], np.int64)
    assert prefill_shares(prefill, output, 10, num_slices=4) == pytest.approx([0.5, 0.5, 0.0, 1.0])
    assert prefill_shares(prefill, output, 10, num_slices=2) == pytest.approx([0.5, 10 / 11], abs=1e-4)
    assert pytest.approx(1 / 512) == PREFILL_STEPS


def test_fewer_sequences_than_slices() -> None:
    """Each sequence is a slice, and no sequences have none."""
    assert prefill_shares(np.array([512]), np.array([1]), 1) == [0.5]
    assert prefill_shares(np.empty(0, np.int64), np.empty(0, np.int64), 8) == []
