"""The distribution of sums of Laplace variables, slowly: exact convolution, and a mixture of gamma distributions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np


def inside_exact(p: Fraction, m: int, reach: int) -> list[tuple[Fraction, Fraction]]:
    """Bounds of P[|S| <= t] for t = 0, ..., reach: S the sum of m variables with P[X = k] proportional to p^|k|.

    Convolution of the distribution cut off at +-reach; what was cut off is the distance between the bounds.
    """
    one = [(1 - p) / (1 + p) * p ** abs(k) for k in range(-reach, reach + 1)]
    distribution = [Fraction(k == reach) for k in range(2 * reach + 1)]
    for _ in range(m):
        distribution = [
            sum(
                (
                    distribution[i] * one[k - i + reach]
                    for i in range(max(0, k - reach), min(2 * reach, k + reach) + 1)
                ),
                Fraction(0),
            )
            for k in range(2 * reach + 1)
        ]
    missing = 1 - sum(distribution)
    found, total = [], distribution[reach]
    for t in range(reach + 1):
        if t:
            total += distribution[reach + t] + distribution[reach - t]
        found.append((total, total + missing))
    return found


def real_tail(x: float, m: int) -> float:
    """P[|S| > x] for m real Laplace variables of scale 1: a mixture of gamma distributions, all terms positive."""
    tail = 0.0
    for k in range(m):
        weight = math.comb(m - 1 + k, k) * 2.0 ** -(m - 1 + k)
        shape = m - k
        terms = np.cumsum(np.log(np.concatenate([[1.0], x / np.arange(1, shape)]))) - x
        tail += weight * float(np.exp(terms).sum())
    return tail
