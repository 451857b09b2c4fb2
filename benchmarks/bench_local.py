"""Reports of the local model, random words included, beside NumPy's float hybrid and the key stream alone."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from benchmarks.peers import numpy_local
from fastdp import local
from fastdp.randomness.key import Key
from fastdp.randomness.words import Purpose, StreamId, WordStream

REPORTS = 2**20


def make_values() -> np.ndarray:
    return np.random.default_rng(1).uniform(-1.0, 1.0, REPORTS)


class Perturb:
    """A call turns 2^20 values into reports."""

    params = (["SquareWave", "StochasticRounding", "Piecewise", "Hybrid"], [0.2, 1.0, 4.0])
    param_names = ("mechanism", "epsilon")
    timeout = 120

    def setup(self, mechanism: str, epsilon: float) -> None:
        self.values = make_values()
        self.client = getattr(local, mechanism)(epsilon, -1.0, 1.0)
        self.client.perturb(self.values)

    def time_reports(self, mechanism: str, epsilon: float) -> None:
        self.client.perturb(self.values)

    def time_one_report(self, mechanism: str, epsilon: float) -> None:
        self.client.perturb(0.3)

    def track_rate(self, mechanism: str, epsilon: float) -> float:
        seconds = []
        for _ in range(15):
            start = perf_counter()
            self.client.perturb(self.values)
            seconds.append(perf_counter() - start)
        return REPORTS / float(np.median(seconds)) / 1e6

    track_rate.unit = "million reports/s"  # type: ignore[attr-defined]


class Estimate:
    """A call turns 2^20 reports into estimates."""

    params = (["StochasticRounding", "Piecewise", "Hybrid"],)
    param_names = ("mechanism",)

    def setup(self, mechanism: str) -> None:
        self.server = getattr(local, mechanism)(1.0)
        self.reports = self.server.perturb(make_values(), seed=1)

    def time_estimates(self, mechanism: str) -> None:
        self.server.estimate(self.reports)


class Peers:
    """The same number of reports or words."""

    def setup(self) -> None:
        self.values = make_values()
        self.generator = np.random.default_rng(2)
        self.words = np.empty(REPORTS, np.uint64)
        self.key = Key.random()
        self.time_key_stream()

    def time_numpy_hybrid(self) -> None:
        numpy_local.hybrid(self.values, 1.0, self.generator)

    def time_key_stream(self) -> None:
        WordStream(self.key, StreamId(Purpose.LOCAL)).fill(self.words)
