"""The double loop of ToPS Appendix B, compiled: what ``smooth_sensitivity`` replaces."""

import numpy as np

from fastdp_kernels._jit import kernel
from fastdp_kernels.streams.threshold_choice import LEAST, SLACK, _at


@kernel
def scan_pairs(values: np.ndarray, bound: int, rank: int, decay: np.ndarray) -> float:
    """Smooth sensitivity by the double loop of ToPS Appendix B: O(m^2), with the early stop.

    Arguments as for ``smooth_sensitivity``; a result in grid steps, at least LEAST.
    """
    best = LEAST
    for k in range(values.size + 2):
        # No later pair can exceed this: entries never increase and differences are at most the bound.
        if np.float64(bound) * decay[k] * SLACK <= best:
            break
        for t in range(k + 2):
            v = min(t, k)
            difference = _at(values, bound, rank + t) - _at(values, bound, rank + t - k - 1)
            best = max(best, difference * decay[v] * decay[k - v])
    return best
