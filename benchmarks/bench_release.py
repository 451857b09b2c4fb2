"""Whole releases at the papers' sizes, and 200 range queries with their prefix sums."""

from __future__ import annotations

from typing import Any

import numpy as np

import fastdp
from benchmarks import sizes
from benchmarks.streams import item_counts
from fastdp.workloads import random_ranges


def release(values: np.ndarray, **options: Any) -> fastdp.Release:
    return fastdp.ToPS(
        epsilon=sizes.EPSILON, bound=sizes.BOUND, holdout=sizes.HOLDOUT, max_range=sizes.MAX_RANGE, **options
    ).release(values)


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
