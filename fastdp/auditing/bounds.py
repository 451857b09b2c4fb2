"""From counts to a lower bound on epsilon: Clopper and Pearson 1934, exact whatever the probabilities."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


def at_least(hits: Integers, trials: int, alpha: float) -> Floats:
    """Lower ends of one-sided intervals for probabilities: each wrong with probability at most ``alpha``."""
    found = special.betaincinv(np.maximum(hits, 1.0), trials - hits + 1.0, alpha)
    return np.where(hits > 0, found, 0.0).astype(np.float64)


def at_most(hits: Integers, trials: int, alpha: float) -> Floats:
    """Upper ends, in the same way."""
    missed = np.maximum(trials - hits, 1)
    found = special.betainccinv(hits + 1.0, missed, alpha)
    return np.where(hits < trials, found, 1.0).astype(np.float64)


def epsilon_at_least(
    hits: Integers, hits_adjacent: Integers, trials: int, alpha: float, delta: float = 0.0
) -> Floats:
    """Lower bounds on epsilon from events that were fixed before these trials were run.

    Parameters
    ----------
    hits, hits_adjacent : int64[e]
        How often each event held, on either input.
    trials : int
        Runs on each input.
    alpha : float
        Probability that one bound is above the true epsilon, at most; each probability's interval has half of it.
    delta : float
        P <= e^epsilon P' + delta is what is bounded.

    Returns
    -------
    float64[e]
        ln((P_low - delta) / P'_high); -inf where P_low is at most delta.
    """
    low = at_least(hits, trials, alpha / 2.0) - delta
    high = at_most(hits_adjacent, trials, alpha / 2.0)
    positive = np.where(low > 0.0, low, 1.0)
    return np.where(low > 0.0, np.log(positive) - np.log(high), -np.inf)
