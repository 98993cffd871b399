"""How much of the work ahead is prefill, along the night: what the governor feeds forward."""

import numpy as np
from numpy.typing import NDArray

from tasks.core.step import PREFILL_STEPS

NUM_SLICES = 256


def prefill_shares(
    prefill_tokens: NDArray[np.int64], output_tokens: NDArray[np.int64], num_in_flight: int, num_slices: int = NUM_SLICES
) -> list[float]:
    """For equal slices of the sequences in order, the share of the engine's time that goes into their prompts. A sequence
    has `prefill_tokens` to compute and an answer of `output_tokens`, of which a step gives one to each in flight."""
    number = min(num_slices, len(prefill_tokens))
    if not number:
        return []
    begins = np.arange(number) * len(prefill_tokens) // number
    prefill = np.add.reduceat(prefill_tokens, begins) * PREFILL_STEPS
    decode = np.add.reduceat(output_tokens, begins) / num_in_flight
    shares: NDArray[np.float64] = prefill / np.maximum(prefill + decode, 1e-9)
    return [round(share, 4) for share in shares.tolist()]
