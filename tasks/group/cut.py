"""The trie order of all requests to groups: neighbours, cut where little is shared.

Each row is in one group, and each group of one source. A group ends where its budget is used up, or before that, at the
place in its later half where the least is shared.
"""

import numpy as np
from numpy.typing import NDArray

from tasks.core.config import GroupConfig


def cut(
    source: NDArray[np.int32], num_tokens: NDArray[np.int32], shared: NDArray[np.int32], config: GroupConfig
) -> NDArray[np.int64]:
    """The first row of each group, and the number of rows behind the last, of rows in trie order."""
    total = np.append(np.int64(0), np.cumsum(num_tokens, dtype=np.int64))
    ends = [*(np.flatnonzero(np.diff(source)) + 1).tolist(), len(source)] if len(source) else []
    begins = [0]
    for end in ends:
        while (begin := begins[-1]) < end:
            fits = int(np.searchsorted(total, total[begin] + config.max_group_tokens, "right")) - 1
            last = min(end, begin + config.max_group_rows, max(fits, begin + 1))
            if last < end and (half := begin + (last - begin + 1) // 2) < last:
                last = half + (last - half) - int(np.argmin(shared[half : last + 1][::-1]))
            begins.append(last)
    return np.array(begins, np.int64)
