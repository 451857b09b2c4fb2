"""The queries of a sweep: which ranges a cell is asked for, and how they are grouped in results."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.errors import ParameterError
from fastdp.experiments.tables import TableReader
from fastdp.queries.workloads import MAX_RANGES, random_ranges
from fastdp.validation import integer

Indices = NDArray[np.int64]
KINDS = ("random_ranges", "timeline")
ALL = "all"


@dataclass(frozen=True)
class Queries:
    """Ranges [start, stop) of the published part, and the groups that errors are averaged over.

    Attributes
    ----------
    starts, stops : int64[q]
        The ranges.
    groups : list of (str, slice or int64[k])
        A label, and which queries belong to it; groups may overlap, none is empty.
    """

    starts: Indices
    stops: Indices
    groups: list[tuple[str, Any]]


@dataclass(frozen=True)
class Workload:
    """A kind of queries.

    Attributes
    ----------
    name : str
        The label in results.
    kind : "random_ranges" or "timeline"
        Uniform over all ranges up to ``max_range`` (ToPS section 3.3); or stretches that cut the stream into
        ``count`` parts, each a group of its own, for pictures over time.
    count : int
        How many.
    max_range : int or None
        The longest; by default the data set's.
    classes : tuple of int
        Lengths that part the queries into classes: (100, 10000) makes [1, 100), [100, 10000) and [10000, ...).
    fixed : bool
        The same ranges in every repetition; else each repetition has its own, and all mechanisms share them.
    """

    name: str
    kind: str = "random_ranges"
    count: int = 200
    max_range: int | None = None
    classes: tuple[int, ...] = ()
    fixed: bool = False

    def table(self) -> dict[str, Any]:
        """All fields, as plain values."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**fields, "classes": list(self.classes)}

    @cached_property
    def labels(self) -> list[str]:
        """Names of the length classes."""
        edges = [1, *self.classes]
        return [f"[{low}, {high})" for low, high in zip(edges, [*edges[1:], "..."], strict=True)]

    def draw(self, n: int, max_range: int, seed: int) -> Queries:
        """Queries for a published part of n values.

        Parameters
        ----------
        n : int
            Its length.
        max_range : int
            The data set's longest range.
        seed : int
            For random ranges.
        """
        if self.kind == "timeline":
            edges = np.linspace(0, n, min(self.count, n) + 1).astype(np.int64)
            stretches = [(str(k), slice(k, k + 1)) for k in range(edges.size - 1)]
            return Queries(edges[:-1].copy(), edges[1:].copy(), stretches)
        starts, stops = random_ranges(n, self.count, self.max_range or max_range, seed)
        groups: list[tuple[str, Any]] = [(ALL, slice(None))]
        if self.classes:
            found = np.searchsorted(self.classes, stops - starts, side="right")
            members = [(label, np.flatnonzero(found == k)) for k, label in enumerate(self.labels)]
            groups += [(label, which) for label, which in members if which.size]
        return Queries(starts, stops, groups)


def read_workload(table: object, place: str) -> Workload:
    """A workload from its ``[[workloads]]`` table."""
    reader = TableReader(table, place, tuple(Workload.__dataclass_fields__))
    kind = reader.choice("kind", KINDS, "random_ranges")
    classes: tuple[int, ...] = ()
    if "classes" in reader:
        classes = reader.items("classes", lambda name, value: integer(name, value, 2))
        if list(classes) != sorted(classes):
            raise ParameterError(f"{reader.at('classes')} = {list(classes)}: expected rising lengths")
    if kind == "timeline":
        reader.refuse_others(("name", "kind", "count"))
    return Workload(
        name=reader.text("name", kind),
        kind=kind,
        count=reader.integer("count", 120 if kind == "timeline" else 200, 1, MAX_RANGES),
        max_range=reader.integer("max_range", low=1) if "max_range" in reader else None,
        classes=classes,
        fixed=reader.flag("fixed", False),
    )
