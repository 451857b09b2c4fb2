"""Sums over ranges of a published stream, from block prefix sums.

n values, blocks of g; ``prefix[j]`` is the sum of the first j whole blocks.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import inline, kernel


@kernel
def prefix_blocks(values: np.ndarray, block: int, prefix: np.ndarray) -> None:
    """Fill ``prefix`` (float64[n // g + 1]) from ``values`` (float64[n])."""
    total = 0.0
    prefix[0] = 0.0
    for j in range(prefix.size - 1):
        part = values[j * block : (j + 1) * block]
        # Four running sums: short dependency chains, and less rounding than one.
        a = b = c = d = 0.0
        quads = part.size // 4 * 4
        for i in range(0, quads, 4):
            a += part[i]
            b += part[i + 1]
            c += part[i + 2]
            d += part[i + 3]
        for i in range(quads, part.size):
            a += part[i]
        total += (a + b) + (c + d)
        prefix[j + 1] = total


@inline
def _sum_before(values: np.ndarray, prefix: np.ndarray, block: int, stop: int) -> float:
    j = stop // block
    total: float = prefix[j]
    rest = 0.0
    for i in range(j * block, stop):
        rest += values[i]
    return total + rest


@kernel
def sum_ranges(
    values: np.ndarray, prefix: np.ndarray, block: int, starts: np.ndarray, stops: np.ndarray, out: np.ndarray
) -> None:
    """Sum of values[start:stop] for each query: out is float64[q], starts and stops int64[q]."""
    for k in range(out.size):
        out[k] = _sum_before(values, prefix, block, stops[k]) - _sum_before(values, prefix, block, starts[k])
