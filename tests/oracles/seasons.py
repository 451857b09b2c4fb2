"""Predictions that know a season, by conditioning: one covariance matrix of all sums, solved again for each block.

``constants`` has the names HARMONICS, WEEK, AMPLITUDE, LONG_SHARE, WANDER, CERTAIN, FORGET_GAINED, REACH, FINE.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np

from tests.oracles import waves


class Follower:
    """A learner of blocks, and beside it the joint normal distribution of a level, waves and all released sums."""

    def __init__(self, learner, period, constants):
        self.plain, self.period, self.c = learner, period, constants
        self.left, self.gained, self.values = None, 0.0, []
        self.predictions = [self.plain.prediction] * 2**self.plain.exponent

    @property
    def begun(self):
        return self.left is not None

    def row(self, begin, end):
        found = waves.sums_of_waves(begin, end, (self.period, self.c.WEEK * self.period), self.c.HARMONICS)
        return np.concatenate([[end - begin], found])

    def shares(self):
        """Variance of each coefficient, in squared levels, and after how many values it has moved by as much."""
        by_harmonic = self.c.AMPLITUDE / np.arange(1, self.c.HARMONICS + 1)
        variances = np.tile(np.concatenate([by_harmonic, by_harmonic * self.c.LONG_SHARE]), 2)
        periods = self.c.WANDER * self.period * np.repeat([1, self.c.WEEK], self.c.HARMONICS)
        return variances, np.tile(periods, 2)

    def given(self, row):
        """Mean of ``row @ x`` and its variance, given the sums so far; mean of the level."""
        reached = np.cumsum([np.zeros(row.size), *self.moves], axis=0)
        sums = reached[1 : len(self.rows) + 1]
        rows = np.array(self.rows).reshape(-1, row.size)
        prior = self.spread + np.minimum(sums[:, None, :], sums[None, :, :])
        covariance = np.einsum("ia,ija,ja->ij", rows, prior, rows) + np.diag(self.noises)
        weights = np.stack([row, np.eye(row.size)[0]])
        shared = np.einsum("ka,ja,ja->kj", weights, self.spread + sums, rows)
        rest = np.array(self.totals) - rows @ self.start
        means = weights @ self.start + shared @ np.linalg.solve(covariance, rest)
        variance = (row * (self.spread + reached[-1]) * row).sum()
        if len(rows):
            variance -= shared[0] @ np.linalg.solve(covariance, shared[0])
        return means[0], variance, means[1]

    def close(self, total):
        p, plain = self.plain.public, self.plain
        k, begin, level, variance, unit = plain.exponent, plain.position, plain.level, plain.variance, plain.unit
        length, last = 2**k, 2 ** plain.blocks[-1].exponent if plain.blocks else 0
        if p.events and k == 0:
            self.predictions = [total]
        extra = plain.extra
        self.values += [v + extra * (i < plain.catch_up) for i, v in enumerate(self.predictions)]
        plain.close(total)
        noise = p.noise * unit**2
        if self.begun:
            variances, periods = self.shares()
            gap = (length + last) / 2
            self.moves.append(np.concatenate([[self.left.drift * gap], variances * level**2 * gap / periods]))
            row, seen = self.row(begin, begin + length), self.left.white * length + noise
            expected, _, mean = self.given(row)
            if length <= self.c.REACH * self.period:
                own = length**2 * (variance + plain.moves[-1]) + plain.white * length + noise
                better = (total - length * level) ** 2 - (total - expected) ** 2
                self.gained = self.c.FORGET_GAINED * self.gained + better / own / 2
            self.rows.append(row)
            self.totals.append(total)
            self.noises.append(seen)
            self.left.exponent, self.left.unit = k, unit
            self.left.close(total - (expected - length * mean))
        elif plain.position >= self.period:
            self.left = copy.deepcopy(plain, {id(p): p})
            # Theta follows the sums themselves.
            self.left.public = replace(p, rises=False)
            self.rows, self.totals, self.noises, self.moves = [], [], [], []
            variances, _ = self.shares()
            self.start = np.concatenate([[plain.level], np.zeros(variances.size)])
            squared = plain.level**2
            self.spread = np.concatenate([[plain.variance + self.c.AMPLITUDE * squared], variances * squared])
        self._open()

    def _open(self):
        p, plain, length = self.plain.public, self.plain, 2**self.plain.exponent
        self.predictions = [plain.prediction] * length
        if not self.begun or self.gained <= 0 or length > self.c.REACH * self.period or (p.events and length == 1):
            return
        parts = 1
        while length / parts > max(self.period / self.c.FINE, 1):
            parts *= 2
        share, size = 1 / (1 + math.exp(self.c.CERTAIN - self.gained)), length // parts
        self.predictions = []
        for part in range(parts):
            begin = plain.position + part * size
            value = plain.level + share * (self.given(self.row(begin, begin + size))[0] / size - plain.level)
            self.predictions += [value if p.events else min(max(value, 0.0), plain.unit)] * size
        plain.prediction = float(np.mean(self.predictions))

    def published(self, count):
        """The first ``count`` values, in thresholds."""
        opened = [v + self.plain.extra * (i < self.plain.catch_up) for i, v in enumerate(self.predictions)]
        return np.array([*self.values, *opened][:count])
