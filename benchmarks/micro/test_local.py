"""Reports of the local model: fastdp exact, NumPy float (unsafe), one report, the key stream alone.

Compare ``ns_per_item`` (--benchmark-json) or the rows of one group.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.peers import numpy_local
from fastdp.local import Hybrid, Piecewise, SquareWave, StochasticRounding
from fastdp.randomness.key import Key
from fastdp.randomness.words import Purpose, StreamId, WordStream

REPORTS = 2**20
EPSILON = 1.0
VALUES = np.random.default_rng(1).uniform(-1.0, 1.0, REPORTS)


@pytest.mark.benchmark(group="local: 2^20 reports")
@pytest.mark.parametrize("make", [Hybrid, Piecewise, StochasticRounding])
def test_fastdp(per_item: Any, make: Any) -> None:
    mechanism = make(EPSILON)
    reports = per_item(lambda: mechanism.perturb(VALUES), REPORTS)
    assert np.mean(mechanism.estimate(reports) - VALUES) == pytest.approx(0.0, abs=0.02)


@pytest.mark.benchmark(group="local: 2^20 reports")
def test_fastdp_square_wave(per_item: Any) -> None:
    mechanism = SquareWave(EPSILON, -1.0, 1.0)
    reports = per_item(lambda: mechanism.perturb(VALUES), REPORTS)
    assert 0 <= reports.min() <= reports.max() < mechanism.n_outputs


@pytest.mark.benchmark(group="local: 2^20 reports")
def test_numpy_float_hybrid(per_item: Any) -> None:
    generator = np.random.default_rng(2)
    estimates = per_item(lambda: numpy_local.hybrid(VALUES, EPSILON, generator), REPORTS)
    assert np.mean(estimates - VALUES) == pytest.approx(0.0, abs=0.02)
    assert np.var(estimates - VALUES) == pytest.approx(Hybrid(EPSILON).worst_variance, rel=0.02)


@pytest.mark.benchmark(group="local: 2^20 reports")
def test_key_stream_alone(per_item: Any) -> None:
    words = np.empty(REPORTS, np.uint64)
    key = Key.random()
    per_item(lambda: WordStream(key, StreamId(Purpose.LOCAL)).fill(words), REPORTS)
    assert words.any()


@pytest.mark.benchmark(group="local: estimates of 2^20 reports")
@pytest.mark.parametrize("make", [Hybrid, Piecewise, StochasticRounding])
def test_estimate(per_item: Any, make: Any) -> None:
    mechanism = make(EPSILON)
    reports = mechanism.perturb(VALUES, seed=1)
    assert per_item(lambda: mechanism.estimate(reports), REPORTS).size == REPORTS


@pytest.mark.benchmark(group="local: one report")
@pytest.mark.parametrize("make", [Hybrid, SquareWave])
def test_one_report(per_item: Any, make: Any) -> None:
    mechanism = make(EPSILON, 0.0, 1.0)
    reports = per_item(lambda: [mechanism.perturb(0.3) for _ in range(1000)], 1000)
    assert len(set(reports)) > 1
