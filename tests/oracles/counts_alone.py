"""Cells chosen from released counts, as docs/points.md ("Counts alone") tells it; slow and readable.

A node is its path, a tuple of digits, as in ``phdstream``; all cells have equal parts.  ``own`` is what was counted
at a node while it was a leaf, or below it before it was merged.  Noise is handed in: ``cell_noise(t, j)`` for the
j-th leaf of step t, breadth first.
"""

from __future__ import annotations

import copy
import math

import numpy as np

from tests.oracles.total_count import SIZE

SPLIT, KEEP, MIN_DEVIATION = 4.0, 2.0, 0.5
FACTOR, UNSEEN = 1.5, 2.0
HORIZON_PART, MIN_HORIZON = 0.25, 50
WEIGHT_MEMORY, PERIOD_MEMORY = 0.9, 0.5
FLOOR = 0.001
MAX_COARSE, STILL_COARSE = 0.3, 0.1
TRIAL_STEPS, PROMPT_STEPS = 2, 16


class Follower:
    """Everything after the first batch, which an oracle of PrivTree releases."""

    def __init__(self, first, noise, first_weight, shrink, period, max_period):
        self.first, self.noise, self.first_weight, self.shrink = first, noise, first_weight, shrink
        self.fixed, self.max_period = period, max_period
        self.period = period or 1
        self.b, self.t, self.since = first.fan_out, 0, 0
        self.waiting = [], []
        self.costs, self.products, self.squares, self.w = None, 0.0, 0.0, 0.0
        self.recounts, self.kinds, self.prompt = False, [], 0
        #: Counter of all points (``total_count.Total``); at the cells' last count what they lacked, and its result.
        self.total_counter, self.missing, self.whole = None, 0.0, 0

    def count_all(self, added, removed):
        """Every step counts all points, if any does."""
        if self.total_counter is not None:
            self.total_counter.count(self.t, len(added) - len(removed))

    def adjust(self, shrink):
        """Take the estimates of a count, of all points too."""
        if self.total_counter is not None:
            variance = self.noise * self.summed(self.own_weight, ())
            self.missing = self.total_counter.missing(self.summed(self.own, ()), variance)
            self.whole = self.total_counter.counter.g
        self.estimate, self.variance = self.estimates(self.adjusted(self.own), shrink)

    def beyond(self, elapsed):
        """Points that came since the cells' count and were not forecast, less what noise explains."""
        if self.total_counter is None:
            return 0.0
        found = float(self.total_counter.counter.g - self.whole) - elapsed * self.rate[()]
        # Every draw is in a finished block's sum or in an open block; those of both times cancel.
        then, now = (
            [*range(t // SIZE), *range(-(t // SIZE) * SIZE - t % SIZE, -(t // SIZE) * SIZE)]
            for t in (self.since + 1, self.t + 1)
        )
        noise = self.total_counter.variance * len(set(then) ^ set(now))
        return found - math.copysign(min(noise / abs(found), abs(found)), found) if found else 0.0

    def adjusted(self, own):
        """Least squares: every noisy number takes its part of what is missing, by its variance."""
        weight = self.summed(self.own_weight, ())
        return {path: x + self.missing * self.own_weight[path] / weight for path, x in own.items()}

    def begin(self, added, removed, split_noise, cell_noise):
        self.split_noise, self.first_noise = split_noise, cell_noise
        self.first.step(added, removed, split_noise, cell_noise)
        leaves = set(self.first.leaves)
        self.inner = {path[:k] for path in leaves for k in range(len(path))}
        self.own = {path: float(self.first.own.get(path, 0)) for path in leaves | self.inner}
        self.own_weight = {path: self.first_weight * (path in leaves) for path in self.own}
        self.rate = dict.fromkeys(self.own, 0.0)
        self.count_all(added, removed)
        self.adjust(self.shrink)
        self.recounts = self.first.max_depth > 0
        self.prompt = 1 + (self.fixed or TRIAL_STEPS) if self.recounts else 0
        return {path: self.estimate[path] for path in leaves}

    def children(self, path):
        return [(*path, digit) for digit in range(self.b)]

    def summed(self, numbers, path):
        """A node's own number and all below it."""
        return sum(x for other, x in numbers.items() if other[: len(path)] == path)

    def estimates(self, own, shrink):
        """Estimates of all nodes, and variances of their noise in units of one count's."""
        counts = {path: self.summed(own, path) for path in self.own}
        weights = {path: self.summed(self.own_weight, path) for path in self.own}
        estimate, variance = {(): max(counts[()], 0.0)}, {(): float(weights[()])}
        for path in sorted(self.inner, key=len):
            family, b = self.children(path), self.b
            mean = sum(counts[p] for p in family) / b
            drawn = sum(weights[p] for p in family)
            squares = sum((counts[p] - mean) ** 2 for p in family)
            noisy = self.noise * drawn * (1 - 1 / b)
            factor = 1.0
            if shrink and squares > 0:
                signal = estimate[path] ** 2 * (1 - 1 / b)
                factor = max(signal / (signal + noisy), 1 - noisy / squares)
            found = [max(estimate[path] / b + factor * (counts[p] - mean), 0.0) for p in family]
            for p, x in zip(family, found, strict=True):
                estimate[p] = estimate[path] * (x / sum(found) if sum(found) > 0 else 1 / b)
                variance[p] = weights[p] + (variance[path] - drawn) / b**2
        return estimate, variance

    def step(self, added, removed, cell_noise):
        """One batch; returns estimates of the leaves, by path."""
        self.t += 1
        self.waiting[0].extend(added)
        self.waiting[1].extend(removed)
        self.count_all(added, removed)
        elapsed = self.t - self.since
        if elapsed < self.period:
            own = {path: x + elapsed * self.own_growth(path) for path, x in self.own.items()}
            more, total = self.beyond(elapsed), self.estimate[()]
            for path in own:
                if path not in self.inner and total > 0:
                    own[path] += more * self.estimate[path] / total
            estimate = self.estimates(self.adjusted(own), self.shrink and self.since + 1 > self.prompt)[0]
        else:
            self.count(elapsed, cell_noise)
            estimate = self.estimate
        return {path: estimate[path] for path in self.own if path not in self.inner}

    def own_growth(self, path):
        """Forecast growth per step of a leaf; of other nodes, what their parts do not add up to."""

        def forecast(path):
            even = self.estimate[path] * self.rate[()] / self.estimate[()] if self.estimate[()] > 0 else 0.0
            return even + self.w * (self.rate[path] - even)

        return forecast(path) - sum(forecast(p) for p in self.children(path) if path in self.inner)

    def count(self, elapsed, cell_noise):
        planted = self.recounts
        self.kinds.append(planted)
        total = self.estimate[()]
        gained, drawn, nodes, before, rate = self.recount() if self.recounts else self.count_alone(cell_noise)
        counts = np.array([gained[p] for p in nodes], float)
        even = before * elapsed * self.rate[()] / total if total > 0 else np.zeros(len(nodes))
        self.new_pace(counts, even, rate * elapsed, before, total, elapsed)
        noise = max(self.noise, MIN_DEVIATION**2)
        least = [SPLIT * math.sqrt(noise * drawn[p] + 2 * max(u, 0)) for p, u in zip(nodes, before, strict=True)]
        beyond = [
            max(x - y, 0) for p, x, y in zip(nodes, counts, least, strict=True) if len(p) < self.first.max_depth
        ]
        coarse = sum(beyond) / max(np.maximum(counts, 0).sum(), 1)
        if coarse > (STILL_COARSE if planted else MAX_COARSE):
            self.prompt = self.t + 1 + (self.fixed or (PROMPT_STEPS if planted else TRIAL_STEPS))
        self.recounts = self.t + 1 < self.prompt
        if self.recounts and not self.fixed:
            self.period = 1
        self.rate = {path: gained[path] / elapsed for path in self.own}
        self.adjust(self.shrink and not planted)
        self.since, self.waiting = self.t, ([], [])

    def count_alone(self, cell_noise):
        """Counts in cells that follow past ones; gained and drawn at all nodes, and of the leaves what was known."""
        self.regrow()
        leaves = sorted((p for p in self.own if p not in self.inner), key=lambda path: (len(path), path))
        net = [self.first.count(p, self.waiting[0]) - self.first.count(p, self.waiting[1]) for p in leaves]
        found = {p: float(n + cell_noise(self.t, j)) for j, (p, n) in enumerate(zip(leaves, net, strict=True))}
        for path, x in found.items():
            self.own[path] += x
            self.own_weight[path] += 1
        before, rate = (np.array([numbers[p] for p in leaves]) for numbers in (self.estimate, self.rate))
        drawn = dict.fromkeys(leaves, 1)
        return {path: self.summed(found, path) for path in self.own}, drawn, leaves, before, rate

    def recount(self):
        """A step of PHDStream on what waited; known are the finest cells that the trees before and after have."""
        step = copy.copy(self.first)
        step.own = {path: int(x) for path, x in self.own.items()}
        step.counters, step.split_at, step.retention, step.t = {}, {}, math.inf, self.t - 1
        step.step(*self.waiting, self.split_noise, self.first_noise)
        leaves, old = set(step.leaves), self.own
        inner = {path[:k] for path in leaves for k in range(len(path))}
        kept = leaves | inner
        gained = {p: float(self.summed(step.own, p) - self.summed(old, p)) for p in kept}
        drawn = {p: self.first_weight * sum(leaf[: len(p)] == p for leaf in leaves) for p in kept}
        nodes = sorted(
            (p for p in kept if p in old and (p in leaves or p not in self.inner)), key=lambda p: (len(p), p)
        )
        before, rate = (np.array([numbers[p] for p in nodes]) for numbers in (self.estimate, self.rate))
        weights = {p: self.summed(self.own_weight, p) if p in leaves else self.own_weight.get(p, 0) for p in kept}
        self.own = {p: float(self.summed(step.own, p) if p in leaves else step.own.get(p, 0)) for p in kept}
        self.own_weight = {p: weights[p] + self.first_weight * (p in leaves) for p in kept}
        self.inner = inner
        return gained, drawn, nodes, before, rate

    def regrow(self):
        """Cells that stand out are cut; below the others everything is forgotten but its sum."""
        inner, level = set(), [()]
        while level:
            below = []
            for path in level:
                variance = max(self.noise, MIN_DEVIATION**2) * max(self.variance[path], 1)
                least = (KEEP if path in self.inner else SPLIT) * math.sqrt(variance)
                if len(path) == self.first.max_depth or self.estimate[path] <= least:
                    continue
                inner.add(path)
                for p in self.children(path):
                    if path not in self.inner:
                        self.own[p] = self.own_weight[p] = 0
                        self.estimate[p], self.rate[p] = self.estimate[path] / self.b, self.rate[path] / self.b
                        self.variance[p] = self.variance[path] / self.b**2
                    below.append(p)
            level = below
        kept = {(), *(p for path in inner for p in self.children(path))}
        for path in kept - inner:
            self.own[path], self.own_weight[path] = (self.summed(x, path) for x in (self.own, self.own_weight))
        for numbers in (self.own, self.own_weight, self.estimate, self.variance, self.rate):
            for path in set(numbers) - kept:
                del numbers[path]
        self.inner = inner

    def new_pace(self, counts, even, own, before, total, elapsed):
        own, found = own - even, counts - even
        self.products = WEIGHT_MEMORY * self.products + (own * found).sum() / elapsed**2
        self.squares = WEIGHT_MEMORY * self.squares + (own * own).sum() / elapsed**2
        self.w = min(max(self.products / self.squares, 0.0), 1.0) if self.squares > 0 else 0.0
        if self.fixed:
            return
        surprise = ((found - self.w * own) ** 2 + (UNSEEN * even) ** 2) / elapsed**2
        parts = 1 / np.maximum(before, max(FLOOR * total, 1.0))
        parts /= parts.sum()
        grid = sorted({round(x) for x in np.geomspace(1, self.max_period, 2 + int(6 * math.log(self.max_period)))})
        ahead = HORIZON_PART * max(self.t + 1, MIN_HORIZON) * self.noise
        costs = np.array([(parts * np.sqrt(ahead / p + surprise * p**2 / 3)).sum() for p in grid])
        if self.costs is not None:
            costs = PERIOD_MEMORY * self.costs + (1 - PERIOD_MEMORY) * costs
        self.costs = costs
        wanted = min(max(grid[int(costs.argmin())], elapsed / FACTOR), elapsed * FACTOR)
        self.period = min(max(round(wanted), 1), self.max_period)
