"""Integer sums of rows by window and key, and their noisy ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fastdp.kinds import Floats, Integers
from fastdp.noise import bound_noise
from fastdp.noise.key import Key
from fastdp.tables.consistent import Level
from fastdp.tables.quantiles import Parts, excess_at, nodes_of, places_of
from fastdp.tables.quantities import (
    COUNTED,
    NEW,
    ROWS,
    BinCounts,
    CellRows,
    DistinctCounts,
    Quantity,
    drawn,
    not_finite,
)
from fastdp.tables.reach import EntryRows, Newcomers, released
from fastdp.tables.released import Measured
from fastdp.tables.shares import Shares

if TYPE_CHECKING:
    from fastdp.tables.columns import Keys
    from fastdp.tables.plan import TablePlan

_NO_VALUES: Floats = np.empty(0)


class Sums:
    """Exact numbers in windows: sums, int64[n, W, keys], modulo 2^64, and counts."""

    def __init__(self, plan: TablePlan, keys: int, quantities: Sequence[Quantity]) -> None:
        self._first, place = plan.start or 0, {column.name: i for i, column in enumerate(plan.columns)}
        cells = (plan.stop or 0) - self._first, keys
        self._summed = [(place.get(each.column, 0), each) for each in quantities if not each.counts]
        self._counted = [
            (place[each.column], _counts_of(each, cells, plan)) for each in quantities if each.name in COUNTED
        ]
        self._sums: Integers = np.zeros((len(self._summed), *cells), np.int64)
        self._persons = plan.who is not None

    def add(self, rows: CellRows) -> None:
        """Add rows; DataError for values that are not finite."""
        for at, counts in self._counted:
            if not (self._persons and isinstance(counts, Newcomers)):
                counts.add(rows, rows.values[at], self._first)
        for (at, quantity), into in zip(self._summed, self._sums, strict=True):
            values = rows.values[at] if quantity.column != ROWS else _NO_VALUES
            if not quantity.add(rows, values, self._first, into):
                raise not_finite()

    def see(self, rows: EntryRows) -> None:
        """Add persons' rows, dropped ones too, to their reach."""
        for _, counts in self._counted:
            if isinstance(counts, Newcomers):
                counts.see(rows, self._first)

    def numbers(self) -> list[Integers]:
        return [self._sums, *(each.numbers() for _, each in self._counted)]


def _counts_of(quantity: Quantity, cells: tuple[int, int], plan: TablePlan) -> BinCounts | DistinctCounts | Newcomers:
    if quantity.name in NEW:
        return Newcomers(quantity, cells, None if plan.all_keys else plan.most_keys)
    return (DistinctCounts if quantity.name == "distinct" else BinCounts)(quantity, cells)


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
    """Exact numbers of nodes: sums by level, and cells' counts."""
    sums = tuple(each for each in quantities if not each.counts)
    for level in shares.levels if sums else ():
        added = keys.added(exact[0], level.depth)
        if shares.plan.basis is not None:
            added = shares.plan.basis.numbers(added)
        yield level, sums, added if level.each else added.sum(axis=1, keepdims=True)
    counted = (each for each in quantities if each.name in COUNTED)
    for quantity, counts in zip(counted, exact[1:], strict=True):
        yield shares.level_of(quantity), (quantity,), counts


@dataclass(frozen=True)
class _Noisy:
    """Draws noise bound to a node's full vector."""

    shares: Shares
    key: Key
    span: tuple[int, int]
    keys: Keys

    def __call__(self, level: Level, group: tuple[Quantity, ...], sums: Integers, *place: Integers) -> Measured:
        """A vector with noise, bound to it and to `place`."""
        shares = self.shares
        distributions = [shares.distribution(quantity, level) for quantity in group]
        labels = [(*q.labels, shares.loss_of(q, level)) for q in group]
        if group[0].counts:
            name, *others = labels[0]
            own = self.key.within("counts", name, shares.plan.place(group[0].column), *others)
        elif shares.plan.basis is not None:
            # Its scale follows from the number of released keys, which no other label holds.
            scale = shares.plan.basis.digest, shares.moved(group[0], True)
            own = self.key.within("calendar", *self.span, *scale, *itertools.chain(*labels))
        else:
            own = self.key.within("sums", *level, *(() if level.each else self.span), *itertools.chain(*labels))
        bound = np.ascontiguousarray(np.concatenate([sums, *place]) if place else sums)
        each = distributions * (len(bound) // len(distributions))
        groups = self.keys.digests(0 if group[0].name == "table" else level.depth)
        noise = bound_noise.draw_cell_noise(bound, each, own, self.span[0], groups)
        noisy = sums + noise[: len(sums)]
        noisy.flags.writeable = False
        return Measured(level, group, noisy, tuple(map(drawn, distributions)))


def _quantiles(quantities: Mapping[str, Quantity], fine: Integers, noisy: _Noisy) -> Iterator[Measured]:
    """Counts of the table, of cells' bins, and excesses at their quantiles."""
    cells, table = noisy.shares.cells, None
    if "table" in quantities:
        whole = replace(noisy, key=noisy.key.within("table", *noisy.span))
        table = whole(cells, (quantities["table"],), nodes_of(fine)[:, None, None])
        yield table
    noise = drawn(noisy.shares.distribution(quantities["histogram"], cells))
    parts = Parts.of_table(None if table is None else table.steps[:, 0, 0], fine[0].size, noise)
    bins = noisy(cells, (quantities["histogram"],), parts.counts(fine))
    yield bins
    ranks = quantities["excess"].ranks
    places = places_of(parts, bins.steps, ranks, noise)
    yield noisy(cells, (quantities["excess"],), excess_at(fine, places, ranks), places)


def release(
    shares: Shares,
    quantities: Sequence[Quantity],
    exact: Sequence[Integers],
    key: Key,
    span: tuple[int, int],
    keys: Keys,
    published: Integers | None = None,
    before: Mapping[Quantity, Integers] | None = None,
) -> tuple[Measured, ...]:
    """Noisy numbers of every level, from :func:`exact_sums` in windows [first, last).

    ``published`` counts chose the keys and replace the cells'; ``before``: reach in the last windows of each height
    of its counter, int64[levels, 3, K].
    """
    found, noisy = list[Measured](), _Noisy(shares, key, span, keys)
    for level, group, sums in vectors(shares, quantities, exact, keys):
        if group[0].name == "histogram":
            own = {each.name: each for each in quantities if each.column == group[0].column}
            found += _quantiles(own, sums, noisy)
            continue
        each = noisy(level, group, sums)
        if group[0].name in NEW:
            whole = found[-1].steps[0] if group[0].name == "key reach" else None
            counter, first = group[0].counter, span[0] - (span[0] if before is None else shares.plan.start or 0)
            begun = (before or {}).get(group[0], np.zeros((counter.levels, 3, sums.shape[2]), np.int64))
            each = replace(each, steps=released(counter, each.steps[0], each.noise[0].variance, begun, whole, first))
        if published is not None and group[-1].name == "count":
            each = replace(each, steps=np.concatenate([each.steps[:-1], published[None, None]]))
        found.append(each)
    return tuple(found)
