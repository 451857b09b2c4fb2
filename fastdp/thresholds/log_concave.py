"""The distribution behind square waves on a logarithmic scale, whose logarithm is taken to be concave there.

A free estimate breaks up into peaks, and its tail is noise from where a window's share is within a standard error.  A
log-concave one has a single peak, and its tail goes on falling at least as it was seen to, so that the threshold may
lie where no report could show a tail.  All of this comes after the reports were made private, so it costs no privacy.
Source: ours; the shape is that of log-concave maximum likelihood (Walther 2009), the mean over resamples Breiman's
bagging (1996).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fastdp import local
from fastdp.data.kinds import Floats, Integers
from fastdp.local.distribution import Distribution, in_cells, transition
from fastdp.local.laws import WindowLaw
from fastdp_kernels import band_matrix

#: Fewest and most bins: curvature needs three behind the first, and a step solves so many equations.
MIN_BINS, MAX_BINS = 4, 512
#: Prior of each curvature, the falls of slope from bin to bin: its density is proportional to this power of it.
POWER = 0.03
#: Prior of each logarithm of a share: normal with this precision, so that no tail falls without end.
PRECISION = 3e-4
#: The squared bias that a threshold is taken to have, in that of the estimate: a tail that no report shows may be
#: longer than one that goes on falling as it did (``docs/topl.md``).
DOUBT = 5.0
#: Estimates from resampled counts; their seed is public and fixed, so equal counts give equal estimates.
RESAMPLES = 8
SEED = 1
MAX_STEPS = 200
#: A system that is singular in doubles gets so much more on its diagonal, in its largest entries.
RIDGES = (0.0, 1e-15, 1e-12, 1e-9)
#: The search ends when a step gains less than this in log density, and a step changes no logarithm by more than that.
GAIN, STRIDE = 1e-6, 10.0


def concave_estimate(client: local.LogSquareWave, counts: Integers, bins: int) -> Distribution:
    """Mean of log-concave estimates, of the counts and of counts resampled by the Poisson law.

    Parameters
    ----------
    client : LogSquareWave
        What made the reports.
    counts : int64[outputs], or int64[cells]
        How often each was reported.
    bins : int
        Of the estimate.  The first one, which holds all smaller values and zeros, may have any share.
    """
    counts = in_cells(client.law, counts, bins)
    matrix = _matrix(client.law, bins, counts.size)
    shares, likelihood, steps, converged = fit(matrix, counts.astype(np.float64))
    generator, total = np.random.default_rng(SEED), shares.copy()
    for _ in range(RESAMPLES):
        total += fit(matrix, generator.poisson(counts).astype(np.float64))[0]
    total /= total.sum()
    total.flags.writeable = False
    return Distribution(
        total,
        client.low,
        client.high,
        f"log-concave, mean of {RESAMPLES} resamples",
        steps,
        converged,
        likelihood,
        int(counts.sum()),
        "logarithmic",
    )


@lru_cache(maxsize=8)
def _matrix(law: WindowLaw, bins: int, cells: int) -> Floats:
    """Probability of each cell by bin, float64[cells, bins]."""
    reports = transition(law, bins, np.zeros(cells, np.int64))
    column, matrix = np.empty(cells), np.empty((cells, bins))
    for i, unit in enumerate(np.eye(bins)):
        band_matrix.multiply_band(reports.forward, unit, column)
        matrix[:, i] = reports.flat + reports.peak * column
    matrix.flags.writeable = False
    return matrix


def fit(matrix: Floats, counts: Floats) -> tuple[Floats, float, int, bool]:
    """The most likely log-concave shares under the priors, by Fisher scoring.

    Parameters
    ----------
    matrix : float64[cells, bins]
        Probability of each cell by bin.
    counts : float64[cells]
        How often each was reported.

    Returns
    -------
    tuple
        Shares (float64[bins]), log-likelihood, steps, and whether the search converged.
    """
    bins, n = matrix.shape[1], float(counts.sum())
    # The first bin is free.
    bend: Floats = -np.diff(np.eye(bins), 2, axis=0)[1:]

    def density(logs: Floats) -> tuple[Floats, Floats, float, float]:
        shares = np.exp(logs - logs.max())
        shares /= shares.sum()
        chances = matrix @ shares
        likelihood = float(counts @ np.log(chances))
        curvature = bend @ logs
        prior = POWER * float(np.log(curvature).sum()) if curvature.min() > 0.0 else -np.inf
        return shares, chances, likelihood, likelihood + prior - 0.5 * PRECISION * float(logs @ logs)

    logs: Floats = -0.5 * ((np.arange(bins) - bins / 3.0) / (bins / 7.0)) ** 2
    shares, chances, likelihood, value = density(logs)
    for step in range(MAX_STEPS):
        curvature, moves = bend @ logs, matrix * shares - np.outer(chances, shares)
        slope = moves.T @ (counts / chances) - PRECISION * logs + bend.T @ (POWER / curvature)
        information = moves.T @ ((n / chances)[:, None] * moves) + (bend.T * (POWER / curvature**2)) @ bend
        way = _solution(information + PRECISION * np.eye(bins), slope)
        if way is None:
            return shares, likelihood, step, False
        falls = bend @ way
        ends = curvature[falls < 0.0] / -falls[falls < 0.0]
        length = min(1.0, STRIDE / max(float(np.abs(way).max()), 1e-300), 0.99 * float(ends.min(initial=np.inf)))
        further = density(logs + length * way)
        while further[3] <= value and length > 1e-9:
            length /= 2.0
            further = density(logs + length * way)
        gain = further[3] - value
        if gain <= 0.0:
            return shares, likelihood, step, True
        logs = logs + length * way
        shares, chances, likelihood, value = further
        if gain < GAIN:
            return shares, likelihood, step + 1, True
    return shares, likelihood, MAX_STEPS, False


def _solution(matrix: Floats, right: Floats) -> Floats | None:
    """Of a linear system, or of one beside it where it is singular in doubles; None if that is no help."""
    largest = float(np.abs(np.diag(matrix)).max())
    for ridge in RIDGES if np.isfinite(matrix).all() and np.isfinite(right).all() else ():
        try:
            found: Floats = np.linalg.solve(matrix + ridge * largest * np.eye(right.size), right).astype(np.float64)
        except np.linalg.LinAlgError:
            continue
        if np.isfinite(found).all():
            return found
    return None
