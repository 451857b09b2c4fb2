"""Smooth sensitivity of a quantile in plain Python, as ToPS Appendix B prints it (PAK section IV-C).

max over k = 0..m+1 and t = 0..k+1 of e^(-bk) (V(P+t) - V(P+t-k-1)), V(i) = 0 for i < 1 and B for i > m.  The decay
e^(-bk) is taken as decay[t] * decay[k-t]: t changed values right of the rank, k - t left of it (t = k + 1 changes
k values, all right of it).  No early stop.
"""

from __future__ import annotations

import math

import mpmath

DIGITS = 60
FLOOR = 2.0**-800


def decay_table(b, size):
    """e^(-b k), k = 0..size-1; entries below 2^-900 count as 0."""
    table = [math.exp(-b * k) for k in range(size)]
    return [x if x >= 2.0**-900 else 0.0 for x in table]


def smooth_sensitivity(values, bound, rank, decay):
    """The double maximum; at least FLOOR."""
    m = len(values)

    def extended(i):
        if i < 1:
            return 0
        return bound if i > m else values[i - 1]

    best = FLOOR
    for k in range(m + 2):
        for t in range(k + 2):
            right = min(t, k)
            difference = extended(rank + t) - extended(rank + t - k - 1)
            best = max(best, float(difference) * decay[right] * decay[k - right])
    return best


def in_real_numbers(values, bound, rank, b):
    """The same maximum with e^(-bk) to DIGITS digits, and no floor."""
    m = len(values)
    with mpmath.workdps(DIGITS):
        factor = mpmath.exp(-mpmath.mpf(b))

        def extended(i):
            return 0 if i < 1 else bound if i > m else values[i - 1]

        return max(
            factor**k * max(extended(rank + t) - extended(rank + t - k - 1) for t in range(k + 2))
            for k in range(m + 2)
        )


def from_the_definition(values, bound, rank, b):
    """max over k of e^(-bk) times the largest local sensitivity within k changes (Definition 10), real numbers.

    Within k changes the values of ranks P - k - 1 + t and P + t become neighbours of the quantile: the largest
    local sensitivity is the largest jump of the rank-P value by one further change, found here by brute
    force over streams in which every value may be any of the old ones, 0 or the bound.
    """
    import itertools

    letters = sorted({0, bound, *values})
    streams = [tuple(sorted(s)) for s in itertools.product(letters, repeat=len(values))]
    quantile = {s: s[rank - 1] for s in set(streams)}

    def distance(one, other):
        rest = list(other)
        for x in one:
            if x in rest:
                rest.remove(x)
        return len(rest)

    here = tuple(sorted(values))
    best = 0.0
    for s in quantile:
        local = max(abs(quantile[s] - quantile[z]) for z in quantile if distance(s, z) <= 1)
        best = max(best, local * math.exp(-b * distance(here, s)))
    return best
