"""Sums over ranges of a published stream: from block prefix sums, or from the fewest nodes of a hierarchy.

Stream i lies in [borders[i], borders[i + 1]); ``prefix[j]`` is the sum of its first j full blocks.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import inline, kernel


@kernel
def prefix_blocks(
    values: np.ndarray, borders: np.ndarray, block: int, places: np.ndarray, prefix: np.ndarray
) -> None:
    """Fill block prefix sums of stream i into prefix[places[i]:places[i + 1]]."""
    for stream in range(borders.size - 1):
        own, sums = values[borders[stream] : borders[stream + 1]], prefix[places[stream] : places[stream + 1]]
        total = 0.0
        sums[0] = 0.0
        for j in range(sums.size - 1):
            part = own[j * block : (j + 1) * block]
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
            sums[j + 1] = total


@inline
def sum_before(values: np.ndarray, prefix: np.ndarray, block: int, stop: int) -> float:
    """Sum of values[:stop]."""
    j = stop // block
    total: float = prefix[j]
    rest = 0.0
    for i in range(j * block, stop):
        rest += values[i]
    return total + rest


@kernel
def sum_ranges(
    values: np.ndarray,
    borders: np.ndarray,
    prefix: np.ndarray,
    places: np.ndarray,
    block: int,
    streams: np.ndarray,
    starts: np.ndarray,
    stops: np.ndarray,
    out: np.ndarray,
) -> None:
    """Sum values[start:stop] of stream streams[k] for each query k: float64[q]."""
    for k in range(out.size):
        i = streams[k]
        own = values[borders[i] : borders[i + 1]]
        sums = prefix[places[i] : places[i + 1]]
        out[k] = sum_before(own, sums, block, stops[k]) - sum_before(own, sums, block, starts[k])


@kernel
def sum_nodes(
    nodes: np.ndarray,
    leaves: int,
    fan_out: int,
    levels: int,
    tree_values: int,
    starts: np.ndarray,
    stops: np.ndarray,
    out: np.ndarray,
) -> None:
    """Answer ranges [start, stop), float64[q], from the fewest released nodes that tile them.

    ``nodes``: float64[trees, nodes], of trees that serve ``tree_values`` values.
    """
    for k in range(out.size):
        total = 0.0
        begin = starts[k]
        while begin < stops[k]:
            tree = begin // tree_values
            end = min(stops[k], (tree + 1) * tree_values)
            low = begin - tree * tree_values
            high = end - tree * tree_values
            start = 0
            width = leaves
            for level in range(levels):
                if level == levels - 1:
                    for j in range(low, high):
                        total += nodes[tree, start + j]
                    break
                while low < high and low % fan_out != 0:
                    total += nodes[tree, start + low]
                    low += 1
                while low < high and high % fan_out != 0:
                    high -= 1
                    total += nodes[tree, start + high]
                if low >= high:
                    break
                low //= fan_out
                high //= fan_out
                start += width
                width //= fan_out
            begin = end
        out[k] = total
