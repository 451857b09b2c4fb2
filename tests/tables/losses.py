"""Exact privacy losses of two releases that gave the same numbers (:mod:`tests.tables.forced`)."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from fastdp.noise.gaussian import GaussianDistribution
from tests.tables.forced import Choice, Hidden, Integers, Keys

#: Logarithms of probabilities are computed to so much.
SLACK = Fraction(1, 10**11)
NODES, WEIGHTS = np.polynomial.legendre.leggauss(90)
NODES, WEIGHTS = (NODES + 1.0) / 2.0, WEIGHTS / 2.0


class Loss(NamedTuple):
    """Difference of two tables that released the same numbers.

    Attributes
    ----------
    epsilon : Fraction
        The largest log-ratio of probabilities over all outputs that take this way; of Gaussian noise none.
    rho : Fraction
        Of all draws: d^2 / (2 sigma^2) of Gaussian noise, half of the square of pure losses.
    alone : float
        Probability that a key which one table alone has is released.
    """

    epsilon: Fraction
    rho: Fraction
    alone: float


def loss(here: Hidden, there: Hidden) -> Loss:
    """The loss between two runs; an assertion unless the distributions of all draws are equal, which are public."""
    free, steered, rho, alone = Fraction(0), Fraction(0), Fraction(0), 0.0
    gaussian = any(map(is_gaussian, here))
    steering = max((i for i, each in enumerate(here) if isinstance(each, Choice)), default=-1)
    for i, (one, other) in enumerate(zip(here, there, strict=True)):
        assert type(one) is type(other)
        assert one.distribution == other.distribution
        if isinstance(one, Integers):
            assert one.exact.shape == other.exact.shape
            moves = moved(one, other)
            if isinstance(one.distribution, GaussianDistribution):
                rho += Fraction(sum(d * d for d in moves)) / (2 * one.distribution.sigma**2)
                continue
            most = Fraction(sum(map(abs, moves))) / one.distribution.scale
            rho += most**2 / 2
            if i > steering:
                # Any number may be released, without another way: the worst one counts.
                free += most
            else:
                far = sum(np.abs(other.exact - one.released).tolist()) - sum(
                    np.abs(one.exact - one.released).tolist()
                )
                steered += Fraction(far) / one.distribution.scale
        elif isinstance(one, Choice):
            steered += _rounded(log_winner(one, one.winner) - log_winner(other, one.winner))
            if gaussian:
                # Neighbouring candidates have nearly the same ratio.
                some = {*range(0, one.scores.size, 8), one.winner, one.scores.size - 1}
                ratios = [abs(log_winner(one, i) - log_winner(other, i)) for i in some]
                rho += _rounded(max(ratios)) ** 2 / 2
        else:
            assert (one.threshold, one.passed) == (other.threshold, other.passed)
            if isinstance(one.distribution, GaussianDistribution):
                rho += Fraction(sum(d * d for d in moved(one, other))) / (2 * one.distribution.sigma**2)
            else:
                ratio, most = _key_ratio(one, other)
                steered += _rounded(ratio)
                if one.published:
                    # Of a key that passed its number, which may be any above the threshold: the worst one counts.
                    most = float(sum(map(abs, moved(one, other))) / one.distribution.scale)
                    free += sum(
                        Fraction(abs(one.counts[row] - other.counts[row])) / one.distribution.scale
                        for row in one.passed
                    )
                rho += _rounded(most) ** 2 / 2
            alone = max(alone, *(_alone(*pair) for pair in ((one, other), (other, one))))
    return Loss(free + abs(steered), rho, alone)


def is_gaussian(draw: Integers | Choice | Keys) -> bool:
    """True if numbers with Gaussian noise are released; keys of persons may have it beside Laplace noise of sums."""
    numbers = isinstance(draw, Integers) or (isinstance(draw, Keys) and draw.published)
    return numbers and isinstance(draw.distribution, GaussianDistribution)


def moved(one: Integers | Keys, other: Integers | Keys) -> list[int]:
    """Differences of the exact numbers other than 0, of keys those of both tables."""
    if isinstance(one, Keys) and isinstance(other, Keys):
        differences = [one.counts[row] - other.counts[row] for row in one.counts.keys() & other.counts.keys()]
    elif isinstance(one, Integers) and isinstance(other, Integers):
        differences = (one.exact - other.exact).reshape(-1).tolist()
    return [each for each in differences if each]


def _rounded(logarithm: float) -> Fraction:
    """Towards 0, by the error of the computation."""
    size = max(Fraction(abs(logarithm)) - SLACK, Fraction(0))
    return size if logarithm > 0 else -size


# Noisy max.


def log_winner(choice: Choice, winner: int) -> float:
    """Logarithm of the probability that a candidate wins, the lowest of several, with one-sided noise."""
    return _log_winner(choice.scores.tobytes(), choice.distribution.scale, winner)


@lru_cache(maxsize=2**16)
def _log_winner(scores: bytes, scale: Fraction, winner: int) -> float:
    """Sum over the winner's own noise z = m + w of (1 - q) q^z times the others' distribution functions.

    With y = q^w these are 1 - a_j y, a_j <= 1, so that the sum over w is that of a polynomial in y, times y.  By
    Euler and Maclaurin it is an integral over y, which Gauss and Legendre's nodes give exactly, and half of the first
    term; for n candidates and noise of scale s what is left is some (n / s)^2 of it.
    """
    of, h = np.frombuffer(scores, np.int64), 1.0 / float(scale)
    index = np.arange(of.size)
    # An earlier candidate must stay below, a later one may be level.
    ahead = (of[winner] - of + (index > winner))[index != winner]
    least = max(0, -int(ahead.min()))
    a = np.exp(-h * (ahead + least).astype(np.float64))
    integral = float(WEIGHTS @ np.exp(np.log1p(-np.outer(NODES, a)).sum(axis=1)))
    whole = integral / h + float(np.prod(1.0 - a)) / 2.0
    return math.log(-math.expm1(-h)) - h * least + math.log(whole)


# Private keys.


def _log_passes(keys: Keys, count: int) -> tuple[float, float]:
    """Logarithms of the probabilities that a key with so many rows passes, and that it does not."""
    if isinstance(keys.distribution, GaussianDistribution):
        x = (keys.threshold - count) / float(keys.distribution.sigma)
        return float(log_ndtr(-x)), float(log_ndtr(x))
    exponent = 1.0 / float(keys.distribution.scale)
    beyond = keys.threshold - count
    size = max(beyond, 1 - beyond)
    rare = -size * exponent - math.log1p(math.exp(-exponent))
    often = math.log1p(-math.exp(rare))
    return (rare, often) if beyond > 0 else (often, rare)


def _key_ratio(one: Keys, other: Keys) -> tuple[float, float]:
    """Log-ratio of the probabilities of these keys among those of both tables; and the most of any keys.

    Published numbers are counted in place of the keys that passed.
    """
    ratio, most = 0.0, 0.0
    for row in set(one.counts) & set(other.counts):
        pairs = list(zip(_log_passes(one, one.counts[row]), _log_passes(other, other.counts[row]), strict=True))
        passes, fails = (a - b for a, b in pairs)
        ratio += fails if row not in one.passed else 0.0 if one.published else passes
        most += max(abs(passes), abs(fails))
    return ratio, most


def _alone(one: Keys, other: Keys) -> float:
    """Probability that a key which only the first table has is released."""
    fails = sum(_log_passes(one, count)[1] for row, count in one.counts.items() if row not in other.counts)
    return -math.expm1(fails)


# Gaussian noise.


def gaussian_tail(moved: list[int], sigma: Fraction, epsilon: float) -> float:
    """The least delta for which integers that differ so, under discrete Gaussian noise, are (epsilon, delta)-DP."""
    s = float(sigma)
    reach = math.ceil(14 * s) + 1
    x = np.arange(-reach, reach + 1)
    mass = np.exp(-(x**2) / (2 * s * s))
    mass /= mass.sum()
    whole, least = np.ones(1), 0
    for d in filter(None, map(abs, moved)):
        spread = np.zeros((x.size - 1) * d + 1)
        spread[::d] = mass
        whole, least = np.convolve(whole, spread), least - reach * d
    ratio = (2.0 * (least + np.arange(whole.size)) + sum(d * d for d in moved)) / (2 * s * s)
    return float((whole * np.maximum(-np.expm1(np.minimum(epsilon - ratio, 0.0)), 0.0)).sum())
