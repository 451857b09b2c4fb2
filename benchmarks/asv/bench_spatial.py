"""PHDStream: what a step costs by batch, points present and depth, and one sampling; points on two circles."""

from __future__ import annotations

import numpy as np

from benchmarks.speed.inputs import circles, started
from fastdp.systems import AdaptivePHDStream, PHDStream

STEPS = 30
SYSTEMS = {"PHDStream": PHDStream, "AdaptivePHDStream": AdaptivePHDStream}


class Step:
    """The time of thirty batches, half additions and half removals."""

    params = (list(SYSTEMS), [10_000, 100_000, 1_000_000], [50, 500, 5000], [10, 20, 40])
    param_names = ("system", "points_present", "batch", "depth")
    timeout = 120
    number, repeat, warmup_time = 1, 7, 0.0

    def setup(self, system: str, present: int, batch: int, depth: int) -> None:
        self.stream = started(present, depth, SYSTEMS[system])
        self.batches = [(circles(batch // 2, 2 * i + 1), circles(batch // 2, 2 * i + 2)) for i in range(STEPS)]

    def time_thirty_batches(self, system: str, present: int, batch: int, depth: int) -> None:
        for added, removed in self.batches:
            self.stream.advance(added, removed)


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
