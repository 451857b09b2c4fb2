"""Noisy max over a histogram (ToPS section 2.3, Eq. 2; section 3.3, Eq. 6), in integers.

J candidates theta_1 < ... < theta_J; bin j of the histogram counts the values in
(theta_(j-1), theta_j], bin 0 those at or below 0.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import bits_of, inline, kernel
from fastdp_kernels.streams.online_pass import finite_flag

#: The same bits of 1.0.
EIGHTHS = np.int64(1023 << 3)
#: Values a bin from which on four histograms pay, and values that are binned together.
PARTED, PIECE = 16, 1024


@inline
def _bin(value: float, step: float, bins: int) -> float:
    """ceil(value / step), clipped to the bins."""
    last = np.float64(bins - 1)
    x = np.ceil(value / step)
    x = x if x > 0.0 else 0.0
    return x if x < last else last


@kernel
def bin_values(values: np.ndarray, step: float, counts: np.ndarray) -> bool:
    """Add each value to bin ceil(value / step), clipped to the ends.

    Parameters
    ----------
    values : float64[n]
        In units of the input.
    step : float
        Distance of neighbouring candidates.
    counts : int64[J + 1]
        The histogram; changed in place.

    Returns
    -------
    bool
        Whether a value is NaN or infinite; the histogram is then of no use.
    """
    flags = np.int64(0)
    for i in range(values.size):
        flags |= finite_flag(values[i])
        counts[np.int64(_bin(values[i], step, counts.size))] += 1
    return bool(flags < 0)


@kernel
def bin_pieces(values: np.ndarray, step: float, bins: np.ndarray, lanes: np.ndarray, counts: np.ndarray) -> bool:
    """:func:`bin_values` for many values a bin: alike ones meet in a bin, where each waits for the one before.

    Parameters
    ----------
    values, step, counts
        As for :func:`bin_values`.
    bins : uint32[PIECE]
        Memory; unsigned, since an index that may be negative counts from the end, which is asked of each.
    lanes : int64[3, J + 1]
        Three further histograms, of zeros; added to ``counts``.

    Returns
    -------
    bool
        As :func:`bin_values`.
    """
    flags = np.int64(0)
    second, third, fourth = lanes[0], lanes[1], lanes[2]
    pieces = values.size // PIECE
    for piece in range(pieces):
        part = values[piece * PIECE : (piece + 1) * PIECE]
        for i in range(PIECE):
            flags |= finite_flag(part[i])
            bins[i] = np.uint32(np.int32(_bin(part[i], step, counts.size)))
        for i in range(0, PIECE, 4):
            counts[bins[i]] += 1
            second[bins[i + 1]] += 1
            third[bins[i + 2]] += 1
            fourth[bins[i + 3]] += 1
    for j in range(counts.size):
        counts[j] += second[j] + third[j] + fourth[j]
    for i in range(pieces * PIECE, values.size):
        flags |= finite_flag(values[i])
        counts[np.int64(_bin(values[i], step, counts.size))] += 1
    return bool(flags < 0)


@kernel
def bin_eighths(steps: np.ndarray, first: np.ndarray, candidates: np.ndarray, counts: np.ndarray) -> None:
    """Add each value to the bin of the least candidate that is not below it.

    Parameters
    ----------
    steps : int64[n]
        Values in grid steps, from 0 to the largest candidate, below 2^53.
    first : int64[63 * 8]
        For each e and k, at 8 e + k, the first candidate that is not below 2^e (1 + k / 8).
    candidates : int64[J]
        Rising.
    counts : int64[J]
        The histogram; changed in place.
    """
    for i in range(steps.size):
        # The exponent and three bits of the mantissa: which eighth of an octave.
        eighth = (bits_of(np.float64(steps[i])) >> 49) - EIGHTHS
        j = first[eighth] if steps[i] > 1 else 0
        while candidates[j] < steps[i]:
            j += 1
        counts[j] += 1


@inline
def choose_candidate(counts: np.ndarray, unit: int, penalties: np.ndarray, noise: np.ndarray) -> int:
    """Index j >= 1 of the candidate with the largest unit * #{v <= theta_j} - penalty_j + noise_j.

    Parameters
    ----------
    counts : int64[J + 1]
        The histogram of the hold-out.
    unit : int
        K: the score's sensitivity, a power of two.
    penalties : int64[J]
        rint(K * public term) of each candidate.
    noise : int64[J]
        Independent noise of scale K / epsilon.

    Returns
    -------
    int
        The lowest index among the largest, from 1 to J.
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
    """Add the first ``count`` values of each row to its histogram (int64[n, J + 1]; values are finite)."""
    for row in range(starts.size):
        bin_values(values[starts[row] : starts[row] + count], step, histograms[row])


@kernel
def choose_rows(
    histograms: np.ndarray, unit: int, penalties: np.ndarray, noise: np.ndarray, best: np.ndarray
) -> None:
    """The winning candidate of each row: histograms int64[n or 1, J + 1], noise int64[n, J], best int64[n]."""
    shared = histograms.shape[0] == 1
    for row in range(best.size):
        best[row] = choose_candidate(histograms[0 if shared else row], unit, penalties, noise[row])
