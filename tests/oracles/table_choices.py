"""Choices from the rows of a table, naively: value by value, key by key, noise drawn from words by hand.

Sources: ``docs/tables.md``, "Proofs"; Gopi et al. 2020, Algorithm 1 (weights and threshold).
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np

from tests.oracles import bulk, exact_noise, persons, words

THRESHOLD, CHAIN = 1, 8


def bound_noise(secret, exact, scales):
    """Noise of numbers, each bound to those before it; `secret` is that of their purpose."""
    start = words.words(secret, CHAIN, 4)
    p = start[0] + start[1] * 2**64
    source = bulk.PrefixNoise(secret, p, bulk.laplace(scales[0]))
    found = []
    for total, scale in zip(exact, scales, strict=True):
        source.draw = bulk.laplace(scale)
        found.append(source(total))
    return found


def best(above, sizes, moved, epsilon, target, secret, label):
    """Index of the candidate of the highest noisy score; noise from words of the choice's key."""
    scale = moved / epsilon
    target = max(target, 1.5 * scale)
    slope = max(target, 1.75 * scale)
    packed = np.array(above, np.int64)
    own = words.within(secret, label, moved, epsilon, target, *sizes)
    own = words.within(own, "holdout", hashlib.sha256(packed.data).digest())
    exact = Fraction(2**10 * moved) / Fraction(epsilon)
    raw = words.words(own, THRESHOLD, len(sizes))
    scores = []
    for i, (count, size) in enumerate(zip(above, sizes, strict=True)):
        beyond = max(0, 2**10 * count - round(2**10 * target))
        penalty = round(2**10 * slope * math.log(size / sizes[0]))

        def further(k, i=i):
            return words.words(own, THRESHOLD, 1, refinement=k, start=i)[0]

        scores.append(exact_noise.draw(raw[i], further, exact, one_sided=True) - beyond - penalty)
    return scores.index(max(scores))


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
