"""The threshold over 41,270 candidates from 65,536 values: fastdp exact, careful NumPy with float noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks import sizes
from benchmarks.peers import numpy_tops
from benchmarks.streams import item_counts
from fastdp.randomness import Key
from fastdp.thresholds import NoisyMax, ThresholdTask

pytestmark = pytest.mark.benchmark(group="noisy max: B = 41,270, m = 65,536")


def test_fastdp(per_item: Any) -> None:
    values, key = item_counts(sizes.HOLDOUT), Key.random()
    task = ThresholdTask(sizes.EPSILON, float(sizes.WIDE_BOUND), sizes.HOLDOUT, sizes.MAX_RANGE, 2.0**-20)

    def choose() -> float:
        chooser = NoisyMax().start(task)
        chooser.observe(values)
        return chooser.choose(key)

    assert 20 < per_item(choose, sizes.WIDE_BOUND) < 200


def test_numpy_float(per_item: Any) -> None:
    values, generator = item_counts(sizes.HOLDOUT), np.random.default_rng(1)

    def choose() -> float:
        return numpy_tops.choose_threshold(values, sizes.WIDE_BOUND, sizes.EPSILON, sizes.MAX_RANGE, generator)

    assert 20 < per_item(choose, sizes.WIDE_BOUND) < 200
