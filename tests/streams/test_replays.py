"""Restored fleets that meet altered values: independent noise behind them, with the law of two releases."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

import fastdp
from fastdp.streams.fleet import Fleet
from tests.stat import accept, reject, seed

Floats = NDArray[np.float64]
STREAMS = 30_000
SCALE = 0.5


def of_differences(x: Floats) -> Floats:
    """Distribution function of the difference of two independent Laplace variables of scale 1."""
    size = np.abs(x)
    behind = (2.0 + size) * np.exp(-size) / 4.0
    return np.where(x < 0, behind, 1.0 - behind)


def releases(altered: float) -> tuple[Floats, Floats]:
    """Noise of the second value of each stream, from one snapshot: of the value as it was, and altered by so much."""
    publisher = fastdp.Adaptive(epsilon=1.0 / SCALE, sensitivity=1.0, max_range=256)
    fleet = Fleet(publisher, seed=seed(17))
    ids, values = np.arange(STREAMS), np.full(STREAMS, 3.0)
    fleet.publish(ids, values)
    state = fleet.to_bytes()
    # The second block has one value too.
    first, second = (Fleet.from_bytes(state).publish(ids, values + more)[1] for more in (0.0, altered))
    return first - values, second - values - altered


@pytest.mark.statistical
def test_noise_behind_an_altered_value_is_independent() -> None:
    first, second = releases(1.0)
    differences = (first - second) / SCALE
    accept(stats.kstest(differences, of_differences).pvalue)
    # Each by itself is one release.
    accept(stats.kstest(second / SCALE, stats.laplace.cdf).pvalue)
    accept(stats.spearmanr(first, second).pvalue)
    # Equal noise, and noise of which an eighth is shared, would be seen.
    reject(stats.kstest(np.zeros(STREAMS), of_differences).pvalue)
    shared = np.where(np.arange(STREAMS) % 8 == 0, first, second)
    reject(stats.kstest((first - shared) / SCALE, of_differences).pvalue)
    reject(stats.spearmanr(first, shared).pvalue)


def test_only_streams_that_were_altered_meet_other_noise() -> None:
    publisher = fastdp.Adaptive(epsilon=2.0, sensitivity=1.0, max_range=256)
    fleet = Fleet(publisher, seed=1)
    ids, values = np.arange(100), np.full(100, 3.0)
    fleet.publish(ids, values)
    state, altered = fleet.to_bytes(), values.copy()
    altered[::2] += 1.0
    once, again, other = (Fleet.from_bytes(state).publish(ids, each)[1] for each in (values, values, altered))
    np.testing.assert_array_equal(once, again)
    np.testing.assert_array_equal(once[1::2], other[1::2])
    # Of 50 differences under independent noise of 1,024 steps hardly one is that of the values.
    assert np.count_nonzero(other[::2] - once[::2] == 1.0) < 3
