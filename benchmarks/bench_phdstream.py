"""PHDStream: what a step costs by batch, points present and depth, and one sampling; points on two circles."""

from __future__ import annotations

import numpy as np

from fastdp import AdaptivePHDStream, PHDStream
from fastdp.datasets import concentric_circles
from fastdp.spatial import Box

STEPS = 30


def circles(n: int, seed: int) -> np.ndarray:
    """Points on two concentric circles."""
    return concentric_circles(max(n, 1), deletion=False, seed=seed).points[:n]


def started(present: int, depth: int, system: type = PHDStream) -> PHDStream | AdaptivePHDStream:
    """A stream that has seen so many points in its first batch."""
    stream = system(Box([-1.25] * 2, [1.25] * 2), 1.0, max_depth=depth, seed=1)
    stream.advance(circles(present, 0))
    return stream


class Step:
    """The time of thirty batches, half additions and half removals."""

    params = ([10_000, 100_000, 1_000_000], [50, 500, 5000], [10, 20, 40])
    param_names = ("points_present", "batch", "depth")
    timeout = 120
    number = 1
    repeat = 7
    warmup_time = 0.0

    def setup(self, present: int, batch: int, depth: int) -> None:
        self.stream = started(present, depth)
        self.batches = [(circles(batch // 2, 2 * i + 1), circles(batch // 2, 2 * i + 2)) for i in range(STEPS)]

    def time_thirty_batches(self, present: int, batch: int, depth: int) -> None:
        for added, removed in self.batches:
            self.stream.advance(added, removed)


class StepOfAdaptive(Step):
    """The same of AdaptivePHDStream, which looks at counts alone."""

    params = ([10_000, 100_000], [50, 500, 5000], [20])

    def setup(self, present: int, batch: int, depth: int) -> None:
        super().setup(present, batch, depth)
        self.stream = started(present, depth, AdaptivePHDStream)


class Release:
    """Drawing synthetic points, and counting 16,000 boxes straight from the tree."""

    params = ([10_000, 100_000],)
    param_names = ("points_present",)

    def setup(self, present: int) -> None:
        self.stream = started(present, 20)
        generator = np.random.default_rng(3)
        self.lower = generator.uniform(-1.25, 1.0, (16_000, 2))
        self.upper = self.lower + generator.uniform(0.01, 0.25, (16_000, 2))
        self.stream.count(self.lower, self.upper)
        self.stream.sample()

    def time_one_sampling(self, present: int) -> None:
        self.stream.sample()

    def time_16000_boxes(self, present: int) -> None:
        self.stream.count(self.lower, self.upper)
