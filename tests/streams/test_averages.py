"""Moving averages from PAK's running sums: against the oracle, any chunking, error variance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp.errors import ParameterError
from fastdp.thresholds import Fixed
from tests.noise_values import bound_key
from tests.oracles import moving_average as oracle

LENGTH, HOLDOUT = 400, 150


def stream(n: int = LENGTH) -> np.ndarray:
    return np.floor(np.random.default_rng(103).gamma(2.0, 6.0, n) * 4) / 4


def make(**options) -> fastdp.PAK:
    settings = {"epsilon": 1.0, "delta": 1e-6, "bound": 100, "length": LENGTH, "holdout": HOLDOUT, "seed": 6}
    return fastdp.PAK(**{**settings, **options})


@pytest.mark.parametrize("lag_sums", [False, True])
@pytest.mark.parametrize("average", ["all", 1, 2, 7, 64, 149, 150, 151, 250, 399, 400])
def test_averages_equal_the_oracles(average: int | str, lag_sums: bool) -> None:
    values = stream()
    sums = make(lag_sums=lag_sums, seed=None, key=bound_key(6)).publish(values)
    by_position = {LENGTH - sums.size + 1 + i: s for i, s in enumerate(sums.tolist())}
    expected = oracle.averages(by_position, None if average == "all" else average)
    publisher = make(lag_sums=lag_sums, average=average, seed=None, key=bound_key(6))
    assert np.allclose(publisher.publish(values), expected, rtol=1e-13, atol=1e-12)
    assert publisher.running_sum == sums[-1]


@given(
    cuts=st.lists(st.integers(0, LENGTH), max_size=8),
    average=st.one_of(st.just("all"), st.integers(1, LENGTH)),
    lag_sums=st.booleans(),
)
def test_any_chunking_gives_the_same_averages(cuts: list[int], average: int | str, lag_sums: bool) -> None:
    values, options = stream(), {"average": average, "lag_sums": lag_sums}
    publisher = make(**options)
    parts = [publisher.publish(part) for part in np.split(values, sorted(cuts))]
    assert np.array_equal(np.concatenate(parts), make(**options).publish(values))


def test_averages_one_value_at_a_time_keep_no_more_than_the_window() -> None:
    publisher = make(average=5)
    parts = [publisher.publish(stream()[i : i + 1]) for i in range(LENGTH)]
    assert np.array_equal(np.concatenate(parts), make(average=5).publish(stream()))
    assert publisher._state.recent.size == 5


@pytest.mark.statistical
def test_shared_nodes_cancel() -> None:
    """The variance over w^2 is that of the nodes in one of the two sums only; the bounds in PAK's notes hold."""
    length, window, theta, epsilon = 64, 4, 10.0, 1.0
    counts = np.array([oracle.nodes_in_the_difference(t, window) for t in range(window + 1, length + 1)])
    assert counts.max() <= 2 * 6 + 1
    assert counts.mean() <= np.log2(window) + 2
    errors = []
    for seed in range(3000):
        publisher = make(threshold=Fixed(theta), length=length, average=window, epsilon=epsilon, seed=seed)
        errors.append(publisher.publish(np.zeros(length))[window:])
    node = 2.0 * (theta * 7 / epsilon) ** 2
    measured = np.var(errors, axis=0) * window**2 / node
    # Laplace noise: a variance from 3000 runs is good to sqrt(5 / 3000) = 4 %; 60 of them, so 5 of those.
    assert np.all(np.abs(measured / counts - 1.0) < 0.21)
    independent = np.array([t.bit_count() + (t - window).bit_count() for t in range(window + 1, length + 1)])
    assert np.abs(measured / independent - 1.0).max() > 0.5


@pytest.mark.parametrize("window", [1, 3, 8, 100, 512])
def test_nodes_left_in_a_difference_stay_within_the_bounds(window: int) -> None:
    for length in (513, 1000, 1024, 4096):
        counts = [oracle.nodes_in_the_difference(t, window) for t in range(window + 1, length + 1)]
        assert max(counts) <= 2 * (length.bit_length() - 1) + 1
        assert np.mean(counts) <= np.log2(window) + 2


def test_averages_cost_no_privacy() -> None:
    assert make(average=9).guarantee == make().guarantee


@pytest.mark.parametrize("average", [0, -1, 401, 2.5, True, "mean", "ALL"])
def test_bad_windows_are_named(average: object) -> None:
    with pytest.raises(ParameterError, match="average"):
        make(average=average)
