"""Counter blocks of the words of many rows."""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import kernel


@kernel
def write_counters(common: np.ndarray, names: np.ndarray, members: np.ndarray, counters: np.ndarray) -> None:
    """What the blocks of all rows have in common, and what each row has.

    Parameters
    ----------
    common : uint64[2 k]
        Both halves of each block's counter, one after the other, without what is a row's own.
    names, members : uint64[n]
        Each row's part of the first and of the second halves.
    counters : uint64[n, 2 k]
        Receives the counters; the bytes of all are in the cipher's order.
    """
    for row in range(names.size):
        name, member, own = names[row], members[row], counters[row]
        # One loop over all halves: vectors take it as it lies.
        for half in range(common.size):
            own[half] = common[half] | (member if half & 1 else name)
