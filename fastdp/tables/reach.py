"""Reach: distinct entries up to each window, by key and in all, from noisy numbers of new ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdp.kinds import Flags, Floats, Integers
from fastdp.tables.columns import Growing, Numbers
from fastdp.tables.plan import TablePlan
from fastdp.tables.quantities import MISSING_ENTRY, CellRows, Quantity

#: New entries of all keys, and of each key that they count in.
NEW = ("reach", "key reach")


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
    window to another, so that two numbers of one key move by one; several rows may move the same two.
    """
    if plan.who is None:
        return 2 * plan.contributions ** (2 if squares else 1)
    return (1 if plan.periods is None else 2) * (plan.most_keys if name == "key reach" else 1)


class Newcomers:
    """Numbers of new entries of each window, in all or by key; of an entry's keys the first ``most`` count."""

    def __init__(self, quantity: Quantity, cells: tuple[int, int], most: int | None = None) -> None:
        self._by_key, (self._windows, keys), self._most = quantity.name == "key reach", cells, most
        self._keys, self._seen = keys if self._by_key else 1, Numbers()
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

    def numbers(self, left: Integers | None = None) -> Integers:
        """int64[1, W, K], or [1, W, 1] of all keys; ``left``: keys in which each entry may still count."""
        (entries, codes), firsts = self._seen.pairs.T, self._firsts.array
        if self._by_key and self._most is not None:
            most = np.full(entries.size, self._most) if left is None else left[entries]
            counted = first_keys(entries, firsts, self._hashes.array, most)
            codes, firsts = codes[counted], firsts[counted]
        cells = np.bincount(firsts * self._keys + codes, minlength=self._windows * self._keys)
        return cells.reshape(1, self._windows, self._keys)


def first_keys(entries: Integers, windows: Integers, hashes: NDArray[np.uint64], most: Integers) -> Integers:
    """Places of the first keys of each entry, in order of windows, within one of hashes: as many as ``most``."""
    order = np.lexsort((hashes, windows, entries))
    own = entries[order]
    begins = np.flatnonzero(np.diff(own, prepend=-1))
    rank = np.arange(own.size) - np.repeat(begins, np.diff(begins, append=own.size))
    return order[rank < most[order]]


def running(new: Integers, before: Integers, limit: Integers | None) -> Integers:
    """Released numbers, noisy ones, and draws in these, int64[3, W, K], from noisy numbers of new entries, [W, K].

    ``before``, int64[3, K]: those of the window before.  Released ones never fall, nor pass ``limit``, the whole's.
    """
    noisy = before[1] + np.cumsum(new, axis=0)
    draws = before[2] + np.broadcast_to(np.arange(1, len(new) + 1)[:, None], new.shape)
    kept = noisy if limit is None else np.minimum(noisy, limit)
    shown = np.maximum.accumulate(np.concatenate([before[:1], kept]), axis=0)[1:]
    return np.stack([shown, noisy, draws])
