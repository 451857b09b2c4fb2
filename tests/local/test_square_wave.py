"""Distributions estimated from square-wave reports, and the thresholds of ToPL that are chosen from them."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fastdp import local
from fastdp.errors import DataError
from fastdp.local.distribution import Distribution, estimate
from fastdp.local.square_wave import prune_tail, range_errors
from fastdp.noise.key import Key
from fastdp.thresholds import SquareWave, ThresholdTask
from tests.oracles import square_wave_em as oracle


def best_threshold(*arguments) -> float:
    candidates, errors = range_errors(*arguments)
    return float(candidates[int(errors.argmin())])


def distribution(frequencies: Any, low: float = 0.0, high: float = 1.0) -> Distribution:
    shares = np.array(frequencies, np.float64)
    return Distribution(shares / shares.sum(), low, high, "em", 1, True, 0.0, 1)


def task(epsilon: float = 1.0, holdout: int = 20_000, bound: float = 100.0, **options: Any) -> ThresholdTask:
    facts = {"max_range": 2**20, "resolution": 2.0**-10} | options
    return ThresholdTask(epsilon, bound, holdout, **facts)


def counts_of(window: oracle.WindowDistribution, values: np.ndarray, seed: int = 1) -> np.ndarray:
    x = np.rint(values * window.steps).astype(np.int64)
    return np.bincount(oracle.report(window, x, np.random.default_rng(seed)), minlength=window.outputs)


# The distribution as an object.


def test_mean_quantile_tail_and_excess_by_hand() -> None:
    found = distribution([0.1, 0.0, 0.5, 0.4], low=10.0, high=18.0)
    assert found.edges.tolist() == [10.0, 12.0, 14.0, 16.0, 18.0]
    assert found.mean() == pytest.approx(0.1 * 11 + 0.5 * 15 + 0.4 * 17)
    assert [found.quantile(q) for q in (0.0, 0.05, 0.1, 0.35, 0.6, 0.8, 1.0)] == pytest.approx(
        [10.0, 11.0, 12.0, 15.0, 16.0, 17.0, 18.0]
    )
    assert found.tail(np.array([0.0, 10.0, 11.0, 13.0, 15.0, 18.0, 20.0])) == pytest.approx(
        [1.0, 1.0, 0.95, 0.9, 0.65, 0.0, 0.0]
    )
    assert found.tail(17.0) == pytest.approx(0.2)
    assert found.excess(10.0) == pytest.approx(found.mean() - 10.0)
    assert found.excess(4.0) == pytest.approx(found.mean() - 4.0)
    assert found.excess(np.array([14.0, 17.0, 18.0, 30.0])) == pytest.approx([0.5 + 0.4 * 3, 0.2 * 0.5, 0.0, 0.0])


# The estimate.


@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("method", ["em", "ems"])
def test_a_known_distribution_is_recovered(method: str, accelerate: bool) -> None:
    """Expected counts of a million reports of three levels: the shape comes back; from other counts it does not."""
    window, bins = oracle.square_wave(2.0), 24
    truth = np.repeat([0.02, 0.08, 0.025], 8)
    truth /= truth.sum()
    dense = oracle.matrix(window, bins, bins)
    counts = np.rint(dense @ truth * 10**6).astype(np.int64)
    found = estimate(window, 2.0, counts, bins=bins, method=method, accelerate=accelerate, tolerance=1e-4)
    distance = np.abs(np.cumsum(found.frequencies) - np.cumsum(truth)).max()
    assert distance < (0.02 if method == "em" else 0.05)
    other = estimate(window, 2.0, np.roll(counts, 3), bins=bins, method=method, accelerate=accelerate)
    assert np.abs(np.cumsum(other.frequencies) - np.cumsum(truth)).max() > 0.1


def test_outputs_are_added_up_to_cells_exactly() -> None:
    window = oracle.square_wave(1.0)
    fine = counts_of(window, np.random.default_rng(7).random(5000))
    cells = np.bincount(oracle.cells_of(window, np.arange(window.outputs), 100), weights=fine, minlength=100)
    whole = estimate(window, 1.0, fine, bins=100)
    parts = estimate(window, 1.0, cells.astype(np.int64), bins=100)
    assert (whole.frequencies == parts.frequencies).all()
    assert whole.log_likelihood == parts.log_likelihood


def test_tolerance_and_max_iterations_are_obeyed() -> None:
    window = oracle.square_wave(1.0)
    counts = counts_of(window, np.random.default_rng(7).random(5000))
    short = estimate(window, 1.0, counts, bins=64, accelerate=False, max_iterations=7)
    assert (short.iterations, short.converged) == (7, False)
    usual = estimate(window, 1.0, counts, bins=64, accelerate=False)
    named = estimate(window, 1.0, counts, bins=64, accelerate=False, tolerance=1e-3 * math.e)
    finer = estimate(window, 1.0, counts, bins=64, accelerate=False, tolerance=1e-4)
    assert usual.iterations == named.iterations < finer.iterations
    assert usual.log_likelihood < finer.log_likelihood
    smooth = estimate(window, 1.0, counts, bins=64, method="ems")
    assert smooth.iterations == estimate(window, 9.0, counts, bins=64, method="ems", tolerance=1e-3).iterations


@pytest.mark.parametrize(
    "counts", [[], [[1, 2]], [0.5, 1.0], ["a"], [3, -1, 2], [0, 0, 0], [True], np.ones(2 * 2**21, np.int64)]
)
def test_counts_that_are_none_are_refused(counts: Any) -> None:
    with pytest.raises(DataError, match=r"^output_counts.*[:;] expected"):
        estimate(oracle.square_wave(1.0), 1.0, counts)


# Pruning.


def pruned(frequencies: list[float]) -> list[float]:
    found = distribution(frequencies)
    result = prune_tail(found)
    assert (result is found) == (result.frequencies is found.frequencies)
    return result.frequencies.tolist()


def test_the_tail_ends_at_the_first_five_small_shares_after_the_mode() -> None:
    s = 0.9e-4
    body = [0.3, 0.5, 0.1999]
    assert pruned([*body, s, s, s, s, s, 0.01]) == pytest.approx([x / sum(body) for x in body] + [0.0] * 6)
    # The last of the run may be the last of all; four are no run; a share of 0.01 % itself is not small.
    assert pruned([*body, s, s, s, s, s])[3:] == [0.0] * 5
    assert pruned([*body, s, s, s, s])[-1] > 0.0
    assert pruned([*body, s, s, s, s, 1.01e-4, s, s])[-1] > 0.0
    # The first of two runs counts; small shares before it stay.
    assert np.flatnonzero(pruned([*body, s, s, 0.01, *[s] * 5, 0.01, *[s] * 5])).tolist() == [0, 1, 2, 3, 4, 5]


def test_runs_before_the_mode_do_not_count() -> None:
    left = [0.0] * 10 + [0.2, 0.5, 0.3]
    assert pruned(left) == pytest.approx(left)
    assert pruned([*left, *[0.0] * 6])[10:13] == pytest.approx([0.2, 0.5, 0.3])
    # A mode at the end has nothing after it, however much before it is empty.
    assert pruned([0.4, *[0.0] * 20, 0.6]) == pytest.approx([0.4, *[0.0] * 20, 0.6])
    assert pruned([1.0]) == [1.0]
    assert pruned([1.0, *[0.0] * 4]) == [1.0, *[0.0] * 4]


def test_pruning_renormalises_by_division() -> None:
    before = distribution([0.2, 0.5, 0.2, *[0.0] * 5, 0.1])
    after = prune_tail(before)
    np.testing.assert_allclose(after.frequencies[:3], before.frequencies[:3] / 0.9)
    assert after.frequencies.sum() == pytest.approx(1.0)
    assert after.method == "em, tail pruned"
    assert not after.frequencies.flags.writeable
    assert before.frequencies[-1] > 0.0


# The objective.


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_objective_by_brute_force(epsilon: float) -> None:
    """Sums over the midpoints above each candidate, as in Eq. 8, in Fractions."""
    bins, bound, r = 40, 20, 1000
    weights = [(7 * i * i + 3) % 11 + (60 if i < 5 else 0) for i in range(bins)]
    shares = [Fraction(w, sum(weights)) for w in weights]
    middles = [Fraction(2 * i + 1, 2 * bins) * bound for i in range(bins)]
    variance = Fraction(local.Hybrid(epsilon).worst_variance)
    expected = []
    for j in range(1, bins + 1):
        theta = Fraction(j * bound, bins)
        bias = sum(f * (t - theta) for f, t in zip(shares, middles, strict=True) if t > theta)
        expected.append(Fraction(r, 3) * variance * (theta / 2) ** 2 + Fraction(r**2, 6) * bias**2)
    found = distribution([float(f) for f in shares], high=float(bound))
    candidates, errors = range_errors(found, r, epsilon)
    np.testing.assert_allclose(candidates, [j * bound / bins for j in range(1, bins + 1)])
    np.testing.assert_allclose(errors, np.array(expected, float), rtol=1e-11)
    best = min(range(bins), key=expected.__getitem__)
    assert best_threshold(found, r, epsilon) == pytest.approx((best + 1) * bound / bins)


def test_doubt_multiplies_the_squared_bias() -> None:
    found = distribution(np.exp(-np.arange(256) / 20.0), high=100.0)
    candidates, once = range_errors(found, 2**20, 1.0)
    _, more = range_errors(found, 2**20, 1.0, 5.0)
    bias = 2.0**40 / 6.0 * found.excess(candidates) ** 2
    np.testing.assert_allclose(more - once, 4.0 * bias, rtol=1e-9, atol=1e-9 * once.max())
    assert best_threshold(found, 2**20, 1.0, 5.0) > best_threshold(found, 2**20, 1.0)


def test_the_concave_estimate_is_doubted_and_no_other() -> None:
    found = replace(distribution(np.exp(-np.arange(56) / 6.0), high=100.0), low=100.0 / 2**14, scale="logarithmic")
    for method, doubt in (("concave", 5.0), ("sw-w", 1.0)):
        rule = SquareWave(scale="logarithmic", method=method)
        expected = best_threshold(found, 2**20, 0.5, doubt)
        assert rule.choose_from(found, task(epsilon=0.5)) == expected
    assert best_threshold(found, 2**20, 0.5) < best_threshold(found, 2**20, 0.5, 5.0)


# The rule.


def theta_of(rule: SquareWave, values: np.ndarray, facts: ThresholdTask, seed: int | Key = 1) -> float:
    chooser = rule.start(facts)
    chooser.observe(values)
    return chooser.choose(seed if isinstance(seed, Key) else Key.from_seed(seed))


@pytest.mark.parametrize("method", ["sw-w", "sw"])
def test_theta_is_that_of_the_parts(method: Any) -> None:
    """Client, counts, estimate, pruning and objective, put together here by hand."""
    values = np.round(np.random.default_rng(8).gamma(2.0, 5.0, 20_000))
    rule = SquareWave(report_epsilon=2.0, method=method, publish_epsilon=0.5, bins=256)
    client = local.SquareWave(2.0, low=0.0, high=100.0)
    reports = client.perturb(np.clip(values, 0.0, 100.0), key=Key.from_seed(1), start=0)
    counts, kind = np.bincount(reports, minlength=client.distribution.outputs), "em" if method == "sw-w" else "ems"
    found = estimate(client.distribution, 2.0, counts, bins=256, method=kind, high=100.0)
    expected = best_threshold(prune_tail(found) if method == "sw-w" else found, 2**20, 0.5)
    assert theta_of(rule, values, task()) == pytest.approx(expected, rel=1e-12)
    assert theta_of(rule, values, task(), seed=2) != theta_of(rule, values, task(), seed=3) or method == "sw-w"


@pytest.mark.parametrize("method", ["sw-w", "sw"])
@pytest.mark.parametrize("factor", [2.0**-20, 8.0, 2.0**30])
@pytest.mark.usefixtures("one_key_for_domains")
def test_theta_scales_with_values_and_bound(method: Any, factor: float) -> None:
    values = np.round(np.random.default_rng(9).gamma(2.0, 5.0, 20_000))
    rule = SquareWave(method=method)
    key = Key.from_seed(1)
    plain = theta_of(rule, values, task(), key)
    scaled = theta_of(rule, values * factor, task(bound=100.0 * factor, resolution=2.0**-10 * factor), key)
    assert scaled == pytest.approx(plain * factor, rel=1e-12)


def test_budgets_default_to_the_tasks() -> None:
    values = np.round(np.random.default_rng(10).gamma(2.0, 5.0, 20_000))
    theta = theta_of(SquareWave(), values, task(2.0))
    assert theta == theta_of(SquareWave(2.0, publish_epsilon=2.0), values, task(0.3))
    assert theta_of(SquareWave(publish_epsilon=1e-3), values, task(2.0)) < theta
    assert theta_of(SquareWave(), values, task(2.0, publish_epsilon=0.5)) == theta_of(
        SquareWave(2.0, publish_epsilon=0.5), values, task(0.3)
    )
    assert SquareWave().guarantee(task(0.7)).epsilon == 0.7
    guarantee = SquareWave(2.0).guarantee(task(0.7))
    stated = guarantee.epsilon, guarantee.delta, guarantee.model, guarantee.arithmetic
    assert stated == (2.0, 0.0, "central", "exact")
    assert "one exact square-wave report" in guarantee.derivation[0]


# The published figures.
