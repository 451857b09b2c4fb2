"""A stream with exact range sums, raw and clipped, shared by all cells."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastdp.smoothers import Smoother
from fastdp_lab.sweeps.values.queries import Queries, Workload

if TYPE_CHECKING:
    from fastdp_lab.sweeps.values.data_set import DataSet

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
#: Sizes of caches: thresholds repeat where candidates are whole numbers, queries in every mechanism.
MAX_CLIPPED, MAX_NOISELESS, MAX_QUERIES = 64, 16, 1024
#: Workloads of more queries than this are not cached.
MAX_CACHED_COUNT = 1000


@dataclass(frozen=True, eq=False)
class Clipped:
    """Prefix sums of what clipping at a threshold removes: few values are above a threshold.

    ``places`` are the positions of the values above it, int64[k]; ``excess`` the prefix sums of value minus threshold
    over these, float64[k + 1].
    """

    places: Indices
    excess: Floats

    def before(self, stops: Indices) -> Floats:
        """What is removed from the first ``stops`` values: float64[q]."""
        sums: Floats = self.excess[np.searchsorted(self.places, stops)]
        return sums


@dataclass(frozen=True, eq=False)
class ValueTruth:
    """A stream, float64[holdout + published], and the truth of its published part; safe for threads."""

    data_set: DataSet
    values: Floats

    @property
    def size(self) -> int:
        """Length of the published part."""
        return self.body.size

    @property
    def facts(self) -> dict[str, Any]:
        """Length and digest, for the manifest."""
        return {"values": self.values.size, "sha256": self.digest}

    @property
    def body(self) -> Floats:
        """The published part."""
        return self.values[self.data_set.holdout :]

    @cached_property
    def digest(self) -> str:
        """A hash of exactly these values."""
        return hashlib.sha256(self.values.data).hexdigest()[:32]

    @cached_property
    def prefix(self) -> Floats:
        """Prefix sums of the published part: float64[published + 1]."""
        sums = np.zeros(self.body.size + 1)
        np.cumsum(self.body, out=sums[1:])
        return sums

    @cached_property
    def clipped(self) -> Callable[[float], Clipped]:
        """What clipping at theta removes, by theta; values below 0 count too, publishers clip them to 0."""
        return lru_cache(MAX_CLIPPED)(self._clip)

    def _clip(self, theta: float) -> Clipped:
        body = self.body
        places = np.flatnonzero((body > theta) | (body < 0.0))
        excess = np.zeros(places.size + 1)
        np.cumsum(body[places] - np.clip(body[places], 0.0, theta), out=excess[1:])
        return Clipped(places, excess)

    def clipped_before(self, clipped: Clipped, stops: Indices) -> Floats:
        """Prefix sums of the clipped stream: float64[q]."""
        sums: Floats = self.prefix[stops] - clipped.before(stops)
        return sums

    def noiseless(self, theta: float, block: int, smoother: Smoother) -> tuple[Floats, Floats]:
        """Clipped sums before each block, and what the smoother predicts for it without noise."""
        # A smoother of one's own need not be hashable.
        predict = self._predicted if isinstance(smoother, Hashable) else self._predict
        return predict(theta, block, smoother)

    @cached_property
    def _predicted(self) -> Callable[..., tuple[Floats, Floats]]:
        return lru_cache(MAX_NOISELESS)(self._predict)

    def _predict(self, theta: float, block: int, smoother: Smoother) -> tuple[Floats, Floats]:
        clipped = self.clipped(min(theta, self.data_set.bound))
        before = self.clipped_before(clipped, np.arange(0, self.body.size + 1, block))
        first = theta / 2.0
        _, predicted = smoother.step(smoother.start(first, theta), np.diff(before) / block)
        return before, np.concatenate([[first], predicted])

    def draw(self, workload: Workload, seed: int) -> Queries:
        """The queries that follow from a seed, the same for all mechanisms."""
        return (self._draw if workload.count > MAX_CACHED_COUNT else self._drawn)(workload, seed)

    @cached_property
    def _drawn(self) -> Callable[[Workload, int], Queries]:
        return lru_cache(MAX_QUERIES)(self._draw)

    def _draw(self, workload: Workload, seed: int) -> Queries:
        return workload.draw(self.size, self.data_set.max_range, seed)
