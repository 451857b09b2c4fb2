"""A stream of points with exact counts in boxes at all times, shared by all cells."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastdp.spatial import Domain
from fastdp_lab.datasets import SpatialStream
from fastdp_lab.queries.boxes import BoxQueries, PointIndex

if TYPE_CHECKING:
    from fastdp_lab.sweeps.points.data_set import Corners, SpatialDataSet
    from fastdp_lab.sweeps.points.queries import BoxWorkload

Floats = NDArray[np.float64]
#: Size of the cache of boxes with their true counts at all times: one or two megabytes each for the paper's.
MAX_ASKED = 16


@dataclass(frozen=True)
class Asked:
    """Boxes by group, and how many points are in them.

    ``looks`` are the batches after which they are counted; ``counts`` has float64[q] for each look and group.
    """

    boxes: list[BoxQueries]
    looks: tuple[int, ...]
    counts: list[list[Floats]]


@dataclass(frozen=True, eq=False)
class PointTruth:
    """The events, the domain that contains them and the digest of its file; safe for threads."""

    data_set: SpatialDataSet
    stream: SpatialStream
    domain: Domain
    domain_digest: str

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
        """A hash of exactly these events."""
        found = hashlib.sha256(self.domain_digest.encode())
        for array in (self.stream.points, self.stream.cancels, self.stream.cuts):
            found.update(np.ascontiguousarray(array).data)
        return found.hexdigest()[:32]

    @cached_property
    def asked(self) -> Callable[[BoxWorkload, int], Asked]:
        """The boxes that follow from a workload and a seed, with their true counts."""
        return lru_cache(MAX_ASKED)(self._ask)

    def _ask(self, workload: BoxWorkload, seed: int) -> Asked:
        boxes, looks = workload.draw(self.box, seed), workload.looks(self.stream.n_steps)
        counts = []
        for t in looks:
            index = PointIndex(self.stream.present(t))
            counts.append([index.count(each.lower, each.upper).astype(np.float64) for each in boxes])
        return Asked(boxes, looks, counts)
