"""Rows to integer sums of windows and keys, and these to noisy ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fastdp.kinds import Floats, Integers
from fastdp.noise import bulk
from fastdp.noise.key import Key
from fastdp.tables.consistent import Level
from fastdp.tables.quantities import ROWS, BinCounts, CellRows, DistinctCounts, Quantity, drawn, not_finite
from fastdp.tables.released import Measured
from fastdp.tables.shares import Shares

if TYPE_CHECKING:
    from fastdp.tables.columns import Keys
    from fastdp.tables.plan import TablePlan

_NO_VALUES: Floats = np.empty(0)


class Sums:
    """Exact numbers in the plan's windows: sums, int64[n, W, keys], modulo 2^64, and counts of each quantity."""

    def __init__(self, plan: TablePlan, keys: int, quantities: Sequence[Quantity]) -> None:
        self._first, place = plan.start or 0, {column.name: i for i, column in enumerate(plan.columns)}
        cells = (plan.stop or 0) - self._first, keys
        self._summed = [(place.get(each.column, 0), each) for each in quantities if not each.counts]
        self._counted = [
            (place[each.column], (DistinctCounts if each.name == "distinct" else BinCounts)(each, cells))
            for each in quantities[len(self._summed) :]
        ]
        self._sums: Integers = np.zeros((len(self._summed), *cells), np.int64)

    def add(self, rows: CellRows) -> None:
        """Add rows; DataError for NaN or infinity in one that counts."""
        for at, counts in self._counted:
            counts.add(rows, rows.values[at], self._first)
        for (at, quantity), into in zip(self._summed, self._sums, strict=True):
            values = rows.values[at] if quantity.column != ROWS else _NO_VALUES
            if not quantity.add(rows, values, self._first, into):
                raise not_finite()

    def numbers(self) -> list[Integers]:
        return [self._sums, *(each.numbers() for _, each in self._counted)]


def exact_sums(
    parts: Iterable[CellRows], quantities: Sequence[Quantity], plan: TablePlan, keys: int
) -> list[Integers]:
    """:class:`Sums` of all parts."""
    found = Sums(plan, keys, quantities)
    for rows in parts:
        found.add(rows)
    return found.numbers()


def vectors(
    shares: Shares, quantities: Sequence[Quantity], exact: Sequence[Integers], keys: Keys
) -> Iterator[tuple[Level, tuple[Quantity, ...], Integers]]:
    """Vectors that get noise together: all sums of each level, and each cell's counts."""
    sums = tuple(each for each in quantities if not each.counts)
    for level in shares.levels if sums else ():
        added = keys.added(exact[0], level.depth)
        yield level, sums, added if level.each else added.sum(axis=1, keepdims=True)
    for quantity, counts in zip(quantities[len(sums) :], exact[1:], strict=True):
        yield shares.cells, (quantity,), counts


def release(
    shares: Shares,
    quantities: Sequence[Quantity],
    exact: Sequence[Integers],
    key: Key,
    span: tuple[int, int],
    keys: Keys,
    published: Integers | None = None,
) -> tuple[Measured, ...]:
    """Noisy numbers of every level, from exact ones in windows [first, last) (:func:`exact_sums`).

    Noise is bound to a node's full vector.  ``published`` counts, by which keys were chosen, replace those of the
    cells.
    """
    found = []
    for level, group, sums in vectors(shares, quantities, exact, keys):
        distributions = [shares.distribution(quantity, level) for quantity in group]
        labels = [(*q.labels, shares.loss_of(q, level)) for q in group]
        if group[0].counts:
            name, *others = labels[0]
            own = key.within("counts", name, shares.plan.place(group[0].column), *others)
        else:
            own = key.within("sums", *level, *(() if level.each else span), *itertools.chain(*labels))
        each = distributions * (len(sums) // len(distributions))
        noisy = bulk.draw_cell_noise(np.ascontiguousarray(sums), each, own, span[0], keys.digests(level.depth))
        noisy += sums
        if published is not None and group[-1].name == "count":
            noisy[-1] = published
        noisy.flags.writeable = False
        found.append(Measured(level, group, noisy, tuple(map(drawn, distributions))))
    return tuple(found)
