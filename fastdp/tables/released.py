"""Everything that a table's release publishes, before it becomes a frame."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fastdp.guarantee import Guarantee
from fastdp.kinds import Integers
from fastdp.releases.intervals import DrawnNoise
from fastdp.tables.calendar_basis import CalendarFit
from fastdp.tables.columns import Keys
from fastdp.tables.consistent import Level
from fastdp.tables.keys import KeyRule
from fastdp.tables.plan import TablePlan
from fastdp.tables.promise import promise
from fastdp.tables.quantities import FIRST_SUMS, ROWS, Quantity
from fastdp.tables.shares import Shares
from fastdp.tables.sizes import Number
from fastdp.tables.statistics import Statistic
from fastdp.tables.tails import Tail


@dataclass(frozen=True, eq=False)
class Measured:
    """Noisy numbers of one level's nodes, with independent noise."""

    level: Level
    #: Sums, or the one whose counts these are.
    quantities: tuple[Quantity, ...]
    #: int64[n, W or 1, K_depth]. Sums in steps of resolution, or counts.
    steps: Integers
    #: Of each quantity, in steps.
    noise: tuple[DrawnNoise, ...]


class RowNumbers(NamedTuple):
    """Released numbers of persons' counted and dropped rows."""

    counted: Number
    dropped: Number

    @property
    def share(self) -> float | None:
        """Estimated share of dropped rows; None if too few count."""
        if not self.counted.known:
            return None
        dropped = self.dropped.value if self.dropped.known else 0.0
        return dropped / (self.counted.value + dropped)


@dataclass(frozen=True, eq=False)
class Released:
    """Everything that was released of a table."""

    #: int64[W + 1]. Borders of the windows: microseconds since 1970-01-01, in UTC, or of the local clock; 0 and 1
    #: without times.
    edges: Integers
    #: Zone of the windows.
    time_zone: str | None
    #: Length of the windows.
    every: str | None
    #: By depth from 0: the first key columns with entries of every prefix; the last are keys.
    nodes: tuple[dict[str, list[object]], ...]
    #: tuple of int64[K_depth]. By depth from 1: each node's number one depth above.
    parents: tuple[Integers, ...]
    #: A mean is centre + deviation / count, or total / count, a variance square / count less the squared mean
    #: deviation.
    statistics: tuple[Statistic, ...]
    #: Sums, the cells' first, and counts.
    measured: tuple[Measured, ...]
    #: Of each column with values.
    tails: dict[str, Tail]
    #: Of the budget, with the plan.
    shares: Shares = field(repr=False)
    #: True if noise follows from a seed.
    simulated: bool
    #: Further lines of the guarantee's derivation.
    notes: tuple[str, ...] = ()
    #: With persons, but online.
    rows: RowNumbers | None = None
    #: Ends taken from the table, perhaps within windows: "first", "last".
    taken: tuple[str, ...] = ()
    #: The table's library.
    family: str = "pyarrow"
    #: Noise and threshold of counts that chose keys.
    selection: KeyRule | None = None
    others: DrawnNoise | None = None
    #: int64[K] or None. Each key's first window, before which nothing of it is released; None: 0.
    begins: Integers | None = None
    #: Of each sum by a calendar, in steps: the norm that its columns leave, over all windows and keys.
    residuals: tuple[Number, ...] = ()

    def since(self, begins: Integers) -> Released:
        """The same without windows of keys before `begins`."""
        early = np.arange(self.edges.size - 1)[:, None] < begins
        if not early.any():
            return self
        measured = tuple(replace(each, steps=np.where(early, 0, each.steps)) for each in self.measured)
        return replace(self, measured=measured, begins=np.maximum(begins, 0))

    @cached_property
    def guarantee(self) -> Guarantee:
        """Guarantee, composed when it is asked for."""
        return promise(self.shares, simulated=self.simulated, notes=self.notes)

    @property
    def keys(self) -> dict[str, list[object]]:
        return self.nodes[-1]

    @property
    def sizes(self) -> tuple[int, ...]:
        return 1, *(parents.size for parents in self.parents)

    @property
    def sums(self) -> tuple[Measured, ...]:
        return tuple(each for each in self.measured if not each.quantities[0].counts)

    @property
    def in_windows(self) -> tuple[Measured, ...]:
        """Sums in each window; by a calendar with its windows' noise."""
        basis = self.shares.plan.basis
        if basis is None:
            return self.sums
        found = []
        for each in self.sums:
            fits = [CalendarFit(basis, *given, (0.0, 0.0), ()) for given in zip(each.steps, each.noise, strict=True)]
            steps = np.array([np.rint(fit.values[0]) for fit in fits]).astype(np.int64)
            noise = tuple(DrawnNoise(math.sqrt(one.variance) * basis.window, True) for one in each.noise)
            found.append(replace(each, steps=steps, noise=noise))
        return tuple(found)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        return self.sums[0].quantities if self.sums else ()

    def counts(self, name: str, column: str) -> Measured:
        firsts = [(each.quantities[0].name, each.quantities[0].column) for each in self.measured]
        return self.measured[firsts.index((name, column))]

    def index(self, name: str, column: str = ROWS) -> int | None:
        return next((i for i, q in enumerate(self.quantities) if (q.name, q.column) == (name, column)), None)

    def cells(self, name: str, column: str | None = None) -> Integers:
        found = next(i for i, q in enumerate(self.quantities) if q.name == name and column in (None, q.column))
        cells: Integers = self.measured[0].steps[found]
        return cells


def released_of(
    shares: Shares,
    span: tuple[int, int],
    keys: Keys,
    measured: tuple[Measured, ...],
    tails: dict[str, Tail],
    *,
    simulated: bool,
) -> Released:
    """A release of the plan's windows [first, last)."""
    plan, edges, zone, every = shares.plan, np.array(span, np.int64), None, None
    taken: tuple[str, ...] = ()
    if plan.calendar is not None:
        edges, zone, every = plan.calendar.edges(*span), plan.calendar.time_zone, plan.calendar.every
        taken = plan.taken
    nodes = tuple(keys.columns(depth) for depth in range(len(plan.by) + 1))
    public = edges, zone, every, nodes, keys.parents, plan.statistics
    return Released(*public, measured, tails, shares, simulated, taken=taken)


def unknown_tails(plan: TablePlan, quantities: Sequence[Quantity], *, expected: bool = False) -> dict[str, Tail]:
    """Tails of clips without counted rows beyond."""
    found = {}
    for q in quantities:
        if q.name in FIRST_SUMS:
            column = plan.column(q.column)
            bound = column.ends if column.bound is None else column.bound
            ends = q.ends if bound == column.ends else bound
            found[q.column] = Tail(q.ends, ends, column.bound is not None, expected=expected)
    return found
