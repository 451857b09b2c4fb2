"""The binary tree of Chan, Shi and Song, and Dwork et al., as a running counter (PAK section II-D).

After t values the running sum is tiled by the nodes that the binary digits of t name: for each set bit j the
node of 2^j values that ends at the last multiple of 2^j.  Published is the exact sum plus the noise of these
nodes, which is a sum of noisy node counts.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import kernel, plus


@kernel
def count_on(
    steps: np.ndarray,
    seen: int,
    total: np.int64,
    above: np.ndarray,
    noise: np.ndarray,
    offsets: np.ndarray,
    out: np.ndarray,
) -> np.int64:
    """Publish the running sum after each value.

    Parameters
    ----------
    steps : int64[n]
        The next values, in grid steps.
    seen : int
        Values counted before, t.
    total : int64
        Their exact sum.
    above : int64[levels + 1]
        above[j] is the noise of the open nodes of height j and more; changed in place, 0 at first.
    noise : int64[nodes]
        Noise of the nodes that these values complete, height by height.
    offsets : int64[levels]
        noise[offsets[j] + k] belongs to the node of height j that ends after value (k + 1) 2^j.
    out : int64[n]
        Noisy running sums, modulo 2^64.

    Returns
    -------
    int64
        The exact sum of all values.
    """
    for i in range(steps.size):
        t = seen + i + 1
        total = plus(total, steps[i])
        height = 0
        while (t >> height) & 1 == 0:
            height += 1
        own = noise[offsets[height] + (t >> height) - 1]
        above[height] = plus(above[height + 1], own)
        for j in range(height):
            above[j] = above[height]
        out[i] = plus(total, above[0])
    return total
