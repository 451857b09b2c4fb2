"""Sums of windows by which numbers of new entries add up."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fastdp.kinds import Integers

#: Windows over which errors of counters are compared at most.
_MOST = 2**16


class Counter(NamedTuple):
    """Sums of new entries: window t, from 1 on, sums base^h windows, base^h dividing t.

    A window is in one sum at most of each height h < levels; a running sum adds the digits of t.
    """

    base: int
    levels: int

    def height(self, t: int) -> int:
        return next((h for h in range(self.levels - 1, 0, -1) if t % self.base**h == 0), 0)

    def draws(self, times: Integers) -> Integers:
        digits = [times // self.base**h % self.base for h in range(self.levels - 1)]
        found: Integers = np.sum([*digits, times // self.base ** (self.levels - 1)], axis=0)
        return found

    def most_draws(self, times: Integers) -> Integers:
        """Most sums in the running ones so far."""
        # Of earlier ones those err most that lack one to a higher sum.
        before = [np.maximum(times // self.base**h * self.base**h - 1, 0) for h in range(1, self.levels)]
        found: Integers = np.max([self.draws(each) for each in (times, *before)], axis=0)
        return found

    @property
    def margin(self) -> float:
        """Standard errors by which released numbers lie below noisy ones, to offset their running maximum.

        Measured: it raises the error of growing numbers as much as it lowers that of constant ones.
        """
        return 0.0 if self.levels == 1 else self.levels * math.log(self.base) / 7.0

    @property
    def factor(self) -> float:
        """Worst error of released numbers, in those of noisy ones."""
        return math.hypot(1.0, self.margin)

    def latest(self, values: Integers, before: Integers, first: int) -> Integers:
        """Values of the last window of each height, [levels, ...]."""
        ends = [(first + len(values)) // self.base**h * self.base**h - first for h in range(self.levels)]
        return np.stack([values[end - 1] if end > 0 else before[h] for h, end in enumerate(ends)])

    def sums(self, new: Integers, before: Integers, first: int) -> tuple[Integers, Integers]:
        """Sums of windows from new entries, [W, K], and running sums."""
        total = before[0] + np.cumsum(new, axis=0)
        begins = [self._begin(total, before, first, i) for i in range(len(new))]
        return total - np.array(begins, np.int64).reshape(new.shape), total

    def running(self, sums: Integers, before: Integers, first: int) -> Integers:
        found = sums.copy()
        for i in range(len(sums)):
            found[i] += self._begin(found, before, first, i)
        return found

    def _begin(self, running: Integers, before: Integers, first: int, i: int) -> Integers:
        height = self.height(first + i + 1)
        at = i - self.base**height
        found: Integers = running[at] if at >= 0 else before[height]
        return found


#: Of single windows.
SINGLE = Counter(2, 1)


@lru_cache(maxsize=256)
def counter_for(windows: int, *, gaussian: bool) -> Counter:
    """Counter of least mean square error over these windows."""
    times = np.arange(1, min(max(windows, 1), _MOST) + 1)
    bases = {levels: round(times.size ** (1.0 / levels)) for levels in range(2, 17)}
    several = [Counter(max(2, base + more), levels) for levels, base in bases.items() for more in (0, 1)]

    def variance(counter: Counter) -> float:
        return counter.levels ** (1 if gaussian else 2) * counter.factor**2 * float(counter.draws(times).mean())

    return min([SINGLE, *several], key=variance)
