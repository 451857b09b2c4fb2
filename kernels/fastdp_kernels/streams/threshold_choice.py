"""Thresholds from a hold-out: noisy max over a histogram, smooth sensitivity of a quantile."""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import bits_of, inline, kernel
from fastdp_kernels.noise.double_double import two_product
from fastdp_kernels.streams.online_pass import ROUNDER, finite_flag

# Noisy max over a histogram (ToPS section 2.3, Eq. 2; section 3.3, Eq. 6), in integers.
#
# J candidates theta_1 < ... < theta_J; bin j of the histogram counts the values in
# (theta_(j-1), theta_j], bin 0 those at or below 0.

#: The same bits of 1.0.
EIGHTHS = np.int64(1023 << 3)
#: Values a bin from which on four histograms pay, and values that are binned together.
PARTED, PIECE = 16, 1024


@inline
def _bin(value: float, step: float, bins: int) -> float:
    last = np.float64(bins - 1)
    x = np.ceil(value / step)
    x = x if x > 0.0 else 0.0
    return x if x < last else last


@kernel
def bin_values(values: np.ndarray, step: float, counts: np.ndarray) -> bool:
    """Add each value to bin ceil(value / step) of int64[J + 1], clipped to the ends; True if one is not finite."""
    flags = np.int64(0)
    for i in range(values.size):
        flags |= finite_flag(values[i])
        counts[np.int64(_bin(values[i], step, counts.size))] += 1
    return bool(flags < 0)


@kernel
def bin_pieces(values: np.ndarray, step: float, bins: np.ndarray, lanes: np.ndarray, counts: np.ndarray) -> bool:
    """:func:`bin_values` for many values a bin, where each would wait for the one before.

    ``bins``, uint32[PIECE], and ``lanes``, int64[3, J + 1] zeros, are scratch.
    """
    flags = np.int64(0)
    pieces = values.size // PIECE
    for piece in range(pieces):
        part = values[piece * PIECE : (piece + 1) * PIECE]
        for i in range(PIECE):
            flags |= finite_flag(part[i])
            bins[i] = np.uint32(np.int32(_bin(part[i], step, counts.size)))
        _count(bins, counts, lanes)
    for j in range(counts.size):
        counts[j] += lanes[0, j] + lanes[1, j] + lanes[2, j]
    for i in range(pieces * PIECE, values.size):
        flags |= finite_flag(values[i])
        counts[np.int64(_bin(values[i], step, counts.size))] += 1
    return bool(flags < 0)


@inline
def _count(bins: np.ndarray, counts: np.ndarray, lanes: np.ndarray) -> None:
    second, third, fourth = lanes[0], lanes[1], lanes[2]
    for i in range(0, PIECE, 4):
        counts[bins[i]] += 1
        second[bins[i + 1]] += 1
        third[bins[i + 2]] += 1
        fourth[bins[i + 3]] += 1


@inline
def _bin_of_eighth(
    value: float, steps_per_unit: float, top: float, first: np.ndarray, borders: np.ndarray
) -> np.int64:
    x = value * steps_per_unit
    x = x if x > 1.0 else 1.0
    x = x if x < top else top
    steps = (x + ROUNDER) - ROUNDER
    # The exponent and three bits of the mantissa: which eighth of an octave.
    eighth = np.uint32((bits_of(steps) >> 49) - EIGHTHS)
    return np.int64(first[eighth] + np.int64(borders[eighth] < steps))


@kernel
def bin_eighths(
    values: np.ndarray,
    steps_per_unit: float,
    top: float,
    first: np.ndarray,
    borders: np.ndarray,
    bins: np.ndarray,
    lanes: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Round finite values to steps, and add each to the bin, int64[J], of the least candidate not below it.

    ``top``: the largest candidate, below 2^51; ``first``, int64[63 * 8]: at 8 e + k the index of the first candidate
    not below 2^e (1 + k / 8), and ``borders`` itself, a float64; no eighth of an octave holds two.
    """
    pieces = values.size // PIECE
    for piece in range(pieces):
        part = values[piece * PIECE : (piece + 1) * PIECE]
        for i in range(PIECE):
            bins[i] = np.uint32(_bin_of_eighth(part[i], steps_per_unit, top, first, borders))
        _count(bins, counts, lanes)
    for j in range(counts.size):
        counts[j] += lanes[0, j] + lanes[1, j] + lanes[2, j]
    for i in range(pieces * PIECE, values.size):
        counts[_bin_of_eighth(values[i], steps_per_unit, top, first, borders)] += 1


@inline
def choose_candidate(counts: np.ndarray, unit: int, penalties: np.ndarray, noise: np.ndarray) -> int:
    """Lowest index j >= 1 of the largest unit * #{v <= theta_j} - penalty_j + noise_j.

    ``counts``, int64[J + 1]: the histogram; ``unit``: K, a power of two; ``penalties``: rint(K * public term);
    ``noise``: of scale K / epsilon.
    """
    at_most = counts[0]
    best = 0
    best_score = np.int64(0)
    for j in range(penalties.size):
        at_most += counts[j + 1]
        score = unit * at_most - penalties[j] + noise[j]
        if best == 0 or score > best_score:
            best = j + 1
            best_score = score
    return best


@kernel
def bin_rows(values: np.ndarray, starts: np.ndarray, count: int, step: float, histograms: np.ndarray) -> None:
    """Add the first ``count`` finite values of each row to its histogram, int64[n, J + 1]."""
    for row in range(starts.size):
        bin_values(values[starts[row] : starts[row] + count], step, histograms[row])


@kernel
def choose_rows(
    histograms: np.ndarray, unit: int, penalties: np.ndarray, noise: np.ndarray, best: np.ndarray
) -> None:
    """Fill the winner of each row, int64[n]: histograms int64[n or 1, J + 1], noise int64[n, J]."""
    shared = histograms.shape[0] == 1
    for row in range(best.size):
        best[row] = choose_candidate(histograms[0 if shared else row], unit, penalties, noise[row])


# Smooth sensitivity of a quantile: the quadratic scan of the papers, and an exact divide and conquer.
#
# Source: ToPS Appendix B (first formula); PAK section IV-C; Nissim, Raskhodnikova and Smith 2007, section 3.1.
#
# Letters: m sorted values, extended to W(i) = 0 for ranks i < 1, the value of rank i, and W(i) = bound for i > m;
# P the rank of the quantile; k changed values, of which u lie left and v right of P, u + v = k; i < j the ranks
# that a change moves between, so j = P + t and i = P + t - k - 1 in the paper's letters.
#
# Result
#     SS = max of (W(j) - W(i)) e^(-b k) over i <= P <= j, i < j, k = j - i - 1, with v = min(t, k) = j - P (or
#     j - P - 1 for i = P, where all k changes lie right) and u = k - v.  Both kernels, and the oracle, evaluate
#
#         ((W(j) - W(i)) * decay[v]) * decay[u],      decay[k] = e^(-b k),
#
#     in float64.  The weight is a product of two entries instead of one entry decay[u + v] because only so is
#     "the best j moves right with i" a theorem about the numbers of the machine: a table rounded entry by entry
#     is not log-concave, and for small b (where 10^9 pairs may agree within an ulp) no fast algorithm
#     could then promise the scan's last bit.
#
# Requirements (the facade's ``decay_table`` meets them): decay[0] = 1; entries never increase; entries below 2^-900
# are 0; decay[u] decay[v] is at most decay[u + v] (1 + 2^-20) where the latter is not 0 (the scan's early stop alone
# needs this).  0 <= values <= bound <= 2^52, so that differences are exact in float64.
#
# Floor: a result below LEAST = 2^-800 steps counts as LEAST.  The larger of a smooth upper bound and a constant is a
# smooth upper bound, so privacy does not suffer, and no product that matters underflows.
#
# Why divide and conquer gives the scan's last bit
#     1. Rounding is monotone (x <= y implies fl(x) <= fl(y)).  So for a row i the largest value of the formula
#        is that of any j with the largest *exact* product (W(j) - W(i)) decay[j - P].
#     2. For i < i' < P and j < j', with R = decay: R(j') (W(j') - x) - R(j) (W(j) - x) = const + (R(j) - R(j')) x
#        never
#        falls as x grows, because R(j) >= R(j').  So j' at least as good as j in row i is so in row i' (W(i') >=
#        W(i)),
#        and j' better than j in row i' is so in row i.  Hence if j* is *any* exact argument of the maximum of a row,
#        every row below it (larger i) has one at j >= j*, every row above it one at j <= j*: ties included.
#     3. Products are compared exactly: rounded product first, its exact error (Dekker 1971) if those tie.
#     4. Row P (u = 0, v = j - P - 1, another table offset) is walked on its own.
#     5. Pairs left out cannot win, by 1.: of equal W(i) all but the largest i < P and of equal W(j) all but the
#        smallest j (the others have smaller weights), the positions i < 0 and j > m + 1 for the same reason, and
#        blocks [i, i'] x [j, j'] in which the formula at its largest entries, ((W(j') - W(i)) R(j)) decay[P - 1 -
#        i'],
#        does not exceed a value already found.

LEAST = 2.0**-800
#: Bounds the product of two entries of the table by the entry of their sum.
SLACK = 1.0 + 2.0**-20
#: Blocks that wait are at most one for each halving of the rows.
DEEPEST = 64


@inline
def _at(values: np.ndarray, bound: int, rank: int) -> float:
    if rank < 1:
        return 0.0
    if rank > values.size:
        return np.float64(bound)
    return np.float64(values[rank - 1])


@inline
def best_column(x: float, tops: np.ndarray, weights: np.ndarray, first: int, last: int) -> int:
    """Argument of the maximum of (tops[j] - x) * weights[j], first <= j <= last."""
    arg = first
    top = (tops[first] - x) * weights[first]
    for j in range(first + 1, last + 1):
        product = (tops[j] - x) * weights[j]
        if product >= top and (
            product > top or two_product(tops[j] - x, weights[j])[1] > two_product(tops[arg] - x, weights[arg])[1]
        ):
            arg, top = j, product
    return arg


@kernel
def smooth_sensitivity(values: np.ndarray, bound: int, rank: int, decay: np.ndarray) -> float:
    """Smooth sensitivity of a quantile, O(m log m): the double loop of ToPS Appendix B, bit for bit."""
    m = values.size
    best = LEAST
    middle = np.float64(values[rank - 1])
    whole = np.float64(bound)
    # Row P on its own, then column P: the pairs that touch the quantile itself, usually a good first bound.
    for j in range(rank + 1, m + 2):
        weight = decay[j - rank - 1]
        if (whole - middle) * weight <= best:
            break
        best = max(best, (_at(values, bound, j) - middle) * weight)
    for i in range(rank - 1, -1, -1):
        weight = decay[rank - 1 - i]
        if middle * weight <= best:
            break
        best = max(best, (middle - _at(values, bound, i)) * weight)

    lows = np.empty(rank)
    left = np.empty(rank)
    rows = 0
    for u in range(rank):
        i = rank - 1 - u
        # From here on to the left nothing can win.
        if whole * decay[u] <= best:
            break
        low = _at(values, bound, i)
        if (rows == 0 or low < lows[rows - 1]) and (whole - low) * decay[u] > best:
            lows[rows] = low
            left[rows] = decay[u]
            rows += 1
    tops = np.empty(m + 1 - rank)
    right = np.empty(m + 1 - rank)
    columns = 0
    before: float = middle
    for v in range(1, m + 2 - rank):
        if whole * decay[v] <= best:
            break
        top = _at(values, bound, rank + v)
        if top > before and top * decay[v] > best:
            tops[columns] = top
            right[columns] = decay[v]
            columns += 1
        before = top
    if rows == 0 or columns == 0:
        return best

    # Rows are numbered from P - 1 leftwards, so the best column moves left as the row's number grows.
    blocks = np.empty((DEEPEST, 4), np.int64)
    blocks[0, 0], blocks[0, 1], blocks[0, 2], blocks[0, 3] = 0, rows - 1, 0, columns - 1
    waiting = 1
    while waiting > 0:
        waiting -= 1
        first, last, near, far = blocks[waiting, 0], blocks[waiting, 1], blocks[waiting, 2], blocks[waiting, 3]
        if (tops[far] - lows[last]) * right[near] * left[first] <= best:
            continue
        row = (first + last) // 2
        column = best_column(lows[row], tops, right, near, far)
        best = max(best, (tops[column] - lows[row]) * right[column] * left[row])
        if row > first:
            blocks[waiting, 0], blocks[waiting, 1], blocks[waiting, 2], blocks[waiting, 3] = (
                first,
                row - 1,
                column,
                far,
            )
            waiting += 1
        if row < last:
            blocks[waiting, 0], blocks[waiting, 1], blocks[waiting, 2], blocks[waiting, 3] = (
                row + 1,
                last,
                near,
                column,
            )
            waiting += 1
    return best
