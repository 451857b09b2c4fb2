"""Maximum likelihood for square-wave reports: EM, EMS and EM accelerated by SQUAREM.

Source: Li et al. 2020 (ToPS section 4.1, Appendix E.1); SQUAREM: Varadhan and Roland 2008, scheme S3.

For shares theta_i of input bins, n_k reports in output cell k of probability p_k, and the band matrix F,

    p_k = flat_k sum(theta) + peak_k (F theta)_k,      L = sum of n_k log p_k,
    EM:  theta_i <- theta_i (sum_k flat_k n_k / p_k + (F' (peak n / p))_i), divided by its sum.

EMS smooths each step by (1, 2, 1) / 4, as published.  SQUAREM extrapolates two steps by a length s, which goes half
the way to 1 while L is below the first step's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastdp_kernels._jit import inline, kernel
from fastdp_kernels.local.band_matrix import Band, apply_band
from fastdp_kernels.noise.guarded_log import natural_log

#: An extrapolated share is at least this part of the plain step's: it stays positive.
MIN_PART = 0.1
#: An extrapolation this short gains little over the plain step.
SHORTEST = 1.5
#: Shares below this become 0: they change nothing, and subnormal numbers are slow.
MIN_SHARE = 2.0**-900
#: Of a gain in log-likelihood, for each report and cell.
ROUNDING = 2.0**-43
#: Rows of the memory of :func:`iterate_accelerated`: theta0, theta1, theta2 and the extrapolation.
THETA, ONCE, TWICE, FURTHER = 0, 1, 2, 3


class Reports(NamedTuple):
    """Reports and their transition matrix.

    Attributes
    ----------
    counts, flat, peak : float64[cells]
        n_k, probability of cell k for every input, and surplus where the window covers it.
    forward, backward : Band
        F, cells by bins, and F'.
    """

    counts: np.ndarray
    flat: np.ndarray
    peak: np.ndarray
    forward: Band
    backward: Band


class Scratch(NamedTuple):
    """Memory: p of this estimate and the one before; n / p; terms of a sum; prefix sums."""

    chances: np.ndarray
    before: np.ndarray
    ratios: np.ndarray
    terms: np.ndarray
    sums: np.ndarray


@inline
def _sum(x: np.ndarray) -> float:
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    fours = x.size // 4
    for i in range(fours):
        a += x[4 * i]
        b += x[4 * i + 1]
        c += x[4 * i + 2]
        d += x[4 * i + 3]
    for i in range(4 * fours, x.size):
        a += x[i]
    return (a + b) + (c + d)


@inline
def _sum_of_products(x: np.ndarray, y: np.ndarray) -> float:
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    fours = x.size // 4
    for i in range(fours):
        a += x[4 * i] * y[4 * i]
        b += x[4 * i + 1] * y[4 * i + 1]
        c += x[4 * i + 2] * y[4 * i + 2]
        d += x[4 * i + 3] * y[4 * i + 3]
    for i in range(4 * fours, x.size):
        a += x[i] * y[i]
    return (a + b) + (c + d)


@inline
def _predict(theta: np.ndarray, reports: Reports, scratch: Scratch) -> None:
    p, ratios = scratch.chances, scratch.ratios
    apply_band(reports.forward, theta, scratch.sums, p)
    whole = _sum(theta)
    for k in range(p.size):
        p[k] = reports.flat[k] * whole + reports.peak[k] * p[k]
        ratios[k] = reports.counts[k] / p[k]


@inline
def _likelihood(p: np.ndarray, reports: Reports, scratch: Scratch) -> float:
    terms = scratch.terms
    for k in range(p.size):
        terms[k] = reports.counts[k] * natural_log(p[k])
    return _sum(terms)


@inline
def _least_gain(n: float, reports: Reports, scratch: Scratch) -> float:
    """Lower bound of the gain in L, by ln x >= 1 - 1 / x, x = p / before."""
    return n - _sum_of_products(scratch.before, scratch.ratios) - n * (reports.counts.size + 100) * ROUNDING


@inline
def _update(theta: np.ndarray, reports: Reports, scratch: Scratch, out: np.ndarray) -> None:
    ratios, terms = scratch.ratios, scratch.terms
    shared = _sum_of_products(reports.flat, ratios)
    for k in range(terms.size):
        terms[k] = reports.peak[k] * ratios[k]
    apply_band(reports.backward, terms, scratch.sums, out)
    for i in range(out.size):
        out[i] = theta[i] * (out[i] + shared)
    scale = 1.0 / _sum(out)
    for i in range(out.size):
        share = out[i] * scale
        out[i] = share if share > MIN_SHARE else 0.0


@inline
def _smooth(theta: np.ndarray) -> None:
    before, whole = 0.0, 0.0
    for i in range(theta.size):
        here = theta[i]
        after = theta[i + 1] if i + 1 < theta.size else 0.0
        weight = 4.0 - (1.0 if i == 0 else 0.0) - (1.0 if i + 1 == theta.size else 0.0)
        theta[i] = (before + 2.0 * here + after) / weight
        whole += theta[i]
        before = here
    for i in range(theta.size):
        theta[i] /= whole


@inline
def _full_length(theta: np.ndarray, once: np.ndarray, twice: np.ndarray) -> float:
    rr, vv = 0.0, 0.0
    for i in range(theta.size):
        r = once[i] - theta[i]
        v = (twice[i] - once[i]) - r
        rr += r * r
        vv += v * v
    return max(1.0, np.sqrt(rr / vv)) if vv > 0.0 else 1.0


@inline
def _extrapolate(theta: np.ndarray, once: np.ndarray, twice: np.ndarray, s: float, out: np.ndarray) -> None:
    whole = 0.0
    for i in range(theta.size):
        r = once[i] - theta[i]
        v = (twice[i] - once[i]) - r
        out[i] = max(theta[i] + 2.0 * s * r + s * s * v, MIN_PART * twice[i])
        whole += out[i]
    for i in range(theta.size):
        out[i] /= whole


@inline
def _copy(source: np.ndarray, target: np.ndarray) -> None:
    # Assigned as arrays, Numba would compile the text of an error about their sizes besides.
    for i in range(target.size):
        target[i] = source[i]


@inline
def _scratch_for(theta: np.ndarray, reports: Reports) -> Scratch:
    n = reports.counts.size
    return Scratch(np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty((2, max(n, theta.size) + 1)))


@kernel
def iterate_plain(
    reports: Reports, smooth: bool, tolerance: float, max_iterations: int, out: np.ndarray
) -> tuple[int, bool, float]:
    """Iterate EM, or EMS if ``smooth``, on the estimate ``out`` (float64[d], positive, sum 1).

    Returns the steps made, True if the last gained less than ``tolerance``, and L.
    """
    scratch = _scratch_for(out, reports)
    following, n, step = np.empty(out.size), _sum(reports.counts), 0
    while True:
        # One call of each piece, which LLVM compiles in place wherever it is called.
        _predict(out, reports, scratch)
        if step == max_iterations or (step > 0 and _least_gain(n, reports, scratch) < tolerance):
            reached = _likelihood(scratch.chances, reports, scratch)
            gain = reached - _likelihood(scratch.before, reports, scratch)
            converged = (abs(gain) if smooth else gain) < tolerance
            if step == max_iterations or converged:
                return step, converged, reached
        _copy(scratch.chances, scratch.before)
        _update(out, reports, scratch, following)
        if smooth:
            _smooth(following)
        _copy(following, out)
        step += 1


@kernel
def iterate_accelerated(
    reports: Reports, tolerance: float, max_iterations: int, out: np.ndarray
) -> tuple[int, bool, float]:
    """:func:`iterate_plain` with SQUAREM; L never falls from one extrapolation to the next."""
    scratch = _scratch_for(out, reports)
    points = np.empty((4, out.size))
    _copy(out, points[THETA])
    here, steps, s, likelihood, reached = THETA, 0, 1.0, 0.0, 0.0
    while True:
        # One call of each piece, which LLVM compiles in place wherever it is called.
        _predict(points[here], reports, scratch)
        found = _likelihood(scratch.chances, reports, scratch)
        if here == FURTHER and found < reached:
            s = (s + 1.0) / 2.0
        else:
            if here == ONCE:
                reached = found
                done = reached - likelihood < tolerance
            else:
                likelihood, done = found, False
            if done or (here != THETA and steps >= max_iterations):
                _copy(points[here], out)
                return steps, done, found
            if here > ONCE:
                _copy(points[here], points[THETA])
                here = THETA
            _update(points[here], reports, scratch, points[here + 1])
            steps += 1
            here += 1
            if here == ONCE:
                continue
            s = _full_length(points[THETA], points[ONCE], points[TWICE])
        here = TWICE
        if s >= SHORTEST:
            here = FURTHER
            _extrapolate(points[THETA], points[ONCE], points[TWICE], s, points[FURTHER])
