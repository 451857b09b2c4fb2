"""PAK whole, at the papers' sizes: threshold, the first values' sum, and every running sum behind them."""

from __future__ import annotations

import numpy as np

import fastdp
from benchmarks import sizes
from benchmarks.streams import item_counts
from fastdp.thresholds import Fixed, PAKQuantile

LENGTH = sizes.HOLDOUT + sizes.PUBLISHED


def publisher(**options: object) -> fastdp.PAK:
    return fastdp.PAK(sizes.EPSILON, 1.0 / LENGTH**2, sizes.BOUND, LENGTH, holdout=sizes.HOLDOUT, **options)


def endless(holdout: int = sizes.HOLDOUT) -> fastdp.PAK:
    """A publisher for a stream so long that it has no end here."""
    rule = PAKQuantile(delta=1e-12)
    return fastdp.PAK(sizes.EPSILON, 1e-12, sizes.BOUND, 2**33, holdout=holdout, threshold=rule)


class WholePAK:
    timeout = 120

    def setup(self) -> None:
        self.values = item_counts(LENGTH)
        publisher(average=1000).publish(self.values)

    def time_running_sums(self) -> None:
        publisher().publish(self.values)

    def time_averages(self) -> None:
        publisher(average=1000).publish(self.values)

    def time_unclipped(self) -> None:
        rule = PAKQuantile(delta=1.0 / LENGTH**2, clip=False)
        publisher(threshold=rule, clip=False).publish(self.values)

    def time_plain_tree(self) -> None:
        publisher(threshold=Fixed(float(sizes.BOUND))).publish(self.values)


class Online:
    """The next values of a running stream."""

    params = ((1, 4096),)
    param_names = ("chunk",)
    timeout = 120

    def setup(self, chunk: int) -> None:
        self.chunk = item_counts(chunk)
        self.running = endless()
        self.running.publish(np.concatenate([item_counts(sizes.HOLDOUT), self.chunk]))

    def time_publish(self, chunk: int) -> None:
        self.running.publish(self.chunk)
