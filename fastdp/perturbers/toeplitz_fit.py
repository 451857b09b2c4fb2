"""Which exponentials a Toeplitz factor is made of: the least error of prefix sums, or of windows, in closed form.

C(x) = 1 + sum over i of theta_i x / (1 - lambda_i x), lambda_i = 1 - mu_i.  The sums of y = C^-1 z have coefficients
B = 1 / ((1 - x) C(x)), which are a constant and exponentials again, so that all squares are sums of geometric series.

Source: Dvijotham et al. 2024 (buffered linear Toeplitz matrices, and their closed forms).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from fastdp.data.kinds import Floats

BUFFERS = 8
#: mu and theta for streams of any length: sums over 2^8 to 2^30 values have at most 1.47 times the squared error of
#: the square root factorisation for that length (``tests/perturbers/test_toeplitz.py``).
ENDLESS = (
    (0.4027, 0.06572, 0.008, 0.0003936, 2.4216e-05, 1.4295e-06, 7.961e-08, 3.506e-09),
    (0.24505, 0.15094, 0.085412, 0.011595, 0.0026796, 0.0006048, 0.00013357, 3.683e-05),
)


@lru_cache(maxsize=64)
def fitted(length: int | None, window: int | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """mu and theta for prefix sums of up to ``length`` values, or for windows, or for any length."""
    if length is None and window is None:
        return ENDLESS
    # Only here: it takes longer to import than to run.
    from scipy.optimize import minimize

    span = window if length is None else length
    assert span is not None  # noqa: S101 - one of the two is given

    def product(logs: Floats) -> float:
        mu, theta = np.exp(np.minimum(logs[:BUFFERS], 0.0)), np.exp(np.minimum(logs[BUFFERS:], 3.0))
        if not mu.max() < 0.999:
            return 1e3
        error = window_error(mu, theta, span) if length is None else prefix_error(mu, theta, span)
        value = error * sensitivity_square(mu, theta, length)
        return math.log(value) if 0.0 < value < math.inf else 1e3

    # The square root's coefficients are an integral over exponentials: equal steps of its logarithm.
    mu = np.geomspace(0.45, min(2.0 / span, 0.2), BUFFERS)
    theta = np.log(mu[0] / mu[1]) / np.pi * np.sqrt(mu) * 0.8
    found = minimize(product, np.log(np.concatenate([mu, theta])), method="BFGS", options={"maxiter": 60}).x
    mu, theta = np.exp(found[:BUFFERS]), np.exp(found[BUFFERS:])
    return tuple(mu.tolist()), tuple(theta.tolist())


def geometric(nu: Floats, count: float) -> Floats:
    """1 + q + ... + q^(count - 1), q = 1 - nu."""
    small = nu * count < 1e-6
    series = -np.expm1(count * np.log1p(-nu)) / np.where(small, 1.0, nu)
    return np.where(small, count * (1.0 - nu * (count - 1.0) / 2.0), series)


def both(mu: Floats) -> Floats:
    """1 - lambda_i lambda_j."""
    return mu[:, None] + mu[None] - mu[:, None] * mu[None]


def sensitivity_square(mu: Floats, theta: Floats, length: int | None) -> float:
    """Squared L2 norm of a column of C, over so many values or for ever."""
    sums = 1.0 / both(mu) if length is None else geometric(both(mu), length - 1.0)
    return 1.0 + float(np.einsum("i,j,ij->", theta, theta, sums))


def sum_terms(mu: Floats, theta: Floats) -> tuple[Floats, Floats] | None:
    """1 - q and the weight of each exponential of B, the constant first; None where B would grow or swing."""
    # C^-1 has the poles of diag(lambda) - 1 theta^T.
    with np.errstate(all="ignore"):
        nu, vectors = np.linalg.eig(np.diag(mu) + theta[None].repeat(mu.size, axis=0))
        if np.abs(nu.imag).max() > 0.0 or nu.real.min() <= 0.0 or nu.real.max() >= 1.0:
            return None
        ones = np.ones(mu.size)
        weights = -(theta @ vectors) * np.linalg.solve(vectors, ones) / nu
    terms = np.concatenate([[1.0 + weights.sum()], -weights])
    return np.concatenate([[0.0], nu]), terms


@lru_cache(maxsize=256)
def deviation(mu: tuple[float, ...], theta: tuple[float, ...]) -> float:
    """Largest deviation of what the recursion of y remembers, in those of z; infinite where it grows for ever."""
    keeps, size = 1.0 - np.array(mu), BUFFERS + 2
    near = np.array(theta) @ np.stack([np.ones(BUFFERS), keeps], axis=1)
    # The buffers, the last value and the one before it (:mod:`fastdp_kernels.correlated_noise`).
    step = np.diag([*keeps, 0.0, 0.0])
    step[:BUFFERS, -1] = 1.0
    step[-2] = -np.concatenate([np.array(theta) * keeps * keeps, near])
    step[-1, -2] = 1.0
    if not np.abs(np.linalg.eigvals(step)).max() < 1.0:
        return math.inf
    # Their covariance P solves P = A P A^T + e e^T, where e is the last value's place.
    drawn = np.zeros((size, size))
    drawn[-2, -2] = 1.0
    found = np.linalg.solve(np.eye(size * size) - np.kron(step, step), drawn.reshape(-1)).reshape(size, size)
    return math.sqrt(max(0.0, float(found.diagonal().max())))


def prefix_error(mu: Floats, theta: Floats, length: int) -> float:
    """Mean variance of the sums of the first 1, ..., length values of y, in squares of z's deviation."""
    found = sum_terms(mu, theta)
    if found is None:
        return math.inf
    nu, terms = found
    pairs = both(nu)
    small = pairs * length < 1e-4
    safe = np.where(small, 1.0, pairs)
    with np.errstate(all="ignore"):
        means = (length - (1.0 - pairs) * geometric(pairs, length)) / safe / length
    means = np.where(small, (length + 1.0) / 2.0 * (1.0 - pairs * (length - 1.0) / 3.0), means)
    return float(np.einsum("i,j,ij->", terms, terms, means))


def window_error(mu: Floats, theta: Floats, window: int) -> float:
    """Variance of the sum of any ``window`` consecutive values of y, far from the beginning."""
    found = sum_terms(mu, theta)
    if found is None:
        return math.inf
    nu, terms = found
    first = float(np.einsum("i,j,ij->", terms, terms, geometric(both(nu), float(window))))
    # Behind it B_n - B_(n - window): the constant cancels.
    rest = terms[1:] * np.expm1(window * np.log1p(-nu[1:]))
    return first + float(np.einsum("i,j,ij->", rest, rest, 1.0 / both(nu[1:])))
