"""Reach: distinct entries up to each window, by key and in all, from noisy numbers of new ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdp.kinds import Flags, Floats, Integers
from fastdp.tables.columns import Growing, Numbers
from fastdp.tables.counter import Counter, counter_for
from fastdp.tables.plan import TablePlan
from fastdp.tables.quantities import MISSING_ENTRY, CellRows, Quantity
from fastdp.validation import DAY


class EntryRows(NamedTuple):
    """Rows of entries: numbers, windows, keys (-1: not released), hashes, int64[n] each."""

    entries: Integers
    windows: Integers
    codes: Integers
    hashes: NDArray[np.uint64]

    def take(self, flags: Flags) -> EntryRows:
        return EntryRows(self.entries[flags], self.windows[flags], self.codes[flags], self.hashes[flags])


def moved_by(plan: TablePlan, name: str, *, squares: bool) -> int:
    """Most by which a unit moves numbers of new entries: L1 norm, or squared L2 norm.

    A person is new once, in each key in which it counts.  A row, or a part of a person's, takes an entry from one
    window to another, which moves two numbers of one key by one.  A number is in a sum of each level.
    """
    levels = counter_of(plan).levels
    if plan.who is None:
        return 2 * plan.contributions ** (2 if squares else 1) * levels
    return (1 if plan.periods is None else 2) * (plan.most_keys if name == "key reach" else 1) * levels


def counter_of(plan: TablePlan) -> Counter:
    """Counter of the windows, or of a year of unknown ones."""
    windows = 1
    if plan.start is not None and plan.stop is not None:
        windows = plan.stop - plan.start
    elif plan.calendar is not None:
        windows = 365 * DAY // (plan.calendar.edge(1) - plan.calendar.edge(0))
    return counter_for(windows, gaussian=plan.noise == "gaussian")


class Newcomers:
    """New entries of windows; an entry's first ``most`` keys count."""

    def __init__(self, quantity: Quantity, cells: tuple[int, int], most: int | None = None) -> None:
        self._by_key, (self._windows, keys), self._most = quantity.name == "key reach", cells, most
        self._keys, self._seen = keys if self._by_key else 1, Numbers()
        self._counter = quantity.counter
        self._firsts, self._hashes = Growing(np.int64), Growing(np.uint64)

    def add(self, rows: CellRows, values: Floats, first: int) -> None:
        """Add rows whose values are entries."""
        bits = (values + 0.0).view(np.int64)
        codes = np.where((values == MISSING_ENTRY) | np.isnan(values), -1, rows.codes)
        self.see(EntryRows(bits, rows.windows, codes, np.zeros(bits.size, np.uint64)), first)

    def see(self, rows: EntryRows, first: int) -> None:
        rows = rows._replace(windows=rows.windows - first)
        rows = rows.take((rows.codes >= 0) & (rows.windows >= 0) & (rows.windows < self._windows))
        numbers = self._seen.of(rows.entries, rows.codes if self._by_key else np.zeros_like(rows.codes))
        more = self._seen.size - self._firsts.size
        for held, part in ((self._firsts, rows.windows), (self._hashes, rows.hashes)):
            held.add(np.full(more, np.iinfo(part.dtype).max, part.dtype))
            np.minimum.at(held.array, numbers, part)

    def numbers(self) -> Integers:
        """Sums of the counter, int64[1, W, K or 1]."""
        new = self.new()
        return self._counter.sums(new, np.zeros((self._counter.levels, self._keys), np.int64), 0)[0][None]

    def new(self, left: Integers | None = None) -> Integers:
        """New entries, int64[W, K or 1]; ``left``: keys still open to each entry."""
        (entries, codes), firsts = self._seen.pairs.T, self._firsts.array
        if self._by_key and self._most is not None:
            most = np.full(entries.size, self._most) if left is None else left[entries]
            counted = first_keys(entries, firsts, self._hashes.array, most)
            codes, firsts = codes[counted], firsts[counted]
        cells = np.bincount(firsts * self._keys + codes, minlength=self._windows * self._keys)
        return cells.reshape(self._windows, self._keys)


def first_keys(entries: Integers, windows: Integers, hashes: NDArray[np.uint64], most: Integers) -> Integers:
    """Indices of each entry's first ``most`` keys, by window, then hash."""
    order = np.lexsort((hashes, windows, entries))
    own = entries[order]
    begins = np.flatnonzero(np.diff(own, prepend=-1))
    rank = np.arange(own.size) - np.repeat(begins, np.diff(begins, append=own.size))
    return order[rank < most[order]]


def released(
    counter: Counter, sums: Integers, variance: float, before: Integers, limit: Integers | None, first: int
) -> Integers:
    """Released numbers, noisy ones, and draws in these, int64[3, W, K], from noisy sums of the counter, [W, K].

    ``before``, int64[levels, 3, K]: those of the last windows of each height among the ``first``.  Released numbers
    never fall, nor pass ``limit``, that of all keys; ``variance``: of a draw.
    """
    noisy = counter.running(sums, before[:, 1], first)
    draws = np.broadcast_to(counter.draws(np.arange(first + 1, first + len(sums) + 1))[:, None], sums.shape)
    kept = noisy - np.rint(counter.margin * np.sqrt(draws * variance)).astype(np.int64)
    kept = kept if limit is None else np.minimum(kept, limit)
    shown = np.maximum.accumulate(np.concatenate([before[:1, 0], kept]), axis=0)[1:]
    return np.stack([shown, noisy, draws])
