"""PHDStream: what a step costs by batch, points present and depth, and one sampling; points on two circles."""

from __future__ import annotations

import numpy as np

from benchmarks.speed.inputs import circles, started
from fastdp import AdaptivePHDStream, PHDStream

STEPS = 30
#: Points present, events in a batch, greatest depth: one is varied at a time.
CASES = [
    *((present, 500, 20) for present in (1_000, 10_000, 100_000, 1_000_000)),
    *((100_000, batch, 20) for batch in (5, 50, 5_000, 50_000)),
    *((100_000, 500, depth) for depth in (5, 10, 40)),
]
SYSTEMS = {"PHDStream": PHDStream, "AdaptivePHDStream": AdaptivePHDStream}


class Step:
    """The time of thirty batches, half additions and half removals."""

    params = (list(SYSTEMS), CASES)
    param_names = ("system", "present, batch, depth")
    timeout = 120
    number, repeat, warmup_time = 1, 7, 0.0

    def setup(self, system: str, case: tuple[int, int, int]) -> None:
        present, batch, depth = case
        self.stream = started(present, depth, SYSTEMS[system])
        half = -(-batch // 2)
        self.batches = [(circles(half, 2 * i + 1), circles(batch - half, 2 * i + 2)) for i in range(STEPS)]

    def time_thirty_batches(self, system: str, case: tuple[int, int, int]) -> None:
        for added, removed in self.batches:
            self.stream.advance(added, removed)

    def track_nodes(self, system: str, case: tuple[int, int, int]) -> int:
        """Nodes in memory; a step is linear in the batch and the nodes that it visits."""
        return int(self.stream.n_nodes)


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
