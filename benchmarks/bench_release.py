"""Whole releases at the papers' sizes, and 200 range queries with their prefix sums."""

from __future__ import annotations

from typing import Any

import numpy as np

import fastdp
from benchmarks import sizes
from benchmarks.streams import item_counts
from fastdp.perturbers import Flat, Hierarchy
from fastdp.queries.workloads import random_ranges
from fastdp.smoothers import Recent
from fastdp.thresholds import NoisyMax, PAKQuantile


def release(values: np.ndarray, **options: Any) -> fastdp.Release:
    return fastdp.ToPS(
        epsilon=sizes.EPSILON, bound=sizes.BOUND, holdout=sizes.HOLDOUT, max_range=sizes.MAX_RANGE, **options
    ).release(values)


#: What ToPS section 5 compares: threshold, perturber, smoother.
COMPOSITIONS: dict[str, tuple[Any, Any, Any]] = {
    "ToPS, prune 3": (NoisyMax(), Hierarchy(16, prune=3), Recent()),
    "NM-E + H_16^c": (NoisyMax(), Hierarchy(16, prune=0), None),
    "NM-E + H_16": (NoisyMax(), Hierarchy(16, consistent=False, prune=0), None),
    "NM-E + H_2": (NoisyMax(), Hierarchy(2, consistent=False, prune=0), None),
    "NM-E + Flat": (NoisyMax(), Flat(), None),
    "S-PAK + H_2": (PAKQuantile(), Hierarchy(2, consistent=False, prune=0), None),
}


class Compositions:
    """Whole releases of the methods of ToPS section 5, the threshold included, and 200 queries after each."""

    params = (list(COMPOSITIONS),)
    param_names = ("method",)
    timeout = 120

    def setup(self, method: str) -> None:
        self.parts = dict(zip(("threshold", "perturber", "smoother"), COMPOSITIONS[method], strict=True))
        self.values = item_counts(sizes.HOLDOUT + sizes.PUBLISHED)
        self.queries = random_ranges(sizes.PUBLISHED, sizes.QUERIES, sizes.MAX_RANGE, seed=1)
        self.time_release_and_200_queries(method)

    def time_release(self, method: str) -> fastdp.Release:
        del method
        return fastdp.StreamPublisher(
            **self.parts,
            epsilon=sizes.EPSILON,
            bound=sizes.BOUND,
            holdout=sizes.HOLDOUT,
            max_range=sizes.MAX_RANGE,
        ).release(self.values)

    def time_release_and_200_queries(self, method: str) -> None:
        self.time_release(method).range_sum(*self.queries)


class WholeRelease:
    timeout = 120

    def setup(self) -> None:
        self.values = item_counts(sizes.HOLDOUT + sizes.PUBLISHED)
        self.out = np.empty(sizes.PUBLISHED)
        self.release = release(self.values)
        release(self.values, prune=0)
        self.queries = random_ranges(sizes.PUBLISHED, sizes.QUERIES, sizes.MAX_RANGE, seed=1)
        self.time_200_queries()

    def time_tops(self) -> None:
        release(self.values)

    def time_every_value_noisy(self) -> None:
        """The H_16^c release: s = 0, 1.1 million exact draws."""
        release(self.values, prune=0)

    def time_copyto(self) -> None:
        np.copyto(self.out, self.values[sizes.HOLDOUT :])

    def time_200_queries(self) -> None:
        """A fresh release object, so that the prefix sums are not remembered from the call before."""
        fastdp.Release(
            self.release.values,
            self.release.offset,
            self.release.threshold,
            self.release.guarantee,
            self.release.block,
        ).range_sum(*self.queries)
