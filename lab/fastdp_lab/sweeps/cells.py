"""Cells, the parts they are run in, and the keys of their noise.

A cell is a data set, a mechanism with its parameters, a budget and the number of a repetition.  Its key follows from
the sweep's seed and this description only: not from labels, the order of cells, or the worker.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from fastdp.randomness.key import Key
from fastdp_lab.sweeps.data_source import DataSource
from fastdp_lab.sweeps.specification import Mechanism, Specification, canonical
from fastdp_lab.sweeps.study import AnyWorkload

#: Increased when the same specification would give other numbers, so that no old part is read as a new one.
FORMAT = 1
MIN_CELLS, MAX_CELLS, DEFAULT_PARTS = 16, 1000, 1000


@dataclass(frozen=True)
class Group:
    """Cells that differ only in their repetition; ``begin`` is the number of the first one."""

    data_set: DataSource
    mechanism: Mechanism
    epsilon: float
    begin: int

    @cached_property
    def description(self) -> str:
        """What the noise depends on, besides seed and repetition."""
        return canonical([self.data_set.describe(), self.mechanism.describe(), self.epsilon])

    def key(self, root: Key, repetition: int) -> Key:
        """The key of a cell's noise."""
        return root.derive("cell", self.description, repetition)


@dataclass(frozen=True)
class CellRange:
    """Some repetitions of a group, from ``first`` up to but not including ``last``."""

    group: Group
    first: int
    last: int


@dataclass(frozen=True)
class Part:
    """Cells that are run together and stored in one file."""

    ranges: tuple[CellRange, ...]

    @property
    def cells(self) -> int:
        """How many."""
        return sum(each.last - each.first for each in self.ranges)

    def name(self, specification: Specification) -> str:
        """A hash of everything that the part's rows depend on."""
        common = [
            FORMAT,
            specification.seed,
            [each.table() for each in specification.workloads],
            specification.metrics,
            specification.truth,
            specification.relative_floor,
        ]
        cells = [
            [s.group.begin, s.group.data_set.name, s.group.mechanism.name, s.group.description, s.first, s.last]
            for s in self.ranges
        ]
        return hashlib.sha256(canonical([common, cells]).encode()).hexdigest()[:32]


def groups(specification: Specification) -> Iterator[Group]:
    """All groups, in the order of results: by data set, mechanism, budget."""
    begin = 0
    for data_set in specification.datasets:
        for mechanism in specification.mechanisms:
            for epsilon in specification.budgets(mechanism):
                yield Group(data_set, mechanism, epsilon, begin)
                begin += specification.repetitions


def count_cells(specification: Specification) -> int:
    """How many cells a sweep has."""
    budgets = sum(len(specification.budgets(each)) for each in specification.mechanisms)
    return len(specification.datasets) * budgets * specification.repetitions


def parts(specification: Specification) -> Iterator[Part]:
    """All parts, in the order of results; they do not depend on workers."""
    cells = count_cells(specification)
    usual = min(MAX_CELLS, max(MIN_CELLS, cells // DEFAULT_PARTS))
    size = usual if specification.part_cells is None else specification.part_cells
    pending: list[CellRange] = []
    room = size
    for group in groups(specification):
        first = 0
        while first < specification.repetitions:
            # A part has one data set, so that a worker holds few at a time.
            if pending and pending[-1].group.data_set is not group.data_set:
                yield Part(tuple(pending))
                pending, room = [], size
            last = min(specification.repetitions, first + room)
            pending.append(CellRange(group, first, last))
            room -= last - first
            first = last
            if room == 0:
                yield Part(tuple(pending))
                pending, room = [], size
    if pending:
        yield Part(tuple(pending))


def query_labels(workload: AnyWorkload, data_set: DataSource) -> str:
    """What the seeds of random queries depend on, besides the sweep's seed and the repetition."""
    return canonical([{**workload.table(), "name": None}, data_set.describe()])


def query_seed(root: Key, workload: AnyWorkload, labels: str, repetition: int) -> int:
    """The seed of random queries, the same for all mechanisms; labels as :func:`query_labels` gives them."""
    number = 0 if workload.fixed else repetition
    return int.from_bytes(root.derive("queries", labels, number).reveal()[:8], "big")
