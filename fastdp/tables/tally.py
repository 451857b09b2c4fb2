"""Integers that a release reads of its rows, here or on a worker; those of a table's parts add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from fastdp.data.source import Source
from fastdp.kinds import Floats, Integers
from fastdp.tables.choices import SizeCounts
from fastdp.tables.columns import Keys
from fastdp.tables.plan import TablePlan
from fastdp.tables.quantities import CellRows, Quantity
from fastdp.tables.rows import Part, read_persons, read_rows
from fastdp.tables.sums import Sums
from fastdp_kernels.tables import window_sums

#: By column a step, and ends in steps, float64[2, 2], of its second clip and of the body's.
Rest = Mapping[str, tuple[float, Floats]]


class Tally:
    """Rows by size before clips are chosen (``quantities`` None), then exact sums and sums beyond clips.

    Attributes
    ----------
    sizes : dict of str to SizeCounts
        Of columns that choose their clip; then of the others.
    by_key : int64[K]
        Rows of each key seen, where one machine learns keys.
    exact : list of int64
        Sums of cells, and counts (:class:`fastdp.tables.sums.Sums`).
    """

    def __init__(self, plan: TablePlan, keys: int, quantities: Sequence[Quantity] | None, rest: Rest) -> None:
        self._plan = plan
        self._sums = None if quantities is None else Sums(plan, keys, quantities)
        counted = [each for each in plan.summed if each.chooses != (quantities is not None)]
        self.sizes = {each.name: SizeCounts(each.bound or each.ends) for each in counted}
        self.by_key: Integers = np.zeros(0, np.int64)
        self.exact = list[Integers]() if self._sums is None else self._sums.numbers()
        #: Sums of values within the second clip, less those within the body's, in steps.
        self.tails: dict[str, Integers] = {name: np.zeros(1, np.int64) for name in rest}
        self._rest = rest
        #: Persons' rows that count, and dropped ones.
        self.rows: Integers = np.zeros(2, np.int64)

    @property
    def _arrays(self) -> list[Integers]:
        return [*(each.counts for each in self.sizes.values()), *self.exact, *self.tails.values(), self.rows]

    @property
    def integers(self) -> Integers:
        """All that adds up, int64[n]."""
        return np.concatenate([each.ravel() for each in self._arrays])

    def filled(self, integers: Integers) -> Self:
        begin = 0
        for each in self._arrays:
            each[...] = integers[begin : begin + each.size].reshape(each.shape)
            begin += each.size
        return self

    def with_rows(self, part: Part) -> Self:
        for rows in part.read():
            if self._sums is not None:
                self._sums.add(rows)
            self._count(rows, part.sizes)
        if self._sums is not None:
            if part.all_rows is not None:
                self._sums.see(part.all_rows)
            self.exact = self._sums.numbers()
        if part.sizes is not None:
            self.rows += (part.sizes.size, part.dropped)
        return self

    def _count(self, rows: CellRows, each: Integers | None) -> None:
        plan, span = self._plan, self._plan.span
        if self._sums is None and plan.key_rule in ("public", "private"):
            seen = np.bincount(rows.codes[plan.has(rows.windows)], minlength=self.by_key.size)
            self.by_key = seen + np.pad(self.by_key, (0, seen.size - self.by_key.size))
        for name, sizes in self.sizes.items():
            sizes.add(rows, plan.place(name), span, each)
        for name, (grid, clips) in self._rest.items():
            values = rows.values[plan.place(name)]
            beyond = window_sums.sum_beyond(rows.windows, rows.codes, values, *span, 1.0 / grid, clips)
            self.tails[name] += beyond


@dataclass(frozen=True)
class Tallying:
    """Integers of a part with all rows of its persons, on a worker without noise keys."""

    plan: TablePlan
    hashing: bytes
    quantities: Sequence[Quantity] | None
    rest: Rest

    def __call__(self, source: Source) -> Integers:
        plan, keys = self.plan, Keys(self.plan.by, self.plan.keys if self.plan.by else None)
        if plan.who is None:
            part = Part(lambda: (each.rows for each in read_rows(source, plan, keys)))
        else:
            part = read_persons(source, plan, keys, self.hashing).part(plan, keys.words())
        return Tally(plan, keys.size, self.quantities, self.rest).with_rows(part).integers
