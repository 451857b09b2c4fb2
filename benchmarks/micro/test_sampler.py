"""Draws of noise: fastdp exact, NumPy float (unsafe), OpenDP exact, and the key stream alone.

The totals in the table belong to different numbers of draws; compare ``ns_per_item`` (--benchmark-json) or
the rows of one size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.peers import open_dp
from fastdp.randomness import Key, discrete_laplace
from fastdp.randomness.words import Purpose, StreamId, WordStream

DRAWS = 2**20
FEW_DRAWS = 4096
SCALES = [2.0**22, 2.0**34]


@pytest.mark.benchmark(group="sampler: 2^20 draws")
@pytest.mark.parametrize("scale", SCALES)
def test_fastdp(per_item: Any, scale: float) -> None:
    draws = per_item(lambda: discrete_laplace(scale, DRAWS), DRAWS)
    assert np.mean(np.abs(draws)) == pytest.approx(scale, rel=0.01)


@pytest.mark.benchmark(group="sampler: 2^20 draws")
@pytest.mark.parametrize("scale", SCALES)
def test_numpy_float(per_item: Any, scale: float) -> None:
    generator = np.random.default_rng(1)
    draws = per_item(lambda: generator.laplace(0.0, scale, DRAWS), DRAWS)
    assert np.mean(np.abs(draws)) == pytest.approx(scale, rel=0.01)


@pytest.mark.benchmark(group="sampler: 2^20 draws")
def test_key_stream_alone(per_item: Any) -> None:
    words = np.empty(DRAWS, np.uint64)
    key = Key.random()
    per_item(lambda: WordStream(key, StreamId(Purpose.DRAWS)).fill(words), DRAWS)
    assert words.any()


@pytest.mark.benchmark(group="sampler: 4096 draws")
@pytest.mark.parametrize("scale", SCALES)
def test_fastdp_few(per_item: Any, scale: float) -> None:
    assert per_item(lambda: discrete_laplace(scale, FEW_DRAWS), FEW_DRAWS).size == FEW_DRAWS


@pytest.mark.benchmark(group="sampler: 4096 draws")
@pytest.mark.skipif(not open_dp.INSTALLED, reason=open_dp.MISSING)
@pytest.mark.parametrize("scale", SCALES)
def test_opendp_few(per_item: Any, scale: float) -> None:
    measurement = open_dp.discrete_laplace(scale)
    zeros = np.zeros(FEW_DRAWS, np.int64)
    assert len(per_item(lambda: measurement(zeros), FEW_DRAWS, rounds=5)) == FEW_DRAWS
