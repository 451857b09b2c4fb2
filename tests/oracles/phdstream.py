"""PHDStream as the paper tells it (Algorithms 3, 5, 6, 7), with the repairs of docs/points.md; slow and readable.

A node is its path from the root, a tuple of digits.  Cn, the sum of a node's counter increments, is kept for every
node; G = Ca + Cn + Cd is computed from it afresh, by definition.  Noise is handed in: ``split_noise(t, i)`` for the
i-th node visited in step t (breadth first), ``cell_noise(t, j)`` for the j-th leaf of step t.
"""

from __future__ import annotations

from fractions import Fraction


def cell_of(path, lower, upper, fan_out):
    """Bounds of the cell: the axes are cut in turn, the first one first."""
    low, high = [Fraction(x) for x in lower], [Fraction(x) for x in upper]
    for depth, digit in enumerate(path):
        axis = depth % len(low)
        width = (high[axis] - low[axis]) / fan_out
        low[axis] += digit * width
        high[axis] = low[axis] + width
    return low, high


def holds(path, point, lower, upper, fan_out):
    """Half-open cells, closed at the upper end of the domain."""
    low, high = cell_of(path, lower, upper, fan_out)
    return all(a <= x and (x < b or x == b == top) for a, x, b, top in zip(low, point, high, upper, strict=True))


class SimpleCounter:
    """Algorithm 8."""

    def __init__(self):
        self.g = 0

    def __call__(self, value, noise):
        self.g += value + noise
        return self.g


class BlockCounter:
    """Algorithm 9; ``noise`` is of scale 2 / epsilon."""

    def __init__(self, size):
        self.size, self.t, self.alpha, self.beta, self.last = size, 0, 0, 0, 0

    def __call__(self, value, noise):
        self.t += 1
        self.beta += value
        if self.t % self.size == 0:
            self.alpha = 0
            self.beta += noise
            self.last = self.beta
        else:
            self.alpha += value + noise
        return self.last + self.alpha

    @property
    def g(self):
        return self.last + self.alpha

    def is_open(self):
        return self.t % self.size != 0

    def settle(self, noise):
        """The block ends early."""
        self.beta += noise
        self.last, self.alpha, self.t = self.beta, 0, 0


class BinaryTreeCounter:
    """Algorithm 10 with floor(log2 T) + 1 levels; after T values a new one goes on from what was released."""

    def __init__(self, horizon):
        self.horizon, self.base, self.g = horizon, 0, 0
        self._restart()

    def _restart(self):
        self.t, levels = 0, self.horizon.bit_length()
        self.base, self.alpha, self.noisy = self.g, [0] * levels, [0] * levels

    def __call__(self, value, noise):
        if self.t == self.horizon:
            self._restart()
        self.t += 1
        bits = [self.t >> i & 1 for i in range(len(self.alpha))]
        j = bits.index(1)
        self.alpha[j] = sum(self.alpha[:j]) + value
        self.noisy[j] = self.alpha[j] + noise
        for i in range(j):
            self.alpha[i] = self.noisy[i] = 0
        self.g = self.base + sum(n for n, bit in zip(self.noisy, bits, strict=True) if bit)
        return self.g

    def is_open(self):
        return self.t > 0

    def settle(self, noise):
        """One noisy sum of all of the tree takes the place of the open ones."""
        self.g = self.base + sum(self.alpha) + noise
        self._restart()


class Stream:
    """Algorithm 3 over dictionaries keyed by path."""

    def __init__(
        self,
        lower,
        upper,
        fan_out,
        max_depth,
        unit,
        bias,
        threshold,
        counter,
        retention,
        repaired=True,
        settles=False,
    ):
        self.lower, self.upper = [Fraction(x) for x in lower], [Fraction(x) for x in upper]
        self.fan_out, self.max_depth = fan_out, max_depth
        self.unit, self.bias, self.threshold = unit, bias, threshold
        self.make_counter, self.retention, self.repaired, self.settles = counter, retention, repaired, settles
        self.t = -1
        self.own, self.counters, self.split_at = {(): 0}, {}, {}
        self.leaves, self.scores = [], {}

    def children(self, path):
        return [(*path, digit) for digit in range(self.fan_out)]

    def from_above(self, path):
        """Ca: equal shares of the ancestors' own counts (Eq. 10)."""
        if not path:
            return Fraction(0)
        return (self.from_above(path[:-1]) + self.own.get(path[:-1], 0)) / self.fan_out

    def from_below(self, path):
        """Cd: all that was counted at descendants (Eq. 11)."""
        return sum(n for other, n in self.own.items() if len(other) > len(path) and other[: len(path)] == path)

    def held(self, path):
        """G of a node."""
        return self.from_above(path) + self.own.get(path, 0) + self.from_below(path)

    def projected(self, path):
        """s+ of a node, from the root down."""
        if not path:
            return max(self.held(()), Fraction(0))
        siblings = [max(self.held(p), Fraction(0)) for p in self.children(path[:-1])]
        if sum(siblings) == 0:
            return self.projected(path[:-1]) / self.fan_out
        return self.projected(path[:-1]) * siblings[path[-1]] / sum(siblings)

    def count(self, path, points):
        return sum(holds(path, point, self.lower, self.upper, self.fan_out) for point in points)

    def step(self, added, removed, split_noise, cell_noise, settle_noise=None):
        """One batch; returns s+ of the leaves of T(t), by path."""
        self.t += 1
        level, visited, leaves, splits = [()], 0, [], []
        while level:
            below = []
            for path in level:
                noise = split_noise(self.t, visited)
                visited += 1
                if self.repaired:
                    own, public = self.count(path, added), self.projected(path)
                else:
                    own, public = self.count(path, added) - self.count(path, removed), self.held(path)
                score = self.unit * own + round(self.unit * public) - len(path) * self.bias
                score = max(score, self.threshold - self.bias)
                if len(path) < self.max_depth and score + noise > self.threshold:
                    splits.append(path)
                    below += self.children(path)
                else:
                    leaves.append(path)
            level = below
        for j, path in enumerate(leaves):
            net = self.count(path, added) - self.count(path, removed)
            counter = self.counters.setdefault(path, self.make_counter())
            before = counter.g
            self.own[path] = self.own.get(path, 0) + counter(net, cell_noise(self.t, j)) - before
        if self.settles:
            left = [path for path, c in self.counters.items() if c.is_open() and path not in leaves]
            for j, path in enumerate(sorted(left, key=lambda path: (len(path), path))):
                before = self.counters[path].g
                self.counters[path].settle(settle_noise(self.t, j))
                self.own[path] += self.counters[path].g - before
        for path in splits:
            self.split_at[path] = self.t
            for child in self.children(path):
                self.own.setdefault(child, 0)
        self.forget()
        self.leaves = sorted(leaves)
        return {path: self.projected(path) for path in self.leaves}

    def forget(self):
        """Below a node that was not split for long everything is added to its own count."""
        for path, last in sorted(self.split_at.items()):
            if path in self.split_at and self.t - last > self.retention:
                self.own[path] += self.from_below(path)
                for kept in (self.own, self.counters, self.split_at):
                    for other in [p for p in kept if len(p) > len(path) and p[: len(path)] == path]:
                        del kept[other]
                del self.split_at[path]
