"""The end of the night: what runs long is started early enough that the engine stays full until all ends nearly at once.

While the plan is worked off at the full rate, a sequence starts when the work before it is done. One that would still run
when all the work is done is late: it is moved to where it starts its own length before the end, and no further, as it leaves
the neighbours with which it shares a prefix. So the order changes only within a few times the longest run of the end, and
there it becomes longest first for what is late. Of sequences without a prediction nothing is known; they keep their order.

Deterministic; numpy alone; a million sequences in a fraction of a second, as all before the first late one is left alone.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROUNDS = 4


def tail_order(cost: Floats, duration: Floats, *, tolerance: float = 0.002) -> Ints:
    """The new order of a plan's sequences, as their old positions.

    `cost`: seconds of the full engine's time that each takes (with n in flight and s seconds a step, s / n a token).
    `duration`: seconds from its start to its end, 0 where that is not known. Both in the plan's order. `tolerance`: how much
    longer than the full rate's time the night may get before anything is moved, as a share.
    """
    order = np.arange(len(cost))
    total = float(cost.sum())
    if not len(cost) or total <= 0:
        return order
    end = total * (1 + tolerance)
    first = int(np.searchsorted(np.cumsum(cost), end - float(duration.max()) * _ROUNDS))
    for _ in range(_ROUNDS):
        part = order[first:]
        starts = _starts(cost[part]) + float(cost[:first].sum())
        late = starts + duration[part] > end
        if not late.any():
            break
        target = np.where(late, total - duration[part], starts)
        order[first:] = part[np.argsort(target, kind="stable")]
    return order


def _starts(cost: Floats) -> Floats:
    """The work before each, in seconds."""
    before: Floats = np.cumsum(cost) - cost
    return before


def full_rate(
    prefill_tokens: Ints, predicted_tokens: Floats, *, num_in_flight: float, prefill_token_s: float, step_s: float
) -> tuple[Floats, Floats]:
    """`cost` and `duration` of sequences with a predicted answer (NaN where there is none), from a step's time.

    `step_s` is what a step lasts with `num_in_flight` decoding; a prefill holds up all of them. What has no prediction costs
    as much as the mean of the others.
    """
    known = np.isfinite(predicted_tokens)
    mean = float(predicted_tokens[known].mean()) if known.any() else 0.0
    tokens = np.where(known, predicted_tokens, mean)
    prefill = prefill_token_s * prefill_tokens
    cost = prefill + tokens * step_s / num_in_flight
    share = float(cost.sum()) / max(float((tokens * step_s / num_in_flight).sum()), 1e-12)
    return cost, np.where(known, prefill + tokens * step_s * share, 0.0)
