"""A spatial data set ready to be measured on: how many points were where and when, shared by all cells."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.datasets import SpatialStream
from fastdp.experiments.boxes import BoxWorkload
from fastdp.experiments.kept import Kept
from fastdp.experiments.spatial_sources import Corners, SpatialDataSet
from fastdp.spatial import BoxQueries, Domain, PointIndex

Floats = NDArray[np.float64]
#: Asked boxes with their true counts at all times: one or two megabytes each for the paper's.
MAX_ASKED = 16


@dataclass(frozen=True)
class Asked:
    """Boxes, and the truth about them.

    Attributes
    ----------
    boxes : list of BoxQueries
        By group.
    looks : tuple of int
        The batches after which they are asked.
    counts : list of list of float64[q]
        True counts of each look, by group.
    """

    boxes: list[BoxQueries]
    looks: tuple[int, ...]
    counts: list[list[Floats]]


@dataclass(frozen=True, eq=False)
class SpatialScene:
    """A stream of points and its truth; safe for threads.

    Attributes
    ----------
    data_set : SpatialDataSet
        What it was loaded from.
    stream : SpatialStream
        The events.
    domain : Domain
        Where they are.
    domain_digest : str
        Of what it was made from.
    """

    data_set: SpatialDataSet
    stream: SpatialStream
    domain: Domain
    domain_digest: str
    _asked: Kept[Asked] = field(default_factory=lambda: Kept(MAX_ASKED), repr=False)

    @property
    def size(self) -> int:
        """Batches after the initial set."""
        return self.stream.n_steps

    @property
    def box(self) -> Corners:
        """The domain's bounding box."""
        low, high = self.domain.lower.tolist(), self.domain.upper.tolist()
        return (low[0], low[1]), (high[0], high[1])

    @property
    def facts(self) -> dict[str, Any]:
        """Length and digest, for the manifest."""
        return {
            "events": len(self.stream.points),
            "batches": self.stream.n_steps,
            "box": [list(corner) for corner in self.box],
            "sha256": self.digest,
        }

    @cached_property
    def digest(self) -> str:
        """A short name for exactly these events."""
        found = hashlib.sha256(self.domain_digest.encode())
        for array in (self.stream.points, self.stream.cancels, self.stream.cuts):
            found.update(np.ascontiguousarray(array).data)
        return found.hexdigest()[:32]

    def prepare(self) -> None:
        """Make what all cells need, so that no two threads do it."""
        assert self.digest  # noqa: S101

    def asked(self, workload: BoxWorkload, seed: int) -> Asked:
        """The boxes that follow from a seed, and the truth about them."""
        return self._asked.get((workload, seed), lambda: self._ask(workload, seed))

    def _ask(self, workload: BoxWorkload, seed: int) -> Asked:
        boxes, looks = workload.draw(self.box, seed), workload.looks(self.stream.n_steps)
        counts = []
        for t in looks:
            index = PointIndex(self.stream.present(t))
            counts.append([index.count(each.lower, each.upper).astype(np.float64) for each in boxes])
        return Asked(boxes, looks, counts)
