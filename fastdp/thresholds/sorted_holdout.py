"""The hold-out of a quantile or of local reports: collected as integers, sorted once if need be."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from fastdp.data.column import as_column, as_floats
from fastdp.data.kinds import Floats, Integers
from fastdp.integer_grid import Grid
from fastdp.noise.key import Key
from fastdp.thresholds.base import ThresholdTask
from fastdp_kernels import online_pass

FIRST_ROOM = 1024

#: From the hold-out (sorted unless the rule says otherwise) and the bound, both in grid steps, and a key: theta in
#: grid steps, not clipped.
ReleaseSorted = Callable[[Integers, int, Key], float]


class QuantileChooser:
    """The hold-out as whole grid steps (m int64), from which a rule releases theta: sorted, or as they came."""

    def __init__(self, task: ThresholdTask, release: ReleaseSorted, clip: bool, *, sort: bool = True) -> None:
        self._task = task
        self._release = release
        self._clip = clip
        self._sort = sort
        self._top = Grid(task.bound, task.resolution).bound_steps
        self._steps: Integers = np.empty(min(task.holdout, FIRST_ROOM), np.int64)
        self._count = 0

    def copy(self) -> QuantileChooser:
        """An independent copy."""
        twin = QuantileChooser(self._task, self._release, self._clip, sort=self._sort)
        twin._steps, twin._count = self._steps.copy(), self._count
        return twin

    def observe(self, values: Floats) -> None:
        """Round values to the grid and keep them."""
        floats = as_floats(as_column(values, "values"))
        count = self._count + floats.size
        if count > self._steps.size:
            room: Integers = np.empty(max(count, min(2 * count, self._task.holdout)), np.int64)
            room[: self._count] = self._steps[: self._count]
            self._steps = room
        online_pass.round_values(
            floats, 1.0 / self._task.resolution, float(self._top), self._steps[self._count : count]
        )
        self._count = count

    def choose(self, key: Key) -> float:
        """Sort, release theta, clip it to [resolution, bound] or only from below."""
        values = self._steps[: self._count]
        if self._sort:
            values.sort()
        theta = self._release(values, self._top, key) * self._task.resolution
        theta = max(theta, self._task.resolution)
        return min(theta, self._task.bound) if self._clip else theta

    def pack(self) -> Integers:
        """The values kept, in grid steps, in no promised order."""
        return self._steps[: self._count].copy()

    def unpack(self, packed: Integers) -> None:
        """Take over what :meth:`pack` gave."""
        if packed.size > self._task.holdout or min(packed.min(initial=0), self._top - packed.max(initial=0)) < 0:
            raise ValueError("a hold-out that is too long, or values off the grid")
        self._steps, self._count = packed.astype(np.int64), packed.size


def rank_of(p: float, m: int) -> int:
    """P = ceil(p m), within [1, m]; p is the decimal number that was written (.9 of 10 values is the ninth)."""
    return min(m, max(1, math.ceil(Fraction(repr(float(p))) * m)))
