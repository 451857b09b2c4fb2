"""Square wave, EM and EMS in plain Python and NumPy: dense matrices, whole numbers as long as they can be.

ToPS Appendix E.1; Li et al. 2020 and their published iteration.  An input t is uniform in its bin, the report y is
near if t <= y < t + N, output j stands for [j, j + 1), and cell k holds the outputs j with floor(j cells / M) = k.
"""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np

WORDS = 2**64
STEPS = 2**20


class WindowDistribution(NamedTuple):
    """The integers of a square wave: D, N, a, b, S."""

    steps: int
    near: int
    near_weight: int
    far_weight: int
    total: int

    @property
    def outputs(self):
        return self.steps + self.near

    @property
    def left_over(self):
        return self.total - self.near * self.near_weight - self.steps * self.far_weight

    def weight(self, x, j):
        """Words of output j for the whole input x."""
        rounds, rest = divmod(self.left_over, self.outputs)
        inside = x <= j < x + self.near
        return (self.near_weight if inside else self.far_weight) + rounds + (1 if j < rest else 0)


def window_distribution(epsilon, near, steps=STEPS):
    """The largest b with N floor(b e^epsilon) + D b <= S, found from above."""
    context = Context(prec=60)
    e = Fraction(context.exp(Decimal(epsilon)))
    b = int(WORDS / (near * e + steps)) + 2
    while near * int(b * e) + steps * b > WORDS:
        b -= 1
    return WindowDistribution(steps, near, int(b * e), b, WORDS)


def square_wave(epsilon, steps=STEPS):
    """N = 2 rint(b D) + 1 with the closeness b of Appendix E.1."""
    context = Context(prec=60)
    eps = Decimal(epsilon)
    e = context.exp(eps)
    closeness = (eps * e - e + 1) / (2 * e * (e - 1 - eps))
    return window_distribution(epsilon, 2 * round(closeness * steps) + 1, steps)


def report(window, x, generator):
    """Reports of whole inputs, from floats: good enough to make counts of."""
    near = generator.random(x.size) < window.near * window.near_weight / window.total
    far = generator.integers(0, window.steps, x.size)
    far = np.where(far < x, far, far + window.near)
    return np.where(near, x + generator.integers(0, window.near, x.size), far)


def cells_of(window, j, cells):
    """Cell of each output."""
    return j * cells // window.outputs


def squared_part(z):
    """Second integral of the step function, doubled."""
    return np.where(z > 0, z * z, 0)


def near_share(window, bins, cells):
    """Mean of |[t, t + N) n cell| / |cell| over the bin, [cells, bins]: (double integral as a difference, area).

    Whole numbers in units of a step / bins; squares may wrap modulo 2^64, but the double integral fits, so the
    differences that lead to it are exact.
    """
    first = np.array([-(-k * window.outputs // cells) for k in range(cells + 1)], np.int64)
    y = first[:, None] * bins
    t = np.arange(bins + 1, dtype=np.int64)[None, :] * window.steps
    corner = squared_part(y - t) - squared_part(y - t - window.near * bins)
    doubled = corner[1:, :-1] - corner[:-1, :-1] - corner[1:, 1:] + corner[:-1, 1:]
    return doubled, 2 * np.diff(first * bins) * window.steps


def matrix(window, bins, cells):
    """P[cell | bin] as float64[cells, bins], each entry rounded a few times only."""
    doubled, area = near_share(window, bins, cells)
    lengths = area / (2.0 * window.steps * bins)
    surplus = doubled / area[:, None]
    everywhere = float(Fraction(window.far_weight * window.outputs + window.left_over, window.outputs * window.total))
    on_top = float(Fraction(window.near_weight - window.far_weight, window.total))
    return lengths[:, None] * (everywhere + on_top * surplus)


def exact_matrix(window, bins, cells):
    """The same as lists of Fractions, from the real integral with Fractions alone."""

    def corner(y, t):
        return (max(y - t, 0) ** 2 - max(y - t - window.near, 0) ** 2) * Fraction(1, 2)

    edges = [Fraction(-(-k * window.outputs // cells)) for k in range(cells + 1)]
    ts = [Fraction(i * window.steps, bins) for i in range(bins + 1)]
    rows = []
    for k in range(cells):
        y0, y1 = edges[k], edges[k + 1]
        flat = (y1 - y0) * (window.far_weight + Fraction(window.left_over, window.outputs))
        row = []
        for i in range(bins):
            t0, t1 = ts[i], ts[i + 1]
            near = (corner(y1, t0) - corner(y0, t0) - corner(y1, t1) + corner(y0, t1)) / (t1 - t0)
            row.append((flat + (window.near_weight - window.far_weight) * near) / window.total)
        rows.append(row)
    return rows


def log_likelihood(dense, counts, theta):
    p = dense @ theta
    return float(np.sum(counts[counts > 0] * np.log(p[counts > 0])))


def smoothing_matrix(bins):
    """(1, 2, 1) in each row, as far as it fits, divided by the row's sum."""
    smoothing = np.zeros((bins, bins))
    for i in range(bins):
        for shift, weight in ((-1, 1), (0, 2), (1, 1)):
            if 0 <= i + shift < bins:
                smoothing[i, i + shift] = weight
    return smoothing / smoothing.sum(axis=1, keepdims=True)


def estimates(dense, counts, steps, smooth=False):
    """Yield theta after 1, 2, ..., steps steps of EM or EMS from the uniform distribution."""
    bins = dense.shape[1]
    theta = np.full(bins, 1.0 / bins)
    smoothing = smoothing_matrix(bins) if smooth else None
    for _ in range(steps):
        theta = theta * (dense.T @ (counts / (dense @ theta)))
        theta /= theta.sum()
        if smooth:
            theta = smoothing @ theta
            theta /= theta.sum()
        yield theta


def iterate(dense, counts, tolerance, most, smooth=False):
    """EM or EMS with the stopping rule: (theta, steps, converged, log-likelihood)."""
    bins = dense.shape[1]
    before = log_likelihood(dense, counts, np.full(bins, 1.0 / bins))
    for step, theta in enumerate(estimates(dense, counts, most, smooth), 1):
        now = log_likelihood(dense, counts, theta)
        gain, before = now - before, now
        if (abs(gain) if smooth else gain) < tolerance:
            return theta, step, True, now
    return theta, most, False, now
