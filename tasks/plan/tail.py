"""The end of the night: what runs long is started early enough that the engine stays full until all ends nearly at once.

While the plan is worked off at the full rate, a sequence starts when the work before it is done; it is late where it would
still run when all the work is done. So each has a latest start, and the order is made from the end of the night: each place
goes to the last sequence of the plan that may start so late or, where none may, to the one that may start latest. No order
has a smaller delay at its worst (the rule of Lawler, 1973, for one machine), and what is moved ahead moves no further than
it must be, as it leaves the neighbours with which it shares a prefix. Of sequences without a prediction nothing is known;
they keep their order.

Deterministic. Only the end is looked at, down to the first late one: it is as long as the longest sequence runs.
"""

import heapq

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def tail_order(cost: Floats, duration: Floats, *, tolerance: float = 0.002) -> Ints:
    """The new order of a plan's sequences, as their old positions.

    `cost`: seconds of the full engine's time that each takes (with n in flight and s seconds a step, s / n a token).
    `duration`: seconds from its start to its end, 0 where that is not known. Both in the plan's order. `tolerance`: how much
    longer than the full rate's time the night may get before anything is moved, as a share.
    """
    order = np.arange(len(cost))
    ends = np.cumsum(cost)
    latest = (ends[-1] if len(cost) else 0.0) * (1 + tolerance) - duration
    late = np.flatnonzero(ends - cost > latest)
    if len(late):
        moved = _from_the_end(cost.tolist(), latest.tolist(), float(ends[-1]), int(late[0]))
        order[len(order) - len(moved) :] = moved[::-1]
    return order


def _from_the_end(cost: list[float], latest: list[float], time: float, first_late: int) -> list[int]:
    """The last sequences of the new order, backwards, until the rest of the plan is as it was and none of it is late."""
    taken: list[int] = []
    too_late: list[tuple[float, int]] = []  # passed over: by latest start, the latest first
    may_start: list[int] = []  # passed over, and early enough now: by place, the last first
    at = len(cost) - 1
    while too_late or may_start or at >= first_late:
        while too_late and -too_late[0][0] >= time - cost[too_late[0][1]]:
            heapq.heappush(may_start, -heapq.heappop(too_late)[1])
        if may_start:
            chosen = -heapq.heappop(may_start)
        elif at < 0:
            chosen = heapq.heappop(too_late)[1]
        else:
            chosen, at = at, at - 1
            if latest[chosen] < time - cost[chosen]:
                heapq.heappush(too_late, (-latest[chosen], chosen))
                continue
        taken.append(chosen)
        time -= cost[chosen]
    return taken


def full_rate(
    prefill_tokens: Ints,
    predicted_tokens: Floats,
    upper_tokens: Floats,
    *,
    num_in_flight: float,
    prefill_token_s: float,
    step_s: float,
) -> tuple[Floats, Floats]:
    """`cost` and `duration` of sequences with a predicted answer (NaN where there is none), from a step's time.

    `upper_tokens` is what hardly any such answer exceeds, a high quantile: it is the length that the night's end has to wait
    for. `step_s` is what a step lasts with `num_in_flight` decoding; a prefill holds up all of them. What has no prediction
    costs as much as the mean of the others.
    """
    known = np.isfinite(predicted_tokens)
    mean = float(predicted_tokens[known].mean()) if known.any() else 0.0
    tokens = np.where(known, predicted_tokens, mean)
    prefill, decode = prefill_token_s * prefill_tokens, tokens * step_s / num_in_flight
    cost = prefill + decode
    slowed = float(cost.sum()) / max(float(decode.sum()), 1e-12)
    return cost, np.where(known, prefill + upper_tokens * step_s * slowed, 0.0)
