"""The distribution behind square waves on a logarithmic scale: mean of resampled estimates, cut where noise begins.

All of this comes after the reports were made private, so it costs no privacy.  Source: ours; bootstrap averaging is
Breiman's bagging (1996).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fastdp import local
from fastdp.data.kinds import Integers
from fastdp.local.distribution import TOLERANCE, Distribution, in_cells
from fastdp.local.laws import WindowLaw

#: The values that an estimate distinguishes: from bound / 2^OCTAVES to the bound.
OCTAVES = 14
BINS_PER_OCTAVE = 4
#: Estimates from resampled counts; their seed is public and fixed, so equal counts give equal estimates.
RESAMPLES = 16
SEED = 1
#: A tail share below so many standard errors is taken for noise.
STANDARD_ERRORS = 1.5


def mean_estimate(client: local.LogSquareWave, counts: Integers, bins: int) -> Distribution:
    """Mean of converged estimates, each from counts resampled by the Poisson law.

    A maximum of the likelihood is a few peaks with gaps between them, whose places are chance; their mean over
    resamples is as wide as that chance.

    Parameters
    ----------
    client : LogSquareWave
        What made the reports.
    counts : int64[outputs], or int64[cells]
        How often each was reported.
    bins : int
        Of the estimate.
    """
    counts = in_cells(client.law, counts, bins)
    found = client.estimate_counts(counts, bins, tolerance=TOLERANCE)
    generator, total = np.random.default_rng(SEED), found.frequencies.copy()
    for _ in range(RESAMPLES):
        again = generator.poisson(counts)
        if again.any():
            total += client.estimate_counts(again, bins, tolerance=TOLERANCE).frequencies
    total /= total.sum()
    total.flags.writeable = False
    return replace(found, frequencies=total, method=f"em, mean of {RESAMPLES} resamples")


def cut_tail(distribution: Distribution, law: WindowLaw) -> Distribution:
    """Without the bins whose share, with all above, is less than 1.5 standard errors; the rest is divided by its sum.

    The standard error is that of the share of values in one window, from how often a window is reported by values far
    from it.
    """
    far, near = law.far_weight * law.near / law.total, law.near_weight * law.near / law.total
    error = math.sqrt(far * (1.0 - far) / distribution.n_reports) / (near - far)
    frequencies = distribution.frequencies
    tails = np.cumsum(frequencies[::-1])[::-1]
    kept = np.where(tails >= min(STANDARD_ERRORS * error, float(tails[0])), frequencies, 0.0)
    kept /= kept.sum()
    kept.flags.writeable = False
    return replace(distribution, frequencies=kept, method=f"{distribution.method}, tail cut")
