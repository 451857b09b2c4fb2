"""The threshold of ToPS by noisy max with exact noise, by the number of candidates."""

from __future__ import annotations

from benchmarks import sizes
from benchmarks.streams import item_counts
from fastdp.randomness import Key
from fastdp.thresholds import NoisyMax, ThresholdTask


class Threshold:
    params = ((sizes.BOUND, sizes.WIDE_BOUND, 2**20),)
    param_names = ("bound",)
    timeout = 120

    def setup(self, bound: int) -> None:
        self.values = item_counts(sizes.HOLDOUT)
        self.key = Key.random()
        self.task = ThresholdTask(sizes.EPSILON, float(bound), sizes.HOLDOUT, sizes.MAX_RANGE, 2.0**-20)
        self.chooser = NoisyMax().start(self.task)
        self.chooser.observe(self.values)
        self.chooser.choose(self.key)

    def time_choose(self, bound: int) -> None:
        """Scores, noise and maximum; the histogram is ready."""
        self.chooser.choose(self.key)

    def time_whole(self, bound: int) -> None:
        """The histogram of 65,536 held-out values included."""
        chooser = NoisyMax().start(self.task)
        chooser.observe(self.values)
        chooser.choose(self.key)
