"""Counter blocks of the words of many rows."""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import kernel


@kernel
def write_counters(
    high: np.ndarray, low: np.ndarray, names: np.ndarray, members: np.ndarray, counters: np.ndarray
) -> None:
    """What the blocks of all rows have in common, and what each row has.

    Parameters
    ----------
    high, low : uint64[k]
        Both halves of each block's counter without what is a row's own.
    names, members : uint64[n]
        Each row's part of the halves.
    counters : uint64[n, k, 2]
        Receives the counters; the bytes of all are in the cipher's order.
    """
    for row in range(names.size):
        name, member, own = names[row], members[row], counters[row]
        for block in range(high.size):
            own[block, 0] = high[block] | name
            own[block, 1] = low[block] | member
