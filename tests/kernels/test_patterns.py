"""The filter and the smoother of waves against the joint normal distribution."""

from __future__ import annotations

import numpy as np
import pytest

from fastdp_kernels.streams import wave_filter
from tests.oracles import waves


def distribution_of(seed: int, count: int, size: int) -> tuple[np.ndarray, ...]:
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(count, size))
    gaps = np.concatenate([[0.0], generator.uniform(0.5, 4.0, count - 1)])
    noises, rates, spreads = (generator.uniform(0.1, 2.0, n) for n in (count, size, size))
    # One entry that stands still, and one that is known.
    rates[-1], spreads[-2:] = 0.0, (0.0, 1.0)
    return rows, noises, gaps, rates, generator.normal(size=size), spreads


@pytest.mark.parametrize(("seed", "count", "size"), [(1, 1, 3), (2, 2, 3), (3, 30, 3), (4, 25, 7)])
def test_likelihood_and_states_equal_the_oracle(seed: int, count: int, size: int) -> None:
    distribution = distribution_of(seed, count, size)
    rows, noises, gaps, rates, start, spreads = distribution
    totals = np.random.default_rng(seed + 100).normal(size=count) * 3.0
    errors, gains, states = np.empty(count), np.empty((count, size)), np.empty((count, size))
    found = wave_filter.filter_waves(totals, rows, noises, gaps, rates, start, spreads, errors, gains)
    assert found == pytest.approx(waves.log_likelihood(totals, *distribution), rel=1e-9)
    without = wave_filter.filter_waves(totals, rows, noises, gaps, rates, start, spreads, errors, np.empty((0, size)))
    assert without == found
    wave_filter.smooth_waves(rows, errors, gains, gaps, rates, start, spreads, states)
    np.testing.assert_allclose(states, waves.states(totals, *distribution), rtol=1e-8, atol=1e-9)
