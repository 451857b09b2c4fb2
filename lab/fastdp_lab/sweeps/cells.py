"""Cells, the parts that they are run in, and the run of a part.

A cell is a data set, a mechanism with its parameters, a budget and the number of a repetition.  Its key follows from
the sweep's seed and this description only: not from labels, the order of cells, or the worker.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any

from fastdp import Key
from fastdp.errors import DataError, FastDPError, StateError
from fastdp_lab.sweeps.specification import Mechanism, Specification
from fastdp_lab.sweeps.study import DataSet, canonical, load_truth, plain

MIN_CELLS, MAX_CELLS, DEFAULT_PARTS = 16, 1000, 1000


@dataclass(frozen=True, eq=False)
class Group:
    """Cells that differ only in their repetition."""

    data_set: DataSet
    mechanism: Mechanism
    epsilon: float

    @cached_property
    def description(self) -> str:
        """Description that the noise depends on, besides seed and repetition; without labels."""
        mechanism = {"system": self.mechanism.system, "parameters": self.mechanism.parameters}
        return canonical([plain(self.data_set, "name"), mechanism, self.epsilon])

    def key(self, root: Key, repetition: int) -> Key:
        """The key of a cell's noise."""
        return root.derive("cell", self.description, repetition)


@dataclass(frozen=True)
class Part:
    """Cells of one file, as groups and repetitions; ``first`` is the number of the first."""

    first: int
    cells: tuple[tuple[Group, int], ...]

    @property
    def name(self) -> str:
        """Of the file."""
        return f"{self.first:09d}-{self.first + len(self.cells):09d}"


def count_cells(specification: Specification) -> int:
    """How many cells a sweep has."""
    return len(specification.datasets) * len(specification.pairs()) * specification.repetitions


def parts(specification: Specification) -> Iterator[Part]:
    """All parts, in the order of results: by data set, mechanism, budget, repetition."""
    usual = min(MAX_CELLS, max(MIN_CELLS, count_cells(specification) // DEFAULT_PARTS))
    size, first = specification.part_cells or usual, 0
    # A part has one data set, so that a worker holds few at a time.
    for data_set in specification.datasets:
        groups = [Group(data_set, mechanism, epsilon) for mechanism, epsilon in specification.pairs()]
        cells = itertools.product(groups, range(specification.repetitions))
        while some := tuple(itertools.islice(cells, size)):
            yield Part(first, some)
            first += len(some)


def query_seed(root: Key, workload: Any, data_set: DataSet, repetition: int) -> int:
    """The seed of random queries, the same for all mechanisms."""
    labels = canonical([{**plain(workload), "name": None}, plain(data_set, "name")])
    number = 0 if workload.fixed else repetition
    return int.from_bytes(root.derive("queries", labels, number).reveal()[:8], "big")


def run_part(
    specification: Specification, part: Part, folder: Path, digest: str | None = None
) -> list[tuple[Any, ...]]:
    """The rows of a part, a pure function of the specification.

    Parameters
    ----------
    specification : Specification
        The sweep.
    part : Part
        Which cells.
    folder : Path
        Where the data sets' files are.
    digest : str, optional
        Of the part's data set, as the runner has it.

    Raises
    ------
    DataError
        If the data are missing here, or differ from the runner's.
    StateError
        If there is not enough memory, or a file cannot be read.  Any other error of a mechanism does not end the
        part: it is the cell's result.
    """
    data_set = part.cells[0][0].data_set
    truth, root = load_truth(data_set, folder, digest), Key.from_seed(specification.seed)
    if digest not in (None, truth.facts["sha256"]):
        raise DataError(f"{data_set.name}: a worker has other values; expected those of the runner")
    rows: list[tuple[Any, ...]] = []
    width = len(specification.study.columns(specification.metrics))
    numbers = itertools.count(part.first)
    for group, cells in itertools.groupby(part.cells, key=itemgetter(0)):
        run: Any = None
        for _, repetition in cells:
            label = (next(numbers), data_set.name, group.mechanism.name, group.epsilon, repetition)

            def seed(workload: Any, repetition: int = repetition) -> int:
                return query_seed(root, workload, data_set, repetition)

            try:
                if run is None:
                    run = specification.study.build(specification, group.mechanism, truth, group.epsilon)()
                theta, found = run(repetition, group.key(root, repetition), seed)
            except (MemoryError, OSError) as error:
                # These depend on the machine and the moment, and are no result.
                raise StateError(
                    f"{group.mechanism.name} on {data_set.name}: {type(error).__name__}: {error}; expected enough "
                    "memory and readable files, run again to go on"
                ) from error
            except Exception as error:  # the cell fails, not the sweep
                kind = type(error).__name__
                # fastdp's own errors quote no value.
                own = (
                    f": {error}"
                    if isinstance(error, FastDPError)
                    else " (its text may quote values, so it is not kept)"
                )
                rows.append((*label, math.nan, None, None, 0, *[math.nan] * width, kind + own))
            else:
                rows += [(*label, theta, name, each, count, *row, None) for name, each, count, row in found]
    return rows
