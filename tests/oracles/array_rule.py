"""The rule for a finished array, step by step and slowly: counts, scores, probabilities, posterior."""

from __future__ import annotations

from math import exp, log

import numpy as np
from scipy.linalg import cho_solve_banded, cholesky_banded


def above(steps: np.ndarray, levels: np.ndarray) -> list[int]:
    return [int((steps > level).sum()) for level in levels]


def distance(values: np.ndarray, block: int) -> int:
    """Least sum of distances from one number a block, over all numbers."""
    parts = [values[i : i + block] for i in range(0, len(values), block)]
    return sum(min(int(np.abs(part.astype(int) - c).sum()) for c in part) for part in parts)


def stops(counts: list[int], limits: list[int], epsilon: float, reach: int = 4000) -> np.ndarray:
    """Probabilities that AboveThreshold stops at each level, and at none."""
    limit = np.arange(reach)
    mass = (1 - exp(-epsilon / 3)) * np.exp(-epsilon / 3 * limit)
    out, going = [], np.ones(reach)
    for count, needed in zip(counts, limits, strict=True):
        # P[count + noise > needed + limit], noise of rate 2 epsilon / 3.
        passes = np.exp(-2 * epsilon / 3 * np.maximum(needed + limit + 1 - count, 0))
        out.append(float((mass * going * passes).sum()))
        going = going * (1 - passes)
    return np.array([*out, float((mass * going).sum())])


def winners(scores: list[int], scale: float, reach: int) -> np.ndarray:
    """Probabilities that each score wins with one-sided geometric noise; ties go to the first."""
    noise = np.arange(reach)
    mass = (1 - exp(-1 / scale)) * np.exp(-noise / scale)

    def below(margin: np.ndarray) -> np.ndarray:
        return np.where(margin >= 0, 1 - np.exp(-(np.maximum(margin, 0) + 1) / scale), 0.0)

    out = []
    for i, score in enumerate(scores):
        p = mass.copy()
        for j, other in enumerate(scores):
            if j != i:
                p = p * below(score + noise - other - (j < i))
        out.append(float(p.sum()))
    return np.array(out)


def smooth(z: np.ndarray, v: float) -> np.ndarray:
    """Levels of block means of noise variance v: random walk and independent part, by evidence."""
    n, best = len(z), (-np.inf, z)
    ends = np.full(n, 2.0)
    ends[[0, -1]] = 1.0
    for w in (0.0, 0.1 * v, 0.4 * v, 1.6 * v, 6.4 * v):
        u = v + w
        for q in (0.0, *(max(np.var(z), 1e-6 * v, 1e-300) * 4.0 ** np.arange(-9, 2))):
            if q == 0:
                m = np.full(n, z.mean())
                fit = 1 - 0.5 * (n * np.log(u) + np.log(n / u) + ((z - m) ** 2).sum() / u)
            else:
                band = np.zeros((2, n))
                band[1], band[0, 1:] = ends / q + 1 / u, -1 / q
                root = cholesky_banded(band)
                m = cho_solve_banded((root, False), z / u)
                fit = -0.5 * (n * np.log(u) + (n - 1) * np.log(q) + 2 * np.log(root[1]).sum() + (z - m) @ z / u)
            fit += w == 0
            if fit > best[0]:
                best = fit, m + w / u * (z - m)
    return best[1]


def shrunk(total: float, scale: float, n: int, bound: float) -> float:
    """Mean of the total given one Laplace number; prior of the mean value about 1 / (mean + bound / 300)."""
    if total > 12 * scale:
        return min(total, n * bound)
    m = np.concatenate([[0.0], np.geomspace(bound * 1e-5, bound, 400)])
    far = np.abs(total - n * m) / scale
    w = np.gradient(m) / (m + bound / 300) * np.exp(far.min() - far)
    return float(n * (w @ m) / w.sum())


def tail(missing: float, sd: float, clipped: float, theta: float, most: float, usual: float) -> float:
    """Mean of the sum above theta."""
    grid = np.concatenate([[0.0], np.geomspace(min(max(theta, 1e-3 * sd), most / 2), most, 400)])
    prior = 0.7 / (1 + grid / usual) + 0.3 / (1 + grid / max(2 * clipped, usual))
    prior /= prior[1:].sum()
    prior[0] = 0.05
    far = 0.5 * ((missing - grid) / sd) ** 2
    p = prior * np.exp(far.min() - far)
    return float(p @ grid / p.sum())


def limits(epsilon: float, count: int) -> list[int]:
    return [int((4 + 3 * log(j)) / epsilon) for j in range(1, count + 1)]
