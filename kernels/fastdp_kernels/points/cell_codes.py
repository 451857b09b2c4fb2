"""Cells of a fixed decomposition: points to path codes, codes to bounds, points in cells.

A box is cut along its axes in turn into ``fan_out`` equal parts (PHDStream section 3.1); a cell of depth k has a code
of k digits.  Cells are half-open, closed at the box's upper end.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import inline, kernel


@inline
def border(low: float, high: float, index: np.int64, parts: np.int64) -> float:
    """Lower end of part ``index`` of ``parts`` of [low, high]; ``high`` after the last."""
    if index >= parts:
        return high
    # index / parts is correctly rounded, so equal fractions give equal borders at every depth.
    return min(low + (high - low) * (np.float64(index) / np.float64(parts)), high)


@inline
def part_of(x: float, low: float, high: float, parts: np.int64) -> np.int64:
    """Part of [low, high] that holds x: the last with a lower end up to x."""
    last = parts - np.int64(1)
    guess = np.int64((x - low) / (high - low) * np.float64(parts))
    begin = max(min(guess, last), np.int64(0))
    stride = np.int64(1)
    # Rounding may put the guess beside its part, by far if cells are finer than floats: search outwards from it.
    while begin > 0 and x < border(low, high, begin, parts):
        begin = max(begin - stride, np.int64(0))
        stride *= 2
    end = begin
    stride = np.int64(1)
    while end < last and x >= border(low, high, end + np.int64(1), parts):
        end = min(end + stride, last)
        stride *= 2
    while begin < end:
        middle = end - (end - begin) // 2
        if x >= border(low, high, middle, parts):
            begin = middle
        else:
            end = middle - np.int64(1)
    return begin


@kernel
def encode_points(
    points: np.ndarray, low: np.ndarray, high: np.ndarray, fan_out: int, depth: int, out: np.ndarray
) -> None:
    """Fill path codes, int64[n], of points float64[n, d] inside [low, high]."""
    dimension = low.size
    for i in range(points.shape[0]):
        out[i] = 0
    # The last cut is the last digit; each axis gives its digits from the finest cut up.
    for axis in range(dimension):
        cuts = (depth - axis + dimension - 1) // dimension
        if cuts <= 0:
            break
        parts = np.int64(1)
        for _ in range(cuts):
            parts *= fan_out
        lowest = np.int64(1)
        for _ in range(depth - 1 - (axis + (cuts - 1) * dimension)):
            lowest *= fan_out
        stride = np.int64(1)
        for _ in range(dimension if cuts > 1 else 0):
            stride *= fan_out
        for i in range(points.shape[0]):
            index = part_of(points[i, axis], low[axis], high[axis], parts)
            place = lowest
            code = np.int64(0)
            for cut in range(cuts):
                # The common case without divisions.
                if fan_out == 2:
                    code += (index & 1) * place
                    index >>= 1
                else:
                    code += index % fan_out * place
                    index //= fan_out
                if cut < cuts - 1:
                    place *= stride
            out[i] += code


@kernel
def decode_cells(
    codes: np.ndarray,
    depths: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    fan_out: int,
    lower: np.ndarray,
    upper: np.ndarray,
) -> None:
    """Fill the bounds, float64[n, d], of cells with these codes and depths."""
    dimension = low.size
    for i in range(codes.size):
        depth = depths[i]
        for axis in range(dimension):
            code = codes[i]
            index = np.int64(0)
            parts = np.int64(1)
            for level in range(depth - 1, -1, -1):
                if level % dimension == axis:
                    index += code % fan_out * parts
                    parts *= fan_out
                code //= fan_out
            lower[i, axis] = border(low[axis], high[axis], index, parts)
            upper[i, axis] = border(low[axis], high[axis], index + np.int64(1), parts)


@kernel
def decode_tree(
    starts: np.ndarray,
    parent: np.ndarray,
    first: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    fan_out: int,
    index: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
) -> None:
    """Fill the bounds, float64[v, d], of all nodes in breadth-first order, from the root's.

    ``starts``: first node of each depth, then their number; ``index``, int64[v, d], is scratch.
    """
    dimension = low.size
    for axis in range(dimension):
        index[0, axis] = 0
        lower[0, axis] = low[axis]
        upper[0, axis] = high[axis]
    for depth in range(1, starts.size - 1):
        cut = (depth - 1) % dimension
        parts = np.int64(1)
        for _ in range((depth - 1) // dimension + 1):
            parts *= fan_out
        for i in range(starts[depth], starts[depth + 1]):
            p = parent[i]
            for axis in range(dimension):
                index[i, axis] = index[p, axis]
                lower[i, axis] = lower[p, axis]
                upper[i, axis] = upper[p, axis]
            index[i, cut] = index[p, cut] * fan_out + i - first[p]
            lower[i, cut] = border(low[cut], high[cut], index[i, cut], parts)
            upper[i, cut] = border(low[cut], high[cut], index[i, cut] + np.int64(1), parts)


@kernel
def round_counts(counts: np.ndarray, uniforms: np.ndarray, out: np.ndarray) -> np.int64:
    """Round counts, float64[n] >= 0, up with the probability of their fraction; returns the sum."""
    total = np.int64(0)
    for i in range(counts.size):
        whole = np.floor(counts[i])
        out[i] = np.int64(whole) + (1 if uniforms[i] < counts[i] - whole else 0)
        total += out[i]
    return total


@kernel
def place_points(lower: np.ndarray, upper: np.ndarray, counts: np.ndarray, out: np.ndarray) -> None:
    """Turn uniform numbers, float64[sum of counts, d], into points of the boxes, in place (PHDStream Eq. 5)."""
    k = 0
    for i in range(counts.size):
        for _ in range(counts[i]):
            for axis in range(lower.shape[1]):
                low = lower[i, axis]
                high = upper[i, axis]
                place = low + (high - low) * out[k, axis]
                # Rounding must not put it on the border, which is the next cell's.
                out[k, axis] = place if place < high else max(low, np.nextafter(high, low))
            k += 1
