"""Integers that a release reads of its rows, on a worker or here: those of the parts of a table add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from fastdp.data.source import Source
from fastdp.kinds import Flags, Integers
from fastdp.tables.choices import SizeCounts
from fastdp.tables.columns import Keys
from fastdp.tables.plan import TablePlan
from fastdp.tables.quantities import CellRows, Quantity
from fastdp.tables.rows import Part, check_finite, read_persons, read_rows
from fastdp.tables.sums import Sums

#: By column the total within its second clip, and within the body's, if there is one.
Rest = Mapping[str, tuple[Quantity, Quantity | None]]


class Tally:
    """Rows by size, before clips are chosen (``quantities`` None); else exact sums, and what lies beyond clips.

    Attributes
    ----------
    sizes : dict of str to SizeCounts
        Of each column that chooses its clip; then of those whose clip is known.
    by_key : int64[K]
        Rows of each key that has come, where keys are learned; of one machine alone.
    exact : list of int64
        Sums of cells, and counts (:class:`fastdp.tables.sums.Sums`).
    """

    def __init__(self, plan: TablePlan, keys: int, quantities: Sequence[Quantity] | None, rest: Rest) -> None:
        self._plan = plan
        self._sums = None if quantities is None else Sums(plan, keys, quantities)
        persons, known = plan.who is not None, quantities is not None
        counted = [each for each in plan.summed if each.chooses != known]
        self.sizes = {each.name: SizeCounts(each.bound or each.ends, persons=persons) for each in counted}
        self.by_key: Integers = np.zeros(0, np.int64)
        self.exact = list[Integers]() if self._sums is None else self._sums.numbers()
        self._rest, self._totals = rest, {name: np.zeros((2, 1, 1), np.int64) for name in rest}
        # Persons' rows that count, and dropped ones.
        self._rows: Integers = np.zeros(2, np.int64)

    @property
    def number(self) -> int:
        """Persons' rows that count."""
        return int(self._rows[0])

    @property
    def dropped(self) -> int:
        return int(self._rows[1])

    def tail(self, name: str) -> int:
        """Sum of values within the second clip, less those within the body's, in steps."""
        outer, inner = self._totals[name].ravel().tolist()
        return int(outer - inner)

    @property
    def _arrays(self) -> list[Integers]:
        return [*(each.counts for each in self.sizes.values()), *self.exact, *self._totals.values(), self._rows]

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
            if self._sums is None or self.sizes or self._rest:
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
        for name, sizes in self.sizes.items():
            values = rows.values[plan.place(name)]
            values = values if counted.all() else values[counted]
            check_finite(values)
            sizes.add(values, None if part.sizes is None else part.sizes[counted])
        if self._rest:
            nowhere = np.zeros(rows.codes.size, np.int64)
            one = CellRows(nowhere, np.where(counted, 0, -1), rows.values)
            for name, totals in self._totals.items():
                for quantity, into in zip(self._rest[name], totals, strict=True):
                    if quantity is not None:
                        quantity.add(one, rows.values[plan.place(name)], 0, into)


@dataclass(frozen=True)
class Tallying:
    """Integers of a part of a table that has all rows of its persons, on a worker, which knows no key of noise."""

    plan: TablePlan
    hashing: bytes
    quantities: Sequence[Quantity] | None
    rest: Rest

    def __call__(self, source: Source) -> Integers:
        plan, keys = self.plan, Keys(self.plan.by, self.plan.keys if self.plan.by else None)
        if plan.who is None:
            part = Part(lambda: (each.rows for each in read_rows(source, plan, keys)))
        else:
            part = read_persons(source, plan, keys, self.hashing).kept(plan)
        return Tally(plan, keys.size, self.quantities, self.rest).with_rows(part).integers
