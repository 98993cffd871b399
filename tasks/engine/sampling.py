"""Position-keyed sampling for vLLM's V1 model runner: a logits processor whose noise has no state.

The token at position p of an answer is arg max over tokens t of logit(t)/temperature + Gumbel(seed, p, t), the Gumbel-max
form of sampling (Maddison et al., "A* Sampling", arXiv 1411.0030). The noise is a hash, so the same seed and position give
the same token in any batch, after any interruption. Top-k and top-p are applied here, to the row's own candidates; the
rest of the row is set to minus infinity, so that whatever vLLM does afterwards, the chosen token comes out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

NUM_SAVED = "nb_num_saved"
"""How many tokens at the end of the prompt are the beginning of the answer."""
SEED, TOP_K, TOP_P = "nb_seed", "nb_top_k", "nb_top_p"
_REACH = 40.0
"""Nats below the best logit that 53-bit noise can still bridge: -log(-log(1 - 2**-53)) is 36.7, and log(37) below it."""


@dataclass(slots=True)
class _Row:
    """One sampled request; `output` is vLLM's live list of the tokens it generated since it was added."""

    seed: int
    num_saved: int
    top_k: int
    top_p: float
    output: Sequence[int]


def _row(params: Any, prompt: Sequence[int] | None, output: Sequence[int]) -> _Row | None:
    extra = params.extra_args or {}
    return _Row(extra[SEED], extra[NUM_SAVED], extra[TOP_K], extra[TOP_P], output) if SEED in extra else None


class PositionKeyedSampler(LogitsProcessor):  # type: ignore[misc]  # vLLM has no types for mypy here
    """Runs after temperature and min-p; greedy rows never reach it."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._rows: dict[int, _Row] = {}

    def is_argmax_invariant(self) -> bool:
        return True

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self._rows, batch_update, _row)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for index, row in self._rows.items():
            values = logits[index].float().cpu().numpy()
            token = choose(values, row.seed, row.num_saved + len(row.output), row.top_k, row.top_p)
            logits[index] = float("-inf")
            logits[index, token] = 0.0
        return logits


def choose(logits: NDArray[np.float32], seed: int, position: int, top_k: int, top_p: float) -> int:
    """The token sampled at `position` from logits of shape (vocabulary,) that temperature has been applied to."""
    candidates = np.flatnonzero(logits > logits.max() - _REACH)
    values = logits[candidates].astype(np.float64)
    if top_k or top_p < 1.0:
        order = np.lexsort((candidates, -values))[: top_k or None]
        candidates, values = candidates[order], values[order]
    if top_p < 1.0:
        weights = np.exp(values - values[0])
        before = np.cumsum(weights) - weights
        kept = before < top_p * weights.sum()
        candidates, values = candidates[kept], values[kept]
    return int(candidates[np.argmax(values + gumbel(seed, position, candidates))])


def gumbel(seed: int, position: int, token_ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Standard Gumbel noise for each token id: a function of its three arguments and of nothing else."""
    state = _mix(np.array([seed & 0xFFFFFFFFFFFFFFFF], dtype=np.uint64))
    state = _mix(state ^ np.uint64(position))
    bits = _mix(state ^ token_ids.astype(np.uint64))
    uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return np.asarray(-np.log(-np.log(uniform)))


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The output function of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
