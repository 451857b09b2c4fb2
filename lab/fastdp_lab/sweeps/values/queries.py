"""Range queries: which ranges a cell is asked for, and how results are grouped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp_lab.queries.workloads import MAX_RANGES, random_ranges
from fastdp_lab.sweeps.data_source import plain
from fastdp_lab.sweeps.reading import check_rising, read, text

Indices = NDArray[np.int64]
#: Keys of the table of each kind.
_KEYS = {
    "random_ranges": ("name", "kind", "count", "max_range", "classes", "fixed"),
    "timeline": ("name", "kind", "count"),
}
_COUNTS = {"random_ranges": 200, "timeline": 120}
ALL = "all"


@dataclass(frozen=True)
class Queries:
    """Ranges [start, stop) of the published part, and the groups that errors are averaged over.

    A group is a label and the indices of its queries; groups may overlap, none is empty.
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
        Uniform over all ranges up to ``max_range`` (ToPS section 3.3); or ``count`` consecutive ranges that cover the
        stream, each its own group, for pictures over time.
    count : int
        How many.
    max_range : int or None
        The longest; by default the data set's.
    classes : tuple of int
        Lengths that separate classes of queries: (100, 10000) makes [1, 100), [100, 10000) and [10000, ...).
    fixed : bool
        The same ranges in every repetition; else each repetition draws its own, and all mechanisms share them.
    """

    name: str
    kind: str = "random_ranges"
    count: int = 200
    max_range: int | None = None
    classes: tuple[int, ...] = ()
    fixed: bool = False

    def __post_init__(self) -> None:
        """Check ranges."""
        text("name", self.name)
        validation.choice("kind", self.kind, tuple(_KEYS))
        validation.integer("count", self.count, 1, MAX_RANGES)
        if self.max_range is not None:
            validation.integer("max_range", self.max_range, 1)
        if self.classes:
            check_rising("classes", self.classes, 2, "lengths")

    def table(self) -> dict[str, Any]:
        """All fields, as plain values."""
        return plain(self)

    def check(self, size: int) -> None:
        """Streams of every length can be asked."""

    @property
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
            return Queries(
                edges[:-1].copy(), edges[1:].copy(), [(str(k), slice(k, k + 1)) for k in range(edges.size - 1)]
            )
        starts, stops = random_ranges(n, self.count, self.max_range or max_range, seed)
        groups: list[tuple[str, Any]] = [(ALL, slice(None))]
        if self.classes:
            found = np.searchsorted(self.classes, stops - starts, side="right")
            members = [(label, np.flatnonzero(found == k)) for k, label in enumerate(self.labels)]
            groups += [(label, which) for label, which in members if which.size]
        return Queries(starts, stops, groups)


def read_workload(table: dict[str, Any], place: str) -> Workload:
    """A workload from its ``[[workloads]]`` table."""
    kind = validation.choice(f"{place}.kind", table.get("kind", "random_ranges"), tuple(_KEYS))
    return read(Workload, {"name": kind, "count": _COUNTS[kind], **table}, place, _KEYS[kind])
