"""Goal 16 (c): how many distinct experts a decode batch loads, by how its sequences were brought together.

A router of fixed seed stands on the hidden states of the embedded model, in the middle of its layers: each token of an
answer goes to the two of 64 experts whose directions it is nearest to. Two routers: random directions, and the centres of
the states themselves, as a trained router's are nearer to. Sequences of a batch decode side by side from their first token.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUM_EXPERTS, TOP, BATCH, MAX_STEPS = 64, 2, 8, 128
Loads = NDArray[np.bool_]
"""Shape (sequences, steps, experts): which experts a sequence's token of that step goes to; none beyond its end."""


def hidden_states(
    folder: str, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]
) -> list[NDArray[np.float32]]:
    """Of each answer's first tokens, in the middle layer."""
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    layer = model.config.num_hidden_layers // 2
    states = []
    with torch.inference_mode():
        for prompt, answer in zip(prompts, answers, strict=True):
            ids = torch.tensor([[*prompt, *answer[:MAX_STEPS]]])
            found = model(ids, output_hidden_states=True, use_cache=False).hidden_states[layer][0, len(prompt) :]
            states.append(found.numpy())
    return states


def route(states: Sequence[NDArray[np.float32]], router: str) -> Loads:
    """The experts of every token, by that router."""
    flat = np.concatenate(states)
    flat = (flat - flat.mean(axis=0)) / (flat.std(axis=0) + 1e-6)
    if router == "centres":
        from sklearn.cluster import MiniBatchKMeans

        directions = MiniBatchKMeans(NUM_EXPERTS, random_state=0, n_init=1).fit(flat).cluster_centers_
        scores = 2 * flat @ directions.T - (directions**2).sum(axis=1)
    else:
        scores = flat @ np.random.default_rng(0).normal(size=(flat.shape[1], NUM_EXPERTS))
    chosen = np.argpartition(-scores, TOP, axis=1)[:, :TOP]
    loads = np.zeros((len(states), MAX_STEPS, NUM_EXPERTS), dtype=np.bool_)
    start = 0
    for row, of in enumerate(states):
        loads[row, np.arange(len(of))[:, None], chosen[start : start + len(of)]] = True
        start += len(of)
    return loads


def loads_per_token(loads: Loads, order: NDArray[np.intp]) -> NDArray[np.float64]:
    """Distinct experts by token, of each batch of consecutive sequences."""
    batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
    return np.array([loads[rows].any(axis=0).sum() / loads[rows].any(axis=2).sum() for rows in batches])


def oracle_order(loads: Loads) -> NDArray[np.intp]:
    """Greedy, with the experts known: the sequence that adds the fewest for each of its tokens comes next into a batch."""
    left, order = list(range(len(loads))), []
    lengths = np.maximum(loads.any(axis=2).sum(axis=1), 1)
    while left:
        union = loads[left[0]].copy()
        order.append(left.pop(0))
        for _ in range(min(BATCH - 1, len(left))):
            added = (loads[left] & ~union).sum(axis=(1, 2)) / lengths[left]
            best = left.pop(int(added.argmin()))
            union |= loads[best]
            order.append(best)
    return np.array(order)
