"""How long the next block should be where values are counts of events: blocks of one value are a choice like others.

As ``block_lengths`` in everything but what is known beforehand.  Values have no bound, so nothing
limits the variance of independent ones but the level: independent events that move a value by one step each have the
variance of a Poisson law, their mean.  What exceeds it is structure within blocks.  Queries may span one value,
and noise and hidden energy are those of whole positions, because a query of one value is no limit of long ones.  The
errors of two answers are weighed: revised answers, and published values, which follow a block late.

Everything is in units of the sensitivity (sums) and its square (variances); derivations in ``docs/adaptive.md``.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import inline

#: Classes of query length.
CLASSES = 5
#: Energy of structure falls by this from scale to scale below those seen.
FALL = 4.0
#: Differences seen before a scale counts as seen.
SEEN = 0.5
#: Squared relative error of the two-parameter fit.
MISFIT = 1.0
#: Published values are predictions from the block before: at its end a running sum is off by the difference of two
#: blocks, twice the height of a hat whose halves are such blocks.
LAG = 4.0


@inline
def noise_of_count(length: float, block: float) -> float:
    """Noise of a query of ``length`` values at a random place among blocks, in variances of a block's."""
    ratio = length / block
    if ratio >= 1.0:
        return ratio - 1.0 / 3.0 + 1.0 / (3.0 * block * block)
    return ratio * ratio * (1.0 - ratio / 3.0) + ratio / (3.0 * block * block)


@inline
def hidden_share_of_count(length: float, half: float) -> float:
    """Share of the energy of halves of ``half`` values that enters the error of a query of ``length`` values."""
    square, least = (length / half) ** 2, 1.0 / (half * half)
    return 0.25 * square / (1.0 + (square - least) / (2.0 / 3.0 + least / 3.0))


@inline
def choose_event_exponent(
    white: float,
    drift: float,
    counts: np.ndarray,
    energies: np.ndarray,
    noises: np.ndarray,
    level: float,
    noise: float,
    lengths: np.ndarray,
    most: int,
) -> int:
    """The k for which blocks of 2^k values have the least product of errors (classes of queries, both answers).

    Parameters
    ----------
    white, drift : float
        The signal, as two numbers fit it.
    counts, energies, noises : float64[any]
        Differences seen at each scale, their mean square less noise, and the mean number of noises in them.
    level : float
        Mean of a value, for the variance of independent events.
    noise : float
        Variance of a block's noise.
    lengths : float64[CLASSES]
        Of the queries that count.
    most : int
        The largest k.
    """
    errors = np.zeros(CLASSES)
    independent = min(white, max(level, 0.0))
    seen = 0
    while seen < most and counts[seen] < SEEN:
        seen += 1
    structure = 0.0
    best, best_product = 0, np.inf
    for k in range(most + 1):
        block = 2.0**k
        if k < seen:
            if k == 0:
                at_seen = energy_at(seen, white, drift, counts, energies, noises, noise)
                structure = max(at_seen - 2.0 ** (seen + 1.0) * independent, 0.0)
            energy = float(2.0 * block * independent + structure * FALL ** np.float64(k - seen))
        else:
            energy = energy_at(k, white, drift, counts, energies, noises, noise)
        product = 1.0
        for c in range(CLASSES):
            length = lengths[c]
            own = noise_of_count(length, block)
            met = energy * hidden_share_of_count(length, block)
            # Single counts are published without a lag.
            late = LAG * met if k else 0.0
            product *= (errors[c] / noise + own) * ((errors[c] + late) / noise + own)
            errors[c] += met
        if product < best_product:
            best, best_product = k, product
    return best


@inline
def energy_at(
    k: int,
    white: float,
    drift: float,
    counts: np.ndarray,
    energies: np.ndarray,
    noises: np.ndarray,
    noise: float,
) -> float:
    """Energy at a scale: between what two numbers fit, off by as much as it is, and what was seen there.

    Counts of events have days and weeks, at which energy is not what the two numbers say.
    """
    fitted = 2.0 ** (k + 1.0) * white + 2.0 / 3.0 * 8.0**k * drift
    if counts[k] < SEEN:
        return float(fitted)
    spread = fitted + noises[k] * noise
    weight = MISFIT * fitted * fitted / (MISFIT * fitted * fitted + 2.0 * spread * spread / counts[k])
    return float(max(fitted + weight * (energies[k] - fitted), 0.0))
