"""Choices from the rows of a table, naively: value by value, key by key, noise drawn from words by hand.

Sources: ``docs/tables_proofs.md``; Gopi et al. 2020, Algorithm 1 (weights and threshold).
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np

from tests.oracles import bulk, exact_noise, persons, scale_free, words

THRESHOLD, CHAIN = 1, 8


def bound_noise(secret, exact, scales):
    """Noise of numbers, each bound to those before it; `secret` is that of their purpose."""
    start = words.begun(secret, CHAIN, 4)
    p = start[0] + start[1] * 2**64
    source = bulk.PrefixNoise(secret, p, bulk.laplace(scales[0]))
    found = []
    for total, scale in zip(exact, scales, strict=True):
        source.draw = bulk.laplace(scale)
        found.append(source(total))
    return found


def weights_of_best(moved, epsilon, target):
    """The target and the slope of a choice, from its noise on."""
    target = max(target, 1.5 * (moved / epsilon))
    return target, max(target, 1.75 * (moved / epsilon))


def scores(above, sizes, moved, epsilon, target, unit=2**10):
    """Of every candidate, before noise of scale unit * moved / epsilon."""
    target, slope = weights_of_best(moved, epsilon, target)
    return [
        -max(0, unit * count - round(unit * target)) - round(unit * slope * math.log(size / sizes[0]))
        for count, size in zip(above, sizes, strict=True)
    ]


def one_sided_noise(secret, counts, number, scale):
    """Of so many candidates, from words of a choice's key and of the counts that it is made from."""
    own = words.within(secret, "holdout", hashlib.sha256(np.array(counts, np.int64).data).digest())

    def further(i):
        return lambda k: words.words(own, THRESHOLD, 1, refinement=k, start=i)[0]

    raw = words.words(own, THRESHOLD, number)
    return [exact_noise.draw(word, further(i), scale, one_sided=True) for i, word in enumerate(raw)]


def best(above, sizes, moved, epsilon, target, secret, label):
    """Index of the candidate of the highest noisy score; noise from words of the choice's key."""
    own = words.within(secret, label, moved, epsilon, weights_of_best(moved, epsilon, target)[0], *sizes)
    noise = one_sided_noise(own, above, len(sizes), Fraction(2**10 * moved) / Fraction(epsilon))
    noisy = [a + b for a, b in zip(scores(above, sizes, moved, epsilon, target), noise, strict=True)]
    return noisy.index(max(noisy))


def clip(sides, k, counting, choosing, wanted, secret):
    """Ends of a clip as distances from 0, and the loss of each choice, by :class:`fastdp.thresholds.ScaleFree`.

    `sides`: for -1 and 1 the bound's distance from 0 and the numbers of rows between candidates; a unit has k.
    """
    exact = [sum(counts[1:]) for _, counts in sides.values()]
    noise = bound_noise(words.within(secret, "rows"), exact, [Fraction(k) / Fraction(counting)] * len(exact))
    return {
        side: _end(*sides[side], rows + more, k, choosing, wanted, (secret, side))
        for side, rows, more in zip(sides, exact, noise, strict=True)
    }


def _end(bound, counts, rows, k, choosing, wanted, named):
    target = min(wanted, rows / 2)
    epsilon = min(choosing, k * max(16 / target, 4 / (0.5 * (rows - target) / (33 * math.log(2)))))
    # The loss of one row, rounded down.
    each = float(Fraction(epsilon) / k)
    while Fraction(each) * k > Fraction(epsilon):
        each = math.nextafter(each, 0.0)
    step, constant = 2.0 ** (math.frexp(bound)[1] - 33), wanted**2 / 6.0
    top, unit = int(bound / step), 2**20
    few, _, gains, _ = scale_free.weights(rows, top, each, 1.0, rows, constant)
    # Target and slope to the last bit, as they name the key.
    times, steep = (1.5, 3.0) if few else (1.0, 4.0)
    expected = math.exp(math.log(rows) + 0.5 * math.log(6.0 * constant) - math.log(rows))
    expected = min(expected, 0.5 * rows / times)
    target = expected * times
    slope = min(max(expected, steep / each), 0.5 * (rows - target) / math.log(top))
    above = [sum(counts[i + 1 :]) for i in range(len(gains))]
    grid, noisy = scale_free.candidates(top), []
    own = words.within(named[0], "clip", named[1], each, target, slope)
    noise = one_sided_noise(own, counts, len(grid), Fraction(2 * unit) / Fraction(each))
    # From the bound down.
    for i, (size, gain, more) in enumerate(zip(grid, gains, reversed(noise), strict=True)):
        reach = i if few else min(range(len(grid)), key=lambda j: (abs(2 * grid[j] - 3 * size), grid[j]))
        beyond = max(0, unit * (above[i] + above[reach]) - round(2 * unit * target))
        noisy.append(round(2 * unit * gain) - beyond + more)
    return min(grid[noisy.index(max(noisy))] * step, bound), epsilon


def edges(near, far):
    """The clip, and values up to the bound by factors of 1.5 from the bound down, none just above the clip."""
    found, factor = [far], 1.5
    while far / factor > near * 1.5**0.25:
        found.append(far / factor)
        factor *= 1.5
    return [near, *reversed(found)]


def tail(values, low, high):
    """Rows in each bin (a, b] of distances beyond an end, for edges `low` and `high`; below, above, inside but 0."""
    found, outside = [], []
    for side, each in ((-1, low), (1, high)):
        found += [sum(a < side * value <= b for value in values) for a, b in pairwise(each)]
        outside.append(sum(side * value > each[-1] for value in values))
    inside = sum(-low[0] <= value <= high[0] and value != 0 for value in values)
    return [*found, *outside, inside]


def weighed(pairs, digests, periods, key_words, most, secret, power):
    """Sums of weights, in steps: of each group's distinct keys those of least hash have floor(2^30 / m^(1/power))."""
    keys_of, sums = defaultdict(set), [0] * len(key_words)
    for group, code in pairs:
        keys_of[group].add(code)
    for group, codes in keys_of.items():
        said = {code: (*digests[group], periods[group], key_words[code]) for code in codes}
        kept = sorted(codes, key=lambda code: persons.sip(secret, said[code]))[:most]
        for code in kept:
            with mpmath.workdps(60):
                sums[code] += int(mpmath.floor(2**30 / mpmath.root(len(kept), power)))
    return sums


def laplace_tail(scale, count, least):
    """P[count + noise >= least], exactly but for 60 digits."""
    with mpmath.workdps(60):
        q, x = mpmath.exp(-1 / mpmath.mpf(scale)), least - count
        return q**x / (1 + q) if x > 0 else 1 - q ** (1 - x) / (1 + q)


def gaussian_tail(sigma, least):
    """P[Z >= least] of discrete Gaussian noise: the mean of normal tails over a step's width would do as well.

    Poisson's summation formula: for sigma >= 1 the sum of all f(k) is sigma sqrt(2 pi) to more than eight digits.
    """
    with mpmath.workdps(40):
        s = mpmath.mpf(sigma)
        if sigma < 2000:
            reach = range(least, least + int(14 * sigma) + 1)
            return mpmath.fsum(mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * s * s)) for k in reach) / (
                s * mpmath.sqrt(2 * mpmath.pi)
            )
        # Euler and Maclaurin: half of the first term, and the integral from there on.
        first = mpmath.exp(-(mpmath.mpf(least) ** 2) / (2 * s * s)) / (s * mpmath.sqrt(2 * mpmath.pi))
        return mpmath.ncdf(-least / s) + first / 2


def gaussian_delta(mu, epsilon):
    """Balle and Wang 2018, Theorem 8, in 60 digits."""
    with mpmath.workdps(60):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        if not mu:
            return mpmath.mpf(0)
        return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)
