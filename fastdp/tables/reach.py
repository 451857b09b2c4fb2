"""Reach: distinct entries up to each window, by key and in all, from noisy numbers of new ones."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdp.kinds import Flags, Floats, Integers
from fastdp.tables.columns import Growing, Numbers
from fastdp.tables.plan import TablePlan
from fastdp.tables.quantities import MISSING_ENTRY, CellRows, Quantity
from fastdp.validation import DAY

#: New entries of all keys, and of each key that they count in.
NEW = ("reach", "key reach")


#: Windows over which errors of counters are compared at most.
_MOST = 2**16


class Counter(NamedTuple):
    """Sums by which new entries add up: that of window t, from 1 on, has the base^h windows to t, base^h dividing t.

    A window is in at most one sum of each height h < levels; a running sum adds the digits of t.  With one level it
    adds single windows.
    """

    base: int
    levels: int

    def height(self, t: int) -> int:
        return next((h for h in range(self.levels - 1, 0, -1) if t % self.base**h == 0), 0)

    def draws(self, times: Integers) -> Integers:
        """Sums in the running sums of these windows."""
        digits = [times // self.base**h % self.base for h in range(self.levels - 1)]
        found: Integers = np.sum([*digits, times // self.base ** (self.levels - 1)], axis=0)
        return found

    def most_draws(self, times: Integers) -> Integers:
        """Most sums in the running ones up to each of these windows."""
        # Of earlier ones those err most that lack one to a higher sum.
        before = [np.maximum(times // self.base**h * self.base**h - 1, 0) for h in range(1, self.levels)]
        found: Integers = np.max([self.draws(each) for each in (times, *before)], axis=0)
        return found

    @property
    def margin(self) -> float:
        """Standard errors by which released numbers lie below noisy ones, so that their running maximum is right.

        It raises the error of growing numbers as far as it lowers that of constant ones (measured); of a random walk,
        as with one level, the maximum errs as the walk does.
        """
        return 0.0 if self.levels == 1 else self.levels * math.log(self.base) / 7.0

    @property
    def factor(self) -> float:
        """Root mean square error of a released number in standard errors of a noisy one, at worst."""
        return math.hypot(1.0, self.margin)

    def latest(self, values: Integers, before: Integers, first: int) -> Integers:
        """Values of the last window of each height, [levels, ...], from those after ``first`` ones, [W, ...]."""
        ends = [(first + len(values)) // self.base**h * self.base**h - first for h in range(self.levels)]
        return np.stack([values[end - 1] if end > 0 else before[h] for h, end in enumerate(ends)])

    def sums(self, new: Integers, before: Integers, first: int) -> tuple[Integers, Integers]:
        """The sums of windows from numbers of new entries, [W, K], and running ones, ``before`` and after."""
        total = before[0] + np.cumsum(new, axis=0)
        begins = [self._begin(total, before, first, i) for i in range(len(new))]
        return total - np.array(begins, np.int64).reshape(new.shape), total

    def running(self, sums: Integers, before: Integers, first: int) -> Integers:
        """Running sums from those of windows, [W, K]."""
        found = sums.copy()
        for i in range(len(sums)):
            found[i] += self._begin(found, before, first, i)
        return found

    def _begin(self, running: Integers, before: Integers, first: int, i: int) -> Integers:
        """Running sum before the windows of a sum."""
        height = self.height(first + i + 1)
        at = i - self.base**height
        found: Integers = running[at] if at >= 0 else before[height]
        return found


@lru_cache(maxsize=256)
def counter_for(windows: int, *, gaussian: bool) -> Counter:
    """The counter of least mean square error over so many windows."""
    times = np.arange(1, min(max(windows, 1), _MOST) + 1)
    bases = {levels: round(times.size ** (1.0 / levels)) for levels in range(2, 17)}
    several = [Counter(max(2, base + more), levels) for levels, base in bases.items() for more in (0, 1)]

    def variance(counter: Counter) -> float:
        return counter.levels ** (1 if gaussian else 2) * counter.factor**2 * float(counter.draws(times).mean())

    return min([Counter(2, 1), *several], key=variance)


class EntryRows(NamedTuple):
    """Rows of entries by number: windows, keys (-1: not released), and a hash of entry and key, int64[n] each."""

    entries: Integers
    windows: Integers
    codes: Integers
    hashes: NDArray[np.uint64]

    def take(self, flags: Flags) -> EntryRows:
        return EntryRows(self.entries[flags], self.windows[flags], self.codes[flags], self.hashes[flags])


def moved_by(plan: TablePlan, name: str, *, squares: bool) -> int:
    """Most by which a unit moves numbers of new entries: the L1 norm, or the squared L2 norm.

    A person is new once, in each key in which it counts.  Part of a person's rows, or a row, takes an entry from one
    window to another, so that two numbers of one key move by one; several rows may move the same two.  A number is in
    a sum of each level.
    """
    levels = counter_of(plan).levels
    if plan.who is None:
        return 2 * plan.contributions ** (2 if squares else 1) * levels
    return (1 if plan.periods is None else 2) * (plan.most_keys if name == "key reach" else 1) * levels


def counter_of(plan: TablePlan) -> Counter:
    """The counter for the windows, or a year of them where their number is not public yet."""
    windows = 1
    if plan.start is not None and plan.stop is not None:
        windows = plan.stop - plan.start
    elif plan.calendar is not None:
        windows = 365 * DAY // (plan.calendar.edge(1) - plan.calendar.edge(0))
    return counter_for(windows, gaussian=plan.noise == "gaussian")


def counter_in(quantity: Quantity) -> Counter:
    """The counter of numbers of new entries, which have it in place of the ends of values."""
    return Counter(int(quantity.low), int(quantity.high))


class Newcomers:
    """Numbers of new entries of each window, in all or by key; of an entry's keys the first ``most`` count."""

    def __init__(self, quantity: Quantity, cells: tuple[int, int], most: int | None = None) -> None:
        self._by_key, (self._windows, keys), self._most = quantity.name == "key reach", cells, most
        self._keys, self._seen = keys if self._by_key else 1, Numbers()
        self._counter = counter_in(quantity)
        self._firsts, self._hashes = Growing(np.int64), Growing(np.uint64)

    def add(self, rows: CellRows, values: Floats, first: int) -> None:
        """Add rows whose entries are values, but missing ones."""
        bits = (values + 0.0).view(np.int64)
        codes = np.where((values == MISSING_ENTRY) | np.isnan(values), -1, rows.codes)
        self.see(EntryRows(bits, rows.windows, codes, np.zeros(bits.size, np.uint64)), first)

    def see(self, rows: EntryRows, first: int) -> None:
        """Add rows in windows from number ``first`` on."""
        rows = rows._replace(windows=rows.windows - first)
        rows = rows.take((rows.codes >= 0) & (rows.windows >= 0) & (rows.windows < self._windows))
        numbers = self._seen.of(rows.entries, rows.codes if self._by_key else np.zeros_like(rows.codes))
        more = self._seen.size - self._firsts.size
        for held, part in ((self._firsts, rows.windows), (self._hashes, rows.hashes)):
            held.add(np.full(more, np.iinfo(part.dtype).max, part.dtype))
            np.minimum.at(held.array, numbers, part)

    def numbers(self) -> Integers:
        """Sums of the counter, int64[1, W, K], or [1, W, 1] of all keys."""
        new = self.new()
        return self._counter.sums(new, np.zeros((self._counter.levels, self._keys), np.int64), 0)[0][None]

    def new(self, left: Integers | None = None) -> Integers:
        """New entries, int64[W, K], or [W, 1] of all keys; ``left``: keys in which each entry may still count."""
        (entries, codes), firsts = self._seen.pairs.T, self._firsts.array
        if self._by_key and self._most is not None:
            most = np.full(entries.size, self._most) if left is None else left[entries]
            counted = first_keys(entries, firsts, self._hashes.array, most)
            codes, firsts = codes[counted], firsts[counted]
        cells = np.bincount(firsts * self._keys + codes, minlength=self._windows * self._keys)
        return cells.reshape(self._windows, self._keys)


def first_keys(entries: Integers, windows: Integers, hashes: NDArray[np.uint64], most: Integers) -> Integers:
    """Places of the first keys of each entry, in order of windows, within one of hashes: as many as ``most``."""
    order = np.lexsort((hashes, windows, entries))
    own = entries[order]
    begins = np.flatnonzero(np.diff(own, prepend=-1))
    rank = np.arange(own.size) - np.repeat(begins, np.diff(begins, append=own.size))
    return order[rank < most[order]]


def released(
    counter: Counter, sums: Integers, variance: float, before: Integers, limit: Integers | None, first: int
) -> Integers:
    """Released numbers, noisy ones, and draws in these, int64[3, W, K], from noisy sums of the counter, [W, K].

    ``before``, int64[levels, 3, K]: those of the last windows of each height among ``first`` ones.  Released numbers
    never fall, nor pass ``limit``, the whole's; ``variance``: of a draw.
    """
    noisy = counter.running(sums, before[:, 1], first)
    draws = np.broadcast_to(counter.draws(np.arange(first + 1, first + len(sums) + 1))[:, None], sums.shape)
    kept = noisy - np.rint(counter.margin * np.sqrt(draws * variance)).astype(np.int64)
    kept = kept if limit is None else np.minimum(kept, limit)
    shown = np.maximum.accumulate(np.concatenate([before[:1, 0], kept]), axis=0)[1:]
    return np.stack([shown, noisy, draws])
