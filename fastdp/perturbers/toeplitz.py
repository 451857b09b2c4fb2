"""Correlated Gaussian noise, under which sums of published values err little (``docs/noise.md``, section 8).

Source: Dvijotham, McMahan, Pillutla, Steinke and Thakurta 2024 (the matrices); Denisov et al. 2022, Theorem 2.1.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Floats, Integers
from fastdp.noise.gaussian import GaussianDistribution, gaussian_distribution
from fastdp.noise.key import Key
from fastdp.noise.sampler import NoiseName, concentrated
from fastdp.perturbers.base import HierarchyShape
from fastdp.record import Numbers, Real, Whole, parameter, put, record
from fastdp.releases.intervals import SumNoise
from fastdp.validation import refusal
from fastdp_kernels.noise import correlated_noise

# Exponentials of a Toeplitz factor with the least error of prefix sums, or of windows, in closed form.
#
# C(x) = 1 + sum over i of theta_i x / (1 - lambda_i x), lambda_i = 1 - mu_i.  The sums of y = C^-1 z have
# coefficients B = 1 / ((1 - x) C(x)), which are a constant and exponentials again, so that all squares are sums of
# geometric series.
#
# Source: Dvijotham et al. 2024 (buffered linear Toeplitz matrices, and their closed forms).

BUFFERS = 8
#: mu and theta for streams of any length: sums over 2^8 to 2^30 values have at most 1.47 times the squared error of
#: the square root factorisation for that length (``tests/perturbers/test_toeplitz.py``).
ENDLESS = (
    (0.4027, 0.06572, 0.008, 0.0003936, 2.4216e-05, 1.4295e-06, 7.961e-08, 3.506e-09),
    (0.24505, 0.15094, 0.085412, 0.011595, 0.0026796, 0.0006048, 0.00013357, 3.683e-05),
)


@lru_cache(maxsize=64)
def fitted(length: int | None, window: int | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Rates mu and weights theta for prefix sums up to `length`, windows, or any length."""
    span = window if length is None else length
    if span is None:
        return ENDLESS
    # Imported here because the import takes longer than the fit.
    from scipy.optimize import minimize

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
    fit = minimize(product, np.log(np.concatenate([mu, theta])), method="BFGS", options={"maxiter": 60}).x
    mu, theta = np.exp(fit[:BUFFERS]), np.exp(fit[BUFFERS:])
    return tuple(mu.tolist()), tuple(theta.tolist())


def geometric(nu: Floats, count: float) -> Floats:
    """1 + q + ... + q^(count - 1), q = 1 - `nu`."""
    small = nu * count < 1e-6
    series = -np.expm1(count * np.log1p(-nu)) / np.where(small, 1.0, nu)
    return np.where(small, count * (1.0 - nu * (count - 1.0) / 2.0), series)


def both(mu: Floats) -> Floats:
    """Matrix of 1 - lambda_i lambda_j, lambda = 1 - `mu`."""
    return mu[:, None] + mu[None] - mu[:, None] * mu[None]


def sensitivity_square(mu: Floats, theta: Floats, length: int | None) -> float:
    """Squared L2 norm of a column of C over `length` values, or endlessly."""
    sums = 1.0 / both(mu) if length is None else geometric(both(mu), length - 1.0)
    return 1.0 + float(np.einsum("i,j,ij->", theta, theta, sums))


def sum_terms(mu: Floats, theta: Floats) -> tuple[Floats, Floats] | None:
    """1 - q and weight of each exponential of B, the constant first; None if B grows."""
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
    """Largest standard deviation in y's recursion, in units of z's."""
    keeps, size = 1.0 - np.array(mu), BUFFERS + 2
    near = np.array(theta) @ np.stack([np.ones(BUFFERS), keeps], axis=1)
    # The buffers, the last value and the one before it (``correlated_noise``).
    step = np.diag([*keeps, 0.0, 0.0])
    step[:BUFFERS, -1] = 1.0
    step[-2] = -np.concatenate([np.array(theta) * keeps * keeps, near])
    step[-1, -2] = 1.0
    if not np.abs(np.linalg.eigvals(step)).max() < 1.0:
        return math.inf
    # Their covariance P solves P = A P A^T + e e^T, where e is the unit vector of the last value.
    drawn = np.zeros((size, size))
    drawn[-2, -2] = 1.0
    covariance = np.linalg.solve(np.eye(size * size) - np.kron(step, step), drawn.reshape(-1)).reshape(size, size)
    return math.sqrt(max(0.0, float(covariance.diagonal().max())))


def prefix_error(mu: Floats, theta: Floats, length: int) -> float:
    """Mean variance of the sums of the first 1, ..., `length` y."""
    exponentials = sum_terms(mu, theta)
    if exponentials is None:
        return math.inf
    nu, terms = exponentials
    pairs = both(nu)
    small = pairs * length < 1e-4
    safe = np.where(small, 1.0, pairs)
    with np.errstate(all="ignore"):
        means = (length - (1.0 - pairs) * geometric(pairs, length)) / safe / length
    means = np.where(small, (length + 1.0) / 2.0 * (1.0 - pairs * (length - 1.0) / 3.0), means)
    return float(np.einsum("i,j,ij->", terms, terms, means))


def window_error(mu: Floats, theta: Floats, window: int) -> float:
    """Variance of a sum of `window` y far from the start."""
    exponentials = sum_terms(mu, theta)
    if exponentials is None:
        return math.inf
    nu, terms = exponentials
    first = float(np.einsum("i,j,ij->", terms, terms, geometric(both(nu), float(window))))
    # After the window B_n - B_(n - window): the constant cancels.
    rest = terms[1:] * np.expm1(window * np.log1p(-nu[1:]))
    return first + float(np.einsum("i,j,ij->", rest, rest, 1.0 / both(nu[1:])))


#: Values of one epoch without a given length; noise restarts after it.
EPOCH = 2**32
#: Beyond this a fit loses precision, and the one for any length is close to it.
MAX_LENGTH = 2**28
#: Buffers exceed so many sigmas with probability below e^-100 in an epoch: their deviation is below 4 sigmas.
HEADROOM = 64.0
#: Largest deviation of buffers, in sigmas.
MAX_DEVIATION = 4.0
#: Values whose sensitivity together is summed term by term.
MAX_GROUP = 2**20


def _factor(below: float) -> Numbers:
    return Numbers(Real(least=2.0**-40, below=below), correlated_noise.BUFFERS)


@record
class Toeplitz:
    """Adds exact discrete Gaussian noise to each value, correlated so that sums of values err little.

    Parameters
    ----------
    length : int, optional
        T, up to 2^28: tuned for sums of the first t <= T values; noise restarts after T.  By default any length, at
        up to 1.47 times the squared error for 2^8 to 2^30 values.
    window : int, optional
        In place of a length: tuned for sums of so many values.
    rates, shares : sequence of 8 floats, optional
        1 - lambda_i and theta_i of the factor C; by default computed.

    Notes
    -----
    Privacy: (epsilon, delta), exact on this machine (``docs/noise.md``, section 8).  Prefix sums over T = 2^20 values
    have a mean squared error of 495 theta^2 at (1, 1e-6).

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> from fastdp.perturbers import Toeplitz
    >>> publisher = fastdp.StreamPublisher(
    ...     threshold=50.0, perturber=Toeplitz(),
    ...     epsilon=1.0, delta=1e-6, bound=50.0, seed=1
    ... )
    >>> publisher.publish(np.full(1000, 20.0)).size
    1000
    """

    length: int | None = parameter(Whole(2, MAX_LENGTH), default=None)
    window: int | None = parameter(Whole(2, MAX_LENGTH), default=None)
    rates: tuple[float, ...] | None = parameter(_factor(1.0), default=None)
    shares: tuple[float, ...] | None = parameter(_factor(4.0), default=None)

    noise: ClassVar[NoiseName] = "gaussian"
    released_nodes: ClassVar[bool] = False
    rule: ClassVar[int] = 1

    def _check(self) -> None:
        if self.length is not None and self.window is not None:
            raise ParameterError(f"window = {self.window}: expected None with a length")
        rates, shares = self.rates, self.shares
        if (rates is None) != (shares is None):
            raise ParameterError("rates and shares: expected both or none")
        if rates is None or shares is None:
            # Kept: a fit need not be the same to the last digit on another machine.
            rates, shares = fitted(self.length, self.window)
            put(self, rates=_factor(1.0).check("rates", rates), shares=_factor(4.0).check("shares", shares))
        if not deviation(rates, shares) <= MAX_DEVIATION:
            raise ParameterError(
                "rates and shares: expected a factor C whose inverse keeps noise small (buffers of a deviation of at "
                f"most {MAX_DEVIATION:g} sigma), because noise that grows hides nothing"
            )

    @cached_property
    def _coefficients(self) -> tuple[Floats, Floats, Floats, Floats]:
        """First two coefficients of C; third one, factor and its complement of each term."""
        theta, keeps = np.array(self.shares), 1.0 - np.array(self.rates)
        near = np.array([theta.sum(), (theta * keeps).sum()])
        return near, theta * keeps * keeps, keeps, 1.0 - keeps

    @property
    def epoch(self) -> int:
        """Number of consecutive values whose noise is correlated."""
        return self.length or EPOCH

    def plan(self, epsilon: float, max_range: int) -> HierarchyShape:
        return HierarchyShape(tree_blocks=self.epoch)

    def guarantee(self, plan: HierarchyShape, epsilon: float) -> Guarantee:
        return concentrated(
            epsilon,
            f"each value gets y = z - rint(c_1 y' + c_2 y'' + ...), z discrete Gaussian of sigma |C| theta / "
            f"{epsilon:g}, |C| with all that rounding may add",
            "given earlier outputs z alone is unknown, and a value moves the z of j values later by at most c_j "
            f"theta and a rounding: rho = {epsilon:g}^2 / 2 (adaptive sequential)",
            f"noise begins again every {self.epoch:,} values, which are disjoint (parallel)",
        )

    def noise_constant(self, plan: HierarchyShape, max_range: int) -> float:
        """K of a prefix; that of other ranges is up to twice as much."""
        mu, theta = np.array(self.rates), np.array(self.shares)
        return self._square * prefix_error(mu, theta, min(max_range, self.epoch))

    @cached_property
    def _square(self) -> float:
        near, weights, _, mu = self._coefficients
        counts = None if self.length is None else max(float(self.length - 3), 0.0)
        pairs = both(mu)
        tail = 1.0 / pairs if counts is None else geometric(pairs, counts)
        far = float(np.einsum("i,j,ij->", weights, weights, tail))
        return (1.0 + float(near @ near) + far) * (1.0 + 1e-9)

    def group_square(self, plan: HierarchyShape, size: int) -> Fraction:
        """Squared L2 sensitivity of `size` consecutive values, or a bound."""
        if size == 1:
            return Fraction(1)
        if size > MAX_GROUP:
            return Fraction(size) ** 2
        near, weights, keeps, mu = self._coefficients
        powers = keeps[None] ** np.arange(size)[:, None]
        single = np.concatenate([[1.0], near, powers[: size - 1] @ weights])
        sums = np.cumsum(single)
        moved = sums - np.concatenate([np.zeros(size), sums[:-size]])
        # From value size + 2 on all terms are exponentials.
        far = weights * -np.expm1(size * np.log1p(-mu)) / mu
        total = float(moved @ moved) + float(np.einsum("i,j,ij->", far, far, 1.0 / both(mu)))
        return max(Fraction(total * (1.0 + 1e-9) / self._square), Fraction(size))

    def moved_draws(self, plan: HierarchyShape, size: int) -> int:
        """Number of draws in the epochs of `size` values."""
        return self.epoch * (2 if size > 1 else 1) + size

    def leaf_distribution(self, theta_steps: int, epsilon: float) -> GaussianDistribution:
        """Distribution of each draw z, in grid steps."""
        return gaussian_distribution(Fraction(_sigma(self, theta_steps, epsilon)))

    def sum_noise(self, epsilon: float, resolution: float) -> SumNoise | None:
        """Noise of sums, for intervals; None if a user's factor oscillates."""
        per_step = _sigma(self, 1, epsilon) - _sigma(self, 0, epsilon)
        exponentials = sum_terms(np.array(self.rates), np.array(self.shares))
        if exponentials is None:
            return None
        rates, weights = (tuple(column.tolist()) for column in exponentials)
        return SumNoise(
            "correlated",
            per_step,
            resolution,
            gaussian=True,
            more=_sigma(self, 0, epsilon),
            rates=rates,
            weights=weights,
            epoch=self.epoch,
        )

    @property
    def memory(self) -> int:
        return correlated_noise.MEMORY

    def correlate(self, noise: Integers, memory: Floats, position: int) -> Floats:
        near, weights, keeps, _ = self._coefficients
        memory, begin = memory.copy(), 0
        while begin < noise.size:
            left = self.epoch - (position + begin) % self.epoch
            if left == self.epoch:
                memory[:] = 0.0
            correlated_noise.correlate(noise[begin : begin + left], near, weights, keeps, memory)
            begin += left
        return memory

    def leaf_noise(self, plan: HierarchyShape, theta_steps: int, epsilon: float, key: Key, tree: int) -> Integers:
        raise ParameterError(
            "perturber = Toeplitz: expected a Hierarchy or Flat here (or one publisher for each stream), because "
            "each value's noise follows that of the values before"
        )

    node_noise = leaf_noise


@lru_cache(maxsize=256)
def _sigma(perturber: Toeplitz, theta_steps: int, epsilon: float) -> float:
    near, weights, _, mu = perturber._coefficients
    doubles = 2.0**-51 * float((weights / mu).sum()) + 2.0**-47 * float(weights.sum() + near.sum())
    root = math.sqrt(perturber.epoch)
    room = epsilon - root * doubles * HEADROOM
    if room <= epsilon / 2.0:
        raise refusal("epsilon", epsilon, "a larger one, because doubles do not hold so much noise exactly enough")
    exact = math.sqrt(perturber._square) * theta_steps + root
    return exact / room * (1.0 + 2.0**-40)
