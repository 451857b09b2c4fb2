"""A stream that repeats: a level and the coefficients of a few waves, all of which wander, seen through noisy sums.

The state of block j is x = (level, coefficients); its sum is  rows[j] @ x  plus independent noise; between blocks
every entry of x moves by independent steps.  So states given all sums have normal laws: a Kalman filter forth, and
back the smoother for states that keep what they have (Koopman 1993, "Disturbance smoother"), which needs the gains
alone.

Letters: J blocks, d entries of the state.
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
    totals : float64[J]
        Noisy sums.
    rows : float64[J, d]
        What each entry of the state adds to a sum.
    noises : float64[J]
        Variances of the sums about that.
    gaps : float64[J]
        Values between the middle of the block before and of this one; 0 for the first.
    rates : float64[d]
        Variance by which an entry moves with each value.
    start, spreads : float64[d]
        Means and variances of the entries at the first block.
    errors : float64[J]
        Receives each sum's distance from its prediction, over the variance of that.
    gains : float64[J, d] or float64[0, d]
        Receives what the entries take of that distance.

    Returns
    -------
    float
        The log-likelihood.
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
    """States given all sums.

    Parameters
    ----------
    rows, errors, gains, gaps, rates, start, spreads
        As for :func:`filter_waves`, which has filled ``errors`` and ``gains``.
    states : float64[J, d]
        Receives the states.
    """
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
