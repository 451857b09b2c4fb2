"""Sums over time by a calendar: integer columns from public times, their sensitivity, and windows again.

A person in most windows moves only m numbers: products of the windows' sums with the columns of Q, nearly orthonormal
ones times 2^BITS, rounded to integers.  With r a person's rows, |Q' r|_2 <= sqrt(G) |r|_2, where G is the largest row
sum of |Q' Q| (Gershgorin), in integer arithmetic (``docs/tables_proofs.md``).

Source: Rastogi and Nath 2010 (noise of Fourier coefficients); columns, rounding and residual are ours.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from fastdp.kinds import Array, Floats, Integers
from fastdp.releases.intervals import DrawnNoise
from fastdp.tables.consistent import grouped, local_times, range_sums
from fastdp.units import zone_of
from fastdp.validation import DAY

#: Columns are integers, 2^BITS times orthonormal ones.
BITS = 16
#: A column of which the columns before it leave less than this share is left out.
DEPENDENT = 1e-3
#: Days of a year, and the days from which on years have waves of their own.
YEAR, YEARS = 365.2425, 730
#: Expected shares of the squared mean of windows, by which columns are ordered and their number follows from public
#: numbers: of waves of a day, a weekend, its day, other weekdays, slow changes, a year, a public curve; what no
#: column holds.  Of the h-th wave 1 / h^2.
DAYS, WEEKEND, ITS_DAY, WEEKDAY, SLOW, SEASON, CURVE, REST = 0.04, 0.006, 0.002, 0.0005, 0.006, 0.02, 0.2, 0.002
#: Waves of a day, of a weekend's day, of a year, and slow changes at most.
MOST_WAVES, MOST_OF_WEEKEND, MOST_SEASONS, MOST_SLOW = 12, 6, 4, 24


@dataclass(frozen=True, eq=False)
class Basis:
    """Columns Q over the windows, int64[W, m], the mean first, with expected shares."""

    columns: Integers
    expected: tuple[float, ...]
    #: G of the first columns, for each number of them.
    bounds: tuple[int, ...]
    #: Expected share that no column holds.
    rest: float = REST

    @property
    def size(self) -> int:
        return int(self.columns.shape[1])

    def __str__(self) -> str:
        return f"{self.size} number{'s' if self.size > 1 else ''} of a calendar"

    def first(self, size: int) -> Basis:
        rest = self.rest + math.fsum(self.expected[size:])
        return Basis(self.columns[:, :size], self.expected[:size], self.bounds[:size], rest)

    @property
    def bound(self) -> int:
        """G: no eigenvalue of Q' Q is larger."""
        return self.bounds[-1]

    @cached_property
    def longest(self) -> int:
        return int(np.abs(self.columns).max())

    @cached_property
    def digest(self) -> bytes:
        return hashlib.sha256(repr(self.columns.shape).encode() + self.columns.astype("<i8").tobytes()).digest()

    def moved(self, square: int, keys: int, *, gaussian: bool) -> int:
        """Most by which a unit moves the numbers of all keys, in sensitivities of one row.

        It is a squared L2 norm for Gaussian noise, else an L1 norm; `square`: of the unit's rows.
        """
        if gaussian:
            return square * self.bound
        return 1 + math.isqrt(square * self.bound * self.size * keys - 1)

    @property
    def window(self) -> float:
        """Root mean square error of a window, if numbers have error 1."""
        return math.sqrt(self.size / len(self.columns)) * 2.0**-BITS

    def numbers(self, sums: Integers) -> Integers:
        """Q' of exact sums modulo 2^64: int64[n, m, K] of int64[n, W, K]."""
        found: Integers = np.stack([self.columns.T @ each for each in sums])
        return found

    def residual(self, sums: Integers) -> int:
        """Norm that the columns leave of sums, int64[W, K], rounded down: sqrt(X' (I - Q Q' / G) X).

        Q Q' / G lies between 0 and a projection, so this is a seminorm below the L2 norm.
        """
        high, low = sums >> 32, sums & (2**32 - 1)
        products = [(self.columns.T @ each).astype(object) for each in (high, low)]
        inside = (products[0] * 2**32 + products[1]).ravel()
        return math.isqrt((self.bound * _squares(sums.ravel()) - int(inside @ inside)) // self.bound)


def _squares(values: Integers) -> int:
    """Exact sum of squares, by limbs of 21 bits."""
    found, mask = 0, 2**21 - 1
    for begin in range(0, values.size, 2**20):
        part = values[begin : begin + 2**20]
        limbs = part & mask, part >> 21 & mask, part >> 42
        found += sum(int(a @ b) << 21 * (i + j) for i, a in enumerate(limbs) for j, b in enumerate(limbs))
    return found


def calendar_basis(edges: Integers, time_zone: str | None, curve: tuple[float, ...] | None = None) -> Basis:
    """Mean, curve, day, week, year and slow changes, by expected share."""
    return _basis(np.asarray(edges, np.int64).tobytes(), time_zone, curve)


@lru_cache(maxsize=4)
def _basis(of_edges: bytes, time_zone: str | None, curve: tuple[float, ...] | None) -> Basis:
    edges = np.frombuffer(of_edges, np.int64)
    windows, span = edges.size - 1, (int(edges[-1]) - int(edges[0])) / DAY
    usual, place = float(np.median(np.diff(edges))) / DAY, np.arange(windows)
    local = local_times(edges[:-1], zone_of(time_zone)) / DAY
    found: list[tuple[float, Array]] = []

    def add(share: float, phase: Array, most: int, factor: Array | float = 1.0) -> None:
        for h in range(1, most + 1):
            found.extend((share / h**2, factor * wave(2.0 * np.pi * h * phase)) for wave in (np.cos, np.sin))

    weekday = np.floor(local + 3.0) % 7
    weekend = (weekday >= 5) - 2.0 / 7.0
    if usual < 0.95:
        waves = min(MOST_WAVES, int(0.5 / usual))
        add(DAYS, local % 1.0, waves)
    if usual < 1.05 and span >= 14:
        found.append((WEEKEND, weekend))
        found += [(WEEKDAY, (weekday == day) * 1.0) for day in range(1, 7)]
        if usual < 0.95:
            add(ITS_DAY, local % 1.0, min(waves, MOST_OF_WEEKEND), weekend)
    if span >= YEARS:
        add(SEASON, local / YEAR, min(MOST_SEASONS, int(0.5 * YEAR / usual)))
    for h in range(1, min(MOST_SLOW, windows - 1) + 1):
        found.append((SLOW / h**2, np.cos(np.pi * h * (place + 0.5) / windows)))
    if curve is not None:
        found.append((CURVE, np.resize(np.asarray(curve, float), windows)))
    listed = sorted(enumerate(found), key=lambda each: (-each[1][0], each[0]))
    kept, expected = np.empty((len(found) + 1, windows)), [1.0]
    kept[0] = windows**-0.5
    for _, (share, column) in listed:
        rest, before = column / max(float(np.linalg.norm(column)), 1e-300), kept[: len(expected)]
        # Twice is enough.
        for _ in range(2):
            rest = rest - (before @ rest) @ before
        size = float(np.linalg.norm(rest))
        if size > DEPENDENT:
            kept[len(expected)] = rest / size
            expected.append(share)
    whole = np.rint(2.0**BITS * kept[: len(expected)])
    # The mean is exact, so that what columns leave adds up to nothing.
    whole[0] = whole[0, 0]
    # Doubles hold products of columns 2^BITS long exactly.
    within = np.abs(whole @ whole.T).astype(np.int64).cumsum(axis=1)
    columns = np.ascontiguousarray(whole.T.astype(np.int64))
    columns.flags.writeable = False
    return Basis(columns, tuple(expected), tuple(np.triu(within).max(axis=0).tolist()))


def best_size(basis: Basis, noise: Callable[[int], float], level: float) -> tuple[int, float]:
    """Number of columns with the least expected error in a window."""
    errors = [math.hypot(noise(m), level * math.sqrt(basis.first(m).rest)) for m in range(1, basis.size + 1)]
    best = int(np.argmin(errors))
    return best + 1, errors[best]


# Windows again: post-processing.


class CalendarFit:
    """Windows of every node by released numbers, int64[m, K], through least squares.

    ``noise``: of a number; ``left``: norm left by the columns, and its most.
    """

    def __init__(
        self,
        basis: Basis,
        numbers: Integers,
        noise: DrawnNoise,
        left: tuple[float, float],
        parents: Sequence[Integers],
    ) -> None:
        columns = basis.columns.astype(np.float64)
        weights = np.asarray(np.linalg.solve(columns.T @ columns, columns.T).T, np.float64)
        size = math.sqrt(max(1, weights.shape[0] * numbers.shape[1]))
        self.noise, self._left = noise, tuple(max(each, 0.0) / size for each in left)
        values: Floats = weights @ numbers
        keys: Floats = np.ones(numbers.shape[1])
        self.values, self._keys = [values], [keys]
        for depth in range(len(parents) - 1, -1, -1):
            count = parents[depth - 1].size if depth else 1
            values, keys = grouped(values, parents[depth], count), grouped(keys, parents[depth], count)
            self.values.insert(0, values)
            self._keys.insert(0, keys)
        self._weights, self._columns = weights, columns

    def sums(self, depth: int, starts: Integers, stops: Integers) -> Floats:
        return range_sums(self.values[depth], starts, stops)

    def variances(self, depth: int, starts: Integers, stops: Integers) -> Floats:
        weights = range_sums(self._weights, starts, stops)
        out: Floats = self.noise.variance * np.square(weights).sum(axis=1)[:, None] * self._keys[depth]
        return out

    def errors(self, depth: int, starts: Integers, stops: Integers) -> tuple[Floats, Floats]:
        """Root mean square error of ranges by the rest of the columns, and its most.

        It is at most the length times a window's, and the norm times the part of the range that columns leave.
        """
        lengths = (stops - starts).astype(np.float64)
        inside = (range_sums(self._weights, starts, stops) * range_sums(self._columns, starts, stops)).sum(axis=1)
        apart = np.sqrt(np.maximum(lengths - inside, 0.0) * len(self._weights))
        each = np.minimum(lengths, apart)[:, None] * self._keys[depth]
        return self._left[0] * each, self._left[1] * each
