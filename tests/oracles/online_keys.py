"""Private keys online, naively: key by key and window by window, noise drawn from words by hand.

Source: ``docs/tables_proofs.md``, "Private keys online".
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from functools import cache

import mpmath

from tests.oracles import bulk, exact_noise, persons, words
from tests.oracles.table_choices import laplace_tail

WEIGHT = 2**30


def geometric(scale):
    """One-sided geometric noise."""
    return lambda word: exact_noise.draw(word(0), word, scale, one_sided=True)


def part(delta, number):
    """The part of delta of the window with this number, from 1 on."""
    octave = 0
    while 2 ** (octave + 1) <= number:
        octave += 1
    with mpmath.workdps(60):
        return mpmath.mpf(delta) / (2**octave * (octave + 1) * (octave + 2))


@cache
def threshold(scale, ways, delta, number):
    """Least T at which each way (keys of a unit, weight of each) passes with at most this window's part of delta."""

    def passes(least):
        return max(count * laplace_tail(scale, weight, least) for count, weight in ways) <= part(delta, number)

    low, high = 0, 1
    while not passes(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high


def weights_of(rows, most, power, sip_key, window):
    """Weights of keys in one window, from rows (person, key): distinct keys of least hash share a norm of 1."""
    keys_of, found = defaultdict(set), defaultdict(int)
    for person, key in rows:
        keys_of[person].add(key)
    for person, keys in keys_of.items():
        hashed = {
            key: persons.sip(sip_key, [*persons.digest(str(person)), window, persons.word(key)]) for key in keys
        }
        kept = sorted(keys, key=hashed.get)[:most]
        for key in kept:
            with mpmath.workdps(60):
                found[key] += int(mpmath.floor(WEIGHT / mpmath.root(len(kept), power)))
    return found


def appear(weights, first, scale, thresholds, composition):
    """Window in which each key appears: from a dictionary of key to weight for each window from number `first` on."""
    bars, tests = (words.within(composition, "keys", label) for label in ("bars", "windows"))
    draw, running, found = geometric(Fraction(scale)), defaultdict(int), {}
    for window, (each, limit) in enumerate(zip(weights, thresholds, strict=True), first):
        for key, weight in each.items():
            running[key] += weight
        for key, total in running.items():
            (bar,) = bulk.cell(bars, 0, key, [0], [draw])
            (noise,) = bulk.cell(tests, window, key, [total], [draw])
            if key not in found and total > 0 and total + noise >= limit + bar:
                found[key] = window
    return found


def outcome(path, thresholds, scale, reach):
    """Probability of each outcome (window, or None: never) for a key with these running weights, by enumeration.

    A key is tested from its first weight on.  `reach`: Z below it is enumerated.
    """
    q = mpmath.exp(-1 / mpmath.mpf(scale))
    found = [mpmath.mpf(0)] * (len(path) + 1)
    for z in range(reach):
        left = (1 - q) * q**z
        for t, (weight, limit) in enumerate(zip(path, thresholds, strict=True)):
            needed = limit + z - weight
            passes = (mpmath.mpf(1) if needed <= 0 else q**needed) if weight > 0 else mpmath.mpf(0)
            found[t] += left * passes
            left *= 1 - passes
        found[-1] += left
    return found
