"""Exact discrete Laplace noise, key stream included, beside NumPy's float noise and the key stream alone."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from fastdp.randomness import Key, discrete_laplace
from fastdp.randomness.words import Purpose, StreamId, WordStream

DRAWS = 2**20
SCALES = [1.0, 1e3, 2.0**22, 2.0**34, 2.0**36, 2.0**40, 2.0**44]


class DiscreteLaplace:
    """A call draws 2^20 times."""

    params = (SCALES,)
    param_names = ("scale",)
    timeout = 120

    def setup(self, scale: float) -> None:
        discrete_laplace(scale, DRAWS, seed=1)

    def time_draws(self, scale: float) -> None:
        discrete_laplace(scale, DRAWS)

    def track_rate(self, scale: float) -> float:
        seconds = []
        for _ in range(15):
            start = perf_counter()
            discrete_laplace(scale, DRAWS)
            seconds.append(perf_counter() - start)
        return DRAWS / float(np.median(seconds)) / 1e6

    track_rate.unit = "million draws/s"  # type: ignore[attr-defined]


class Peers:
    """The same number of draws or words."""

    def setup(self) -> None:
        self.generator = np.random.default_rng(1)
        self.words = np.empty(DRAWS, np.uint64)
        self.key = Key.random()
        self.time_key_stream()

    def time_numpy_laplace(self) -> None:
        self.generator.laplace(0.0, 2.0**22, DRAWS)

    def time_key_stream(self) -> None:
        WordStream(self.key, StreamId(Purpose.DRAWS)).fill(self.words)
