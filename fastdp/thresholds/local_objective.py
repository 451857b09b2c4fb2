"""Theta from an estimated distribution: the objective of ToPL, and the pruning of the estimate's tail.

Source: ToPS section 4.1 and Eq. 8; the variance is Eq. 14, the largest of the hybrid mechanism on [-1, 1].
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fastdp.data.kinds import Floats
from fastdp.local import Distribution, Hybrid

OBJECTIVES = ("corrected", "paper")
#: Candidates in a bin of a logarithmic scale, whose bins are wide.
LOG_PARTS = 8
#: SW-W: so many estimates in a row below this share end the distribution; of 1,024 bins, or in proportion of more.
RUN = 5
SMALL_SHARE = 1e-4
PAPER_BINS = 1024


def range_errors(
    distribution: Distribution, max_range: int, publish_epsilon: float, objective: str, doubt: float = 1.0
) -> tuple[Floats, Floats]:
    """Expected squared error of a random range sum, for every candidate.

    Parameters
    ----------
    distribution : Distribution
        Of the values, on [0, bound].
    max_range : int
        r.
    publish_epsilon : float
        Budget of the reports that are clipped at theta.
    objective : "corrected" or "paper"
        (r / 3) Var (theta / 2)^2 + (r^2 / 6) bias^2, bias the mean of max(v - theta, 0); or as printed and published,
        (r / 3) Var theta^2 + (r^2 / 24) bias^2, which weighs the bias a sixteenth as much.
    doubt : float
        By which the squared bias is larger than the estimate's, since its tail is uncertain.

    Returns
    -------
    tuple of float64[candidates]
        Candidates, the upper edges of the bins (on a logarithmic scale of eighths of them); their errors, in units of
        the input squared.
    """
    parts = 1 if distribution.scale == "linear" else LOG_PARTS
    candidates = distribution.divide(parts * distribution.frequencies.size)[1:]
    half, share = (2.0, 6.0) if objective == "corrected" else (1.0, 24.0)
    r = float(max_range)
    noise = r / 3.0 * Hybrid(publish_epsilon).worst_variance * (candidates / half) ** 2
    return candidates, noise + doubt * r**2 / share * distribution.excess(candidates) ** 2


def best_threshold(
    distribution: Distribution, max_range: int, publish_epsilon: float, objective: str, doubt: float = 1.0
) -> float:
    """The candidate of least error, the smallest of several; parameters as :func:`range_errors`."""
    candidates, errors = range_errors(distribution, max_range, publish_epsilon, objective, doubt)
    return float(candidates[int(errors.argmin())])


def prune_tail(distribution: Distribution) -> Distribution:
    """SW-W: after the mode, at the first five estimates in a row below 0.01 %, the distribution ends.

    With more than 1,024 bins the run is longer and the share smaller, in proportion.  Everything from the first of
    them on becomes 0 and the rest is divided by its sum.  Without such a run the distribution stays as it is.
    """
    frequencies = distribution.frequencies
    after = int(frequencies.argmax()) + 1
    finer = max(1.0, frequencies.size / PAPER_BINS)
    small, run = frequencies[after:] < SMALL_SHARE / finer, round(RUN * finer)
    if small.size < run:
        return distribution
    # Where a run of small ones begins: so many fewer others than places.
    others = np.concatenate([[0], np.cumsum(~small)])
    runs = others[run:] == others[:-run]
    if not runs.any():
        return distribution
    kept = frequencies.copy()
    kept[after + int(runs.argmax()) :] = 0.0
    kept /= kept.sum()
    kept.flags.writeable = False
    return replace(distribution, frequencies=kept, method=f"{distribution.method}, tail pruned")
