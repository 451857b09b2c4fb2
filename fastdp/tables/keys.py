"""Private keys, by counts of rows or weights of persons (``docs/tables_proofs.md``).

Source: Gopi, Gulhane, Kulkarni, Shen, Shokouhi and Yekhanin 2020, "Differentially Private Set Union"; an undivided
delta is ours.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import special

from fastdp.guarantee import gaussian_delta, gaussian_loss, zcdp_delta
from fastdp.kinds import Flags, Floats, Integers
from fastdp.noise import bound_noise
from fastdp.noise.gaussian import GaussianDistribution, gaussian_distribution
from fastdp.noise.key import Key
from fastdp.noise.sampler import Distribution, LaplaceDistribution, laplace_distribution, sigma_of_loss
from fastdp.noise.words import Words
from fastdp.validation import refusal
from fastdp_kernels.tables import person_rows

if TYPE_CHECKING:
    from fastdp.tables.columns import Keys

#: Grid steps of the weight 1: a person's weights are rounded down to it.
WEIGHT = 2**30
#: Distinct keys of a person that have a weight.
MOST_KEYS = 1024
#: Thresholds lie below.
MOST_THRESHOLD = 2**62
#: Digits of a threshold's tail, and by how much it is rounded up.
_TAIL = Context(prec=60)
_SLACK = Decimal(1) + Decimal(10) ** -40
#: Steps of the shares of new keys that are looked at, per factor of 2; slack of tails computed in doubles.
_PER_OCTAVE, _ROUNDING = 16, 1e-6
#: Intervals are those without a choice for numbers so many deviations above the threshold.
_FAR = 40.0


class KeyRule(NamedTuple):
    """Noise and threshold that choose keys, and keys of one person."""

    distribution: Distribution
    threshold: int
    most: int = 1


# Rows: counts, of which a unit has k.


def count_rule(
    distribution: Distribution, contributions: int, delta: float, least: int = 1, power: int = 1
) -> KeyRule:
    """The least T that a unit's own keys pass with total probability at most delta.

    A key of c rows passes with probability S(c), so k rows in keys of at least `least` reach k max S(c) / c.  `power`
    2 (Laplace only): k is the root of the sum of squares.
    """
    if isinstance(distribution, LaplaceDistribution):
        reached = partial(_laplace_reached, distribution)
    else:
        reached = partial(_gaussian_reached, distribution)
    given, above = ((least, contributions, power), delta), range(contributions + 1, MOST_THRESHOLD)
    return KeyRule(distribution, above[bisect_left(above, True, key=lambda threshold: reached(*given, threshold))])


def _laplace_reached(
    distribution: LaplaceDistribution, counts: tuple[int, int, int], delta: float, threshold: int
) -> bool:
    """True if tails q^(T - c) / (1 + q), q = exp(-1 / scale), rounded up, stay within delta.

    S(c) / c^p falls, then rises: it is greatest at one of the two counts.
    """
    exponent = _TAIL.divide(Decimal(distribution.scale.denominator), Decimal(distribution.scale.numerator))
    one_plus_q = _TAIL.add(Decimal(1), _TAIL.exp(-exponent))

    def tail(count: int) -> Decimal:
        power = _TAIL.exp(_TAIL.multiply(-exponent, Decimal(threshold - count)))
        return _TAIL.multiply(_TAIL.divide(power, one_plus_q), _SLACK)

    least, k, p = counts
    most = _TAIL.multiply(_TAIL.divide(Decimal(k) ** p, Decimal(least) ** p), _SLACK)
    return max(_TAIL.multiply(most, tail(least)), tail(k)) <= Decimal(delta)


def _gaussian_reached(
    distribution: GaussianDistribution, counts: tuple[int, int, int], delta: float, threshold: int
) -> bool:
    """As :func:`_laplace_reached`: P[Z >= m] is at most normal noise's at m - 1.

    Source: Canonne, Kamath and Steinke 2020, Proposition 25.
    """
    # All c up to 256; beyond them S of the greatest over the least c between two neighbours.
    _, k, _ = counts
    listed = np.unique([*range(1, min(k, 256) + 1), *np.geomspace(1, k, 2 + 64 * k.bit_length()).astype(np.int64)])
    least = np.minimum(np.append(0, listed[:-1]) + 1, listed)
    tails = special.ndtr((listed + 1.0 - threshold) / float(distribution.sigma))
    return bool(k * (tails / least).max() * (1.0 + _ROUNDING) <= delta)


# Persons: weights of distinct keys.


def key_weights(distribution: Distribution, most: int) -> Integers:
    """Weight, rounded down, of each of m keys, m = 0, ..., `most`: 1 / m, or Gaussian 1 / sqrt(m)."""
    return weights_of_norm(2 if isinstance(distribution, GaussianDistribution) else 1, most)


def weights_of_norm(power: int, most: int) -> Integers:
    """Weights 1 / m, or 1 / sqrt(m) for `power` 2, rounded down."""
    if power == 2:
        return np.array([0, *(math.isqrt(WEIGHT**2 // m) for m in range(1, most + 1))], np.int64)
    return np.append(0, WEIGHT // np.arange(1, most + 1))


def weigh(
    groups: Integers,
    codes: Integers,
    persons: Integers,
    periods: Integers,
    words: Integers,
    weights: Integers,
    secret: Words,
) -> tuple[Integers, Integers, Integers]:
    """Group, key and weight, int64[m] each, of the distinct keys of least keyed hash.

    `groups` (numbers of person and period) and `codes` (of keys) are by row; `persons`, [g, 2], and `periods` by
    group; `words`: 64 bits of each key; `weights`: by number of keys; `secret`: of this hash alone.
    """
    pairs = np.sort(groups * np.int64(words.size) + codes)
    # Distinct ones: a group's keys.
    own, keys = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], np.int64(words.size))
    hashes = person_rows.hash_rows(secret, persons[own], periods[own], words[keys], np.empty((0, own.size)))
    given = np.zeros_like(own), 0, 0, weights.size - 1, 0, len(persons)
    kept = person_rows.least_rows(secret, own, hashes, *given)
    own, keys = own[kept], keys[kept]
    return own, keys, weights[np.bincount(own, minlength=len(persons))[own]]


@lru_cache(maxsize=256)
def weight_rule(epsilon: float, delta: float, most: int) -> KeyRule:
    """Noise and threshold of weights for (`epsilon`, `delta`), beside pure losses."""
    # A discrete Gaussian of sigma >= 16 steps is within 1 / (20 sigma^2) of rounded normal noise (docs/noise.md).
    loss = gaussian_loss(epsilon, delta)
    distance = most * loss**2 / (20.0 * float(WEIGHT) ** 2) + 2.0**-90
    loss, laplace = gaussian_loss(epsilon, delta, distance), _laplace_rule(epsilon, delta, most)
    if not 0.0 < loss < WEIGHT / 16.0:
        return laplace

    def spent(new: float) -> float:
        return gaussian_delta(math.sqrt(1.0 - new) * loss, epsilon, distance) if new < 1.0 else 0.0

    # Laplace noise has no delta of its own.
    return _better(_gaussian_rule(loss, _delta_of_new(spent, delta, most), most), laplace)


@lru_cache(maxsize=256)
def shared_weight_rule(loss: float, share: float, epsilon: float, delta: float, most: int) -> KeyRule:
    """The same for keys with x = `share`, where all have rho = loss^2 / 2."""
    left = _delta_of_new(lambda new: zcdp_delta(0.5 * (loss**2 - new * share**2), epsilon), delta, most)
    return _better(_gaussian_rule(share, left, most), _laplace_rule(share, left, most))


def _delta_of_new(spent: Callable[[float], float], delta: float, most: int) -> float:
    """R such that m new keys pass with probability R / m each."""
    # If t of m keys are new, others' weights move by sqrt(1 - t / m) at most in norm, with a delta of spent(t / m);
    # new keys may pass with the rest: R is the least of (delta - spent(f)) / f.
    new = np.geomspace(1.0 / most, 1.0, 1 + _PER_OCTAVE * (most - 1).bit_length())
    left = delta - np.array([spent(min(share, 1.0)) for share in new.tolist()])
    least = float((left / np.append(new[1:], 1.0)).min()) * (1.0 - _ROUNDING)
    if least <= 0.0:
        raise refusal("delta", delta, "a larger delta, or fewer rows of a person, for private keys")
    return least


def _gaussian_rule(loss: float, delta: float, most: int) -> KeyRule:
    """Sigma of 1 / `loss` weights; m new keys pass with at most `delta` / m each."""
    distribution = gaussian_distribution(sigma_of_loss(WEIGHT**2, loss))
    # As in the rule for counts, noise is at most normal noise a step further out.
    each = special.ndtri(delta / np.arange(1, most + 1))
    highest = float((key_weights(distribution, most)[1:] + 1.0 - float(distribution.sigma) * each).max())
    return KeyRule(distribution, math.ceil(highest * (1.0 + 2.0**-50)), most)


def _laplace_rule(loss: float, delta: float, most: int) -> KeyRule:
    """Scale of 1 / `loss` weights; new keys pass as a unit's rows."""
    distribution = laplace_distribution(WEIGHT / Fraction(loss))
    return count_rule(distribution, WEIGHT, delta, WEIGHT // most)._replace(most=most)


def _better(first: KeyRule, second: KeyRule) -> KeyRule:
    persons = (each.threshold / int(key_weights(each.distribution, each.most)[-1]) for each in (first, second))
    return min(zip(persons, (0, 1), (first, second), strict=True))[2]


@lru_cache(maxsize=256)
def counts_suffice(epsilon: float, delta: float, contributions: int, share: float) -> bool:
    """True if keys need no more persons by counts than by weights.

    Counts, which are released too, have all of `epsilon`, weights a `share`.
    """
    counts = count_rule(laplace_distribution(Fraction(contributions) / Fraction(epsilon)), contributions, delta)
    most = min(contributions, MOST_KEYS)
    weights = weight_rule(epsilon * share, delta, most)
    return counts.threshold * int(key_weights(weights.distribution, most)[-1]) <= weights.threshold


# The choice, and intervals that know of it.


def choose_keys(sums: Integers, keys: Keys, rule: KeyRule, key: Key) -> tuple[Integers, Flags]:
    """Noisy sums, and flags of keys that pass; keys without sums, whose names are secret, never pass."""
    exact = np.ascontiguousarray(sums.reshape(1, 1, -1))
    noise = bound_noise.draw_cell_noise(exact, [rule.distribution], key.within("keys"), 0, keys.digests())
    noisy: Integers = sums + noise[0, 0]
    return noisy, (noisy >= rule.threshold) & (sums > 0)


def _deviation(distribution: Distribution) -> Fraction:
    return distribution.sigma if isinstance(distribution, GaussianDistribution) else distribution.scale


def selected_interval(noisy: Integers, rule: KeyRule, confidence: float) -> tuple[Floats, Floats]:
    """Limits of counts whose noisy numbers reached the threshold, by equal tails.

    They contain the noisy number; the lower is at least 1.
    """
    error, width = 0.5 * (1.0 - confidence), float(_deviation(rule.distribution))
    above = np.minimum(noisy - rule.threshold, math.ceil(_FAR * width))
    beyond, index = np.unique(above, return_inverse=True)
    far = 2.0 * _FAR * width + 2.0

    def low_error(down: Floats) -> Floats:
        return np.exp(_log_tail(rule.distribution, down) - _log_tail(rule.distribution, down - beyond))

    def high_error(up: Floats) -> Floats:
        return -np.expm1(_log_tail(rule.distribution, 1.0 - up) - _log_tail(rule.distribution, -beyond - up))

    down, up = (_least(error, each, beyond.size, far) for each in (low_error, high_error))
    # Close to the threshold the noisy number tells nothing of smaller counts.
    down[low_error(down) > error] = np.inf
    return np.maximum(np.floor(noisy - down[index]), 1.0), np.ceil(noisy + up[index])


def _least(error: float, tail: Callable[[Floats], Floats], count: int, far: float) -> Floats:
    """Least distances at which falling tails are at most `error`, by bisection."""
    low, high = np.zeros(count), np.full(count, far)
    low_enough = tail(low) <= error
    for _ in range(64):
        middle = 0.5 * (low + high)
        reached = tail(middle) <= error
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    return np.where(low_enough, 0.0, high)


def _log_tail(distribution: Distribution, least: Floats) -> Floats:
    if isinstance(distribution, GaussianDistribution):
        found: Floats = special.log_ndtr((0.5 - least) / float(distribution.sigma))
        return found
    slope = 1.0 / float(distribution.scale)
    both = math.log1p(math.exp(-slope))
    inner = np.log1p(-np.exp(np.minimum(slope * (least - 1.0), 0.0) - both))
    outer: Floats = np.where(least >= 0.0, -slope * least - both, inner)
    return outer
