"""A level and coefficients of a few waves, all of which wander, seen through noisy sums.

Block j's sum is rows[j] @ x plus noise, of J; between blocks the d entries of x move by independent steps.  A Kalman
filter, then the disturbance smoother (Koopman 1993).
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import kernel


@kernel
def filter_waves(
    totals: np.ndarray,
    rows: np.ndarray,
    noises: np.ndarray,
    gaps: np.ndarray,
    rates: np.ndarray,
    start: np.ndarray,
    spreads: np.ndarray,
    errors: np.ndarray,
    gains: np.ndarray,
) -> float:
    """Log-likelihood of the sums, but for a constant.

    Parameters
    ----------
    totals, noises, gaps : float64[J]
        Noisy sums, variances about rows @ x, and values between middles of blocks (first 0).
    rates, start, spreads : float64[d]
        Variance by which an entry moves with each value; means and variances at the first block.
    errors, gains : float64[J], float64[J, d] or float64[0, d]
        Receive distances from predictions over their variances, and gains.
    """
    count, size = rows.shape
    covariance = np.zeros((size, size))
    state, gain = start.copy(), np.empty(size)
    for a in range(size):
        covariance[a, a] = spreads[a]
    likelihood = 0.0
    for j in range(count):
        expected, variance = 0.0, noises[j]
        for a in range(size):
            covariance[a, a] += rates[a] * gaps[j]
        for a in range(size):
            gain[a] = 0.0
            for c in range(size):
                gain[a] += covariance[a, c] * rows[j, c]
            expected += rows[j, a] * state[a]
            variance += rows[j, a] * gain[a]
        error = totals[j] - expected
        likelihood -= 0.5 * (np.log(variance) + error * error / variance)
        errors[j] = error / variance
        for a in range(size):
            state[a] += gain[a] * errors[j]
            for c in range(a + 1):
                covariance[a, c] -= gain[a] * gain[c] / variance
                covariance[c, a] = covariance[a, c]
        if gains.shape[0]:
            for a in range(size):
                gains[j, a] = gain[a] / variance
    return float(likelihood)


@kernel
def smooth_waves(
    rows: np.ndarray,
    errors: np.ndarray,
    gains: np.ndarray,
    gaps: np.ndarray,
    rates: np.ndarray,
    start: np.ndarray,
    spreads: np.ndarray,
    states: np.ndarray,
) -> None:
    """Fill states given all sums, float64[J, d], from errors and gains of :func:`filter_waves`."""
    count, size = rows.shape
    pull = np.zeros(size)
    for j in range(count - 1, -1, -1):
        weight = errors[j]
        for a in range(size):
            weight -= gains[j, a] * pull[a]
        for a in range(size):
            pull[a] += rows[j, a] * weight
            states[j, a] = pull[a]
    for a in range(size):
        states[0, a] = start[a] + spreads[a] * states[0, a]
    for j in range(1, count):
        for a in range(size):
            states[j, a] = states[j - 1, a] + rates[a] * gaps[j] * states[j, a]
