"""A count of all points beside those of the cells, as docs/points.md tells it; slow and readable.

Block counter of all points (Algorithm 9) and least squares, on top of the naive versions of both PHDStreams.  Noise
is handed in: ``noise(t, 0)`` for step t.
"""

from __future__ import annotations

import math

from tests.oracles import phdstream

SIZE = 16


def laplace_variance(scale):
    """2 q / (1 - q)^2."""
    q = math.exp(-1 / float(scale))
    return 2 * q / (1 - q) ** 2


class Total:
    """The counter, and the variance of its error: one draw a finished block, and one a step of the open one."""

    def __init__(self, noise, scale):
        self.noise, self.variance, self.times = noise, laplace_variance(scale), 0
        self.counter = phdstream.BlockCounter(SIZE)

    def count(self, t, net):
        self.times += 1
        self.counter(net, self.noise(t, 0))

    def missing(self, counted, variance):
        """Two unbiased numbers with known variances: what the mean with the least variance adds to the second."""
        own = self.variance * (self.times // SIZE + self.times % SIZE)
        best = (self.counter.g / own + counted / variance) / (1 / own + 1 / variance)
        return best - float(counted)


class Stream(phdstream.Stream):
    """PHDStream whose leaves share what is missing of all points alike."""

    def follow(self, total, variance):
        self.total, self.variance, self.drawn = total, variance, 0

    def step(self, added, removed, *noises):
        super().step(added, removed, *noises)
        self.total.count(self.t, len(added) - len(removed))
        self.drawn += len(self.leaves)
        missing = self.total.missing(float(self.held(())), self.drawn * self.variance)
        kept = dict(self.own)
        for path in self.leaves:
            self.own[path] = float(self.own[path]) + missing / len(self.leaves)
        found = {path: float(self.projected(path)) for path in self.leaves}
        self.own = kept
        return found
