"""Whose turn it is: batches of several sources to one order.

A source's batches keep their order, which is that of the trie. The more urgent source goes first. Sources that are equally
urgent take turns, so that none waits for the whole night: a turn goes to the one that has had the least work so far
(start-time fair queueing, Goyal, Vin and Cheng 1996, with equal weights). A turn ends only where going on later costs next
to nothing: where the prefix that must then be computed again is a small share of the turn's own work.
"""

import heapq

import numpy as np
from numpy.typing import NDArray

from tasks.plan.batches import Batches, Rows

MAX_LOSS = 0.002
"""The largest part of a turn's work that may be done again for the sake of taking turns."""


def in_turns(rows: Rows, units: Batches, urgency: NDArray[np.int32], max_loss: float = MAX_LOSS) -> NDArray[np.int64]:
    """The batches' indices in the order of the night; `urgency` is of each source, the smaller the sooner."""
    if not len(units):
        return np.empty(0, np.int64)
    source = rows.source[units.first_rows]
    computed = np.maximum(rows.num_prompt - rows.shared, 1) + rows.expected_output
    work = np.add.reduceat(computed[units.order], units.begins[:-1])
    turns = _turns(source, rows.shared[units.first_rows], work, max_loss)
    queues: dict[int, list[tuple[range, int]]] = {}
    for turn in turns:
        queues.setdefault(int(source[turn.start]), []).append((turn, int(work[turn.start : turn.stop].sum())))
    waiting = [(int(urgency[of]), 0, of, 0) for of in queues]
    heapq.heapify(waiting)
    order: list[int] = []
    while waiting:
        urgent, served, of, place = heapq.heappop(waiting)
        turn, cost = queues[of][place]
        order.extend(turn)
        if place + 1 < len(queues[of]):
            heapq.heappush(waiting, (urgent, served + cost, of, place + 1))
    return np.array(order, np.int64)


def _turns(source: NDArray[np.int32], shared: NDArray[np.int32], work: NDArray[np.int64], max_loss: float) -> list[range]:
    """Neighbouring batches that go together; `shared` is what a batch has in common with the one before it."""
    turns, begin, done = [], 0, 0
    for i, cost in enumerate(work.tolist()):
        if i > begin and (source[i] != source[begin] or shared[i] <= max_loss * done):
            turns.append(range(begin, i))
            begin, done = i, 0
        done += cost
    return [*turns, range(begin, len(work))]
