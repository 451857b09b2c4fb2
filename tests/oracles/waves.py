"""A level and waves that wander, seen through noisy sums: the joint normal distribution of all sums.

Nothing is filtered: one covariance matrix of all sums and states, and a system of linear equations.
"""

from __future__ import annotations

import numpy as np


def joint(rows, noises, gaps, rates, start, spreads):
    """Means and covariance of the sums, and their covariance with the states of every block, entry by entry."""
    count, size = rows.shape
    expected = rows @ start
    covariance = np.diag(np.array(noises, float))
    shared = np.zeros((count, size, count))
    reached = np.cumsum(gaps)
    for i in range(count):
        for j in range(count):
            # Steps up to the earlier of the two are in both.
            common = spreads + rates * (reached[min(i, j)])
            covariance[i, j] += (rows[i] * common * rows[j]).sum()
            shared[i, :, j] = common * rows[j]
    return expected, covariance, shared


def log_likelihood(totals, *distribution):
    """Of the sums, but for the constant."""
    expected, covariance, _ = joint(*distribution)
    rest = totals - expected
    _, size = np.linalg.slogdet(covariance)
    return -0.5 * (size + rest @ np.linalg.solve(covariance, rest))


def states(totals, *distribution):
    """Mean of every state given all sums: float64[J, d]."""
    expected, covariance, shared = joint(*distribution)
    return distribution[4] + shared @ np.linalg.solve(covariance, totals - expected)


def sums_of_waves(begin, end, periods, harmonics):
    """Of cosines and then sines, over [begin, end), by Simpson's rule."""
    at = np.linspace(begin, end, 2001)
    weights = np.ones(at.size)
    weights[1:-1:2], weights[2:-1:2] = 4.0, 2.0
    weights *= (end - begin) / (at.size - 1) / 3.0
    angles = np.array([2 * np.pi * h / period * at for period in periods for h in range(1, harmonics + 1)])
    return np.concatenate([np.cos(angles) @ weights, np.sin(angles) @ weights])
