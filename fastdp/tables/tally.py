"""Integers that a release reads of its rows, on a worker or here: those of the parts of a table add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from fastdp.data.source import Source
from fastdp.kinds import Flags, Integers
from fastdp.tables import choices
from fastdp.tables.columns import Keys
from fastdp.tables.plan import TablePlan
from fastdp.tables.quantities import FIRST_SUMS, CellRows, Quantity
from fastdp.tables.rows import Part, check_finite, read_persons, read_rows
from fastdp.tables.sums import Sums
from fastdp.tables.tails import count_tail, tail_edges


class Tally:
    """Numbers of values, before clips are chosen (``quantities`` None); else exact sums, and rows beyond clips.

    Attributes
    ----------
    values : dict of str to ValueCounts
        Of each column that chooses its clip.
    by_key : int64[K]
        Rows of each key that has come, where keys are learned; of one machine alone.
    exact : list of int64
        Sums of cells, and counts (:class:`fastdp.tables.sums.Sums`).
    firsts, edges, beyond : list
        Of each column with values its sum, the edges of bins beyond its clip, and rows in these.
    """

    def __init__(self, plan: TablePlan, keys: int, quantities: Sequence[Quantity] | None) -> None:
        self._plan = plan
        self._sums = None if quantities is None else Sums(plan, keys, quantities)
        self.values = dict[str, choices.ValueCounts]()
        if quantities is None:
            persons = plan.who is not None
            self.values = {each.name: choices.ValueCounts(each.ends, persons=persons) for each in plan.chooses}
        self.by_key: Integers = np.zeros(0, np.int64)
        self.exact = list[Integers]() if self._sums is None else self._sums.numbers()
        self.firsts = [each for each in quantities or () if each.name in FIRST_SUMS]
        self.edges = [tail_edges(q.ends, plan.column(q.column).bound) for q in self.firsts]
        self.beyond: list[Integers] = [np.zeros(low.size + high.size + 1, np.int64) for low, high in self.edges]
        # Rows that count, and dropped ones of persons.
        self._rows: Integers = np.zeros(2, np.int64)

    @property
    def number(self) -> int:
        """Rows that count: with persons all of theirs, else those in released cells."""
        return int(self._rows[0])

    @property
    def dropped(self) -> int:
        return int(self._rows[1])

    @property
    def _arrays(self) -> list[Integers]:
        counts = [part for each in self.values.values() for part in each.arrays]
        return [*counts, *self.exact, *self.beyond, self._rows]

    @property
    def integers(self) -> Integers:
        """All that adds up, int64[n]."""
        return np.concatenate([each.ravel() for each in self._arrays])

    def filled(self, integers: Integers) -> Self:
        """These numbers, as another one's ``integers``."""
        begin = 0
        for each in self._arrays:
            each[...] = integers[begin : begin + each.size].reshape(each.shape)
            begin += each.size
        return self

    def with_rows(self, part: Part) -> Self:
        """These numbers after the rows of a part are added."""
        for rows in part.read():
            if self._sums is not None:
                self._sums.add(rows)
            if self._sums is None or self.firsts:
                self._count(rows, (rows.codes >= 0) & self._plan.has(rows.windows), part)
        if self._sums is not None:
            self.exact = self._sums.numbers()
        if part.sizes is not None:
            self._rows += (part.sizes.size, part.dropped)
        return self

    def _count(self, rows: CellRows, counted: Flags, part: Part) -> None:
        plan = self._plan
        if self._sums is None and plan.key_rule in ("public", "private"):
            seen = np.bincount(rows.codes[counted], minlength=self.by_key.size)
            self.by_key = seen + np.pad(self.by_key, (0, seen.size - self.by_key.size))
        for name, counter in self.values.items():
            values = rows.values[plan.place(name)]
            values = values if counted.all() else values[counted]
            check_finite(values)
            if part.sizes is None:
                counter.observe(values)
            else:
                counter.weigh(values, part.sizes[counted])
        for q, edges, counts in zip(self.firsts, self.edges, self.beyond, strict=True):
            counts += count_tail(rows.values[plan.place(q.column)][counted], edges)
        if part.sizes is None:
            self._rows[0] += np.count_nonzero(counted)


@dataclass(frozen=True)
class Tallying:
    """Integers of a part of a table that has all rows of its persons, on a worker, which knows no key of noise."""

    plan: TablePlan
    hashing: bytes
    quantities: Sequence[Quantity] | None

    def __call__(self, source: Source) -> Integers:
        plan, keys = self.plan, Keys(self.plan.by, self.plan.keys if self.plan.by else None)
        if plan.who is None:
            part = Part(lambda: (each.rows for each in read_rows(source, plan, keys)))
        else:
            part = read_persons(source, plan, keys, self.hashing).kept(plan)
        return Tally(plan, keys.size, self.quantities).with_rows(part).integers
