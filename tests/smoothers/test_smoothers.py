"""Smoothers against the oracle, cut anywhere, and through a publisher."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp.smoothers import Exponential, Mean, Median, MovingAverage, Recent
from fastdp.smoothers.smoothers import BINS
from fastdp_kernels.streams import windows
from tests.noise_values import bound_key
from tests.oracles import smoothers as oracle

CASES = [
    (Recent(), lambda first, means: oracle.recent(first, means)),
    (Mean(), lambda first, means: oracle.mean(first, means)),
    (Median(), lambda first, means: oracle.median_of_bins(first, means, BINS)),
    (MovingAverage(1), lambda first, means: oracle.moving_average(first, means, 1)),
    (MovingAverage(4), lambda first, means: oracle.moving_average(first, means, 4)),
    (MovingAverage(50), lambda first, means: oracle.moving_average(first, means, 50)),
    (Exponential(0.3), lambda first, means: oracle.exponential(first, means, 0.3)),
    (Exponential(1.0), lambda first, means: oracle.recent(first, means)),
]


@pytest.mark.parametrize(("smoother", "naive"), CASES, ids=lambda case: repr(case)[:24])
@given(means=st.lists(st.floats(-40, 60), max_size=60), cuts=st.lists(st.integers(0, 60), max_size=5))
def test_equals_the_oracle_however_cut(smoother, naive, means: list[float], cuts: list[int]) -> None:
    first = 10.0
    whole = smoother.step(smoother.start(first, 2 * first), np.array(means))[1]
    assert whole == pytest.approx(naive(first, means), abs=1e-9)
    state, parts = smoother.start(first, 2 * first), []
    for part in np.split(np.array(means), sorted(cuts)):
        before = state.copy()
        following, predictions = smoother.step(state, part.copy())
        assert np.array_equal(state, before), "a step is a pure function"
        state = following
        parts.append(predictions)
    assert np.array_equal(np.concatenate(parts), whole), "cutting changes nothing, to the last bit"


def test_median_is_near_the_exact_one() -> None:
    means = np.random.default_rng(81).laplace(9.0, 4.0, 3000)
    theta = 20.0
    _, ours = Median().step(Median().start(theta / 2, theta), means)
    exact = np.array([np.median(means[: t + 1]) for t in range(means.size)])
    assert np.abs(ours - exact).max() <= 3 * theta / BINS
    assert Median().start(theta / 2, theta).nbytes < 200_000


def test_the_median_stays_in_its_bins_whatever_they_hold() -> None:
    for wrong, place in itertools.product((np.nan, np.inf, -np.inf, -1.0, -1e300, 1e300), (0, 8, 15, slice(None))):
        counts, out = np.zeros(16), np.empty(200)
        counts[place] = wrong
        with np.errstate(all="ignore"):
            windows.follow_median(counts, -1.0, 0.5, np.linspace(-3.0, 9.0, 200), out)
        assert out.min() >= -1.0
        assert out.max() <= -1.0 + 16 * 0.5


@pytest.mark.parametrize("name", ["recent", "mean", "median", "moving", "exponential"])
def test_whatever_is_predicted_the_last_value_of_a_block_makes_its_sum_right(name: str) -> None:
    values = np.random.default_rng(82).gamma(2.0, 8.0, 4000)
    totals, reference = (
        make_totals(
            fastdp.ToPS(0.5, 200, 500, 1024, fan_out=4, prune=2, smoother=each, key=bound_key(3)).release(values)
        )
        for each in (name, "recent")
    )
    assert totals == pytest.approx(reference)


def make_totals(release: fastdp.Release) -> np.ndarray:
    return release.values[: len(release) // 16 * 16].reshape(-1, 16).sum(axis=1)


def test_halves_of_blocks_are_no_blocks_though_they_add_up() -> None:
    median = Median()
    state = median.start(5.0, 10.0)
    state[2:4] = 1.0, 2.0
    assert median.is_state(state, 10.0, 3)
    assert not median.is_state(state, 10.0, 2)
    state[2:4] = 1.5, 1.5
    assert not median.is_state(state, 10.0, 3)
