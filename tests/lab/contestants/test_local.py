"""The local model: estimates are unbiased, err as the papers say, and no person reports twice in a window."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fastdp_lab.contestants import local
from fastdp_lab.contestants.local import LOCAL, Population

KEY = bytes(range(32))


def levels(steps: int, persons: int) -> np.ndarray:
    """Values around levels that change every ten steps."""
    rng = np.random.default_rng(1)
    level = np.repeat(rng.integers(20, 80, -(-steps // 10)), 10)[:steps]
    return np.clip(level[:, None] + rng.integers(-10, 11, (steps, persons)), 0, 100)


@pytest.mark.parametrize("oracle", ["grr", "oue", "olh"])
def test_a_report_of_two_cells_differs_by_the_factor_that_epsilon_allows(oracle):
    epsilon, cells = 1.5, 8
    p, q = local.probabilities(oracle, epsilon, cells)
    # Two values' supports change: one falls, one rises; GRR reports one cell.  OLH reports a value of the hash.
    loss = p / q if oracle == "grr" else p * (1 - q) / (q * (1 - p))
    if oracle == "olh":
        hashes = round(1 / q)
        loss = p / ((1 - p) / (hashes - 1))
    assert math.log(loss) == pytest.approx(epsilon)


@pytest.mark.parametrize("oracle", ["grr", "oue", "olh"])
def test_frequencies_are_unbiased_with_the_papers_variance(oracle):
    counts, epsilon = np.array([500, 300, 200, 0]), 1.0
    rng = np.random.default_rng(2)
    found = np.stack([local.frequencies(counts, epsilon, oracle, rng) for _ in range(2_000)])
    p, q = local.probabilities(oracle, epsilon, 4)
    np.testing.assert_allclose(found.mean(0), counts / 1_000, atol=0.01)
    shares = counts / 1_000
    expected = (shares * p * (1 - p) + (1 - shares) * q * (1 - q)) / (1_000 * (p - q) ** 2)
    np.testing.assert_allclose(found.var(0), expected, rtol=0.15)


def test_the_better_oracle_is_the_one_of_smaller_variance_and_its_variance_is_known():
    for epsilon, cells in ((0.5, 16), (3.0, 16), (1.0, 4)):
        kinds = {}
        for oracle in ("grr", "oue"):
            p, q = local.probabilities(oracle, epsilon, cells)
            kinds[oracle] = q * (1 - q) / (p - q) ** 2
        assert local.better(epsilon, cells) == min(kinds, key=kinds.get)
    # Ren et al. 2022, equation 2: GRR, with the term of the frequency's mean.
    e, d, n = math.exp(3.0), 16, 100
    assert local.variance(3.0, d, n) == pytest.approx((d - 2 + e) / (n * (e - 1) ** 2) + (d - 2) / (d * n * (e - 1)))
    e = math.exp(0.5)
    assert local.variance(0.5, d, n) == pytest.approx(4 * e / (n * (e - 1) ** 2) + 1 / (d * n))


def test_persons_report_in_turn_so_that_a_window_has_each_at_most_once():
    people = Population(np.arange(12)[None], 11, np.random.default_rng(3))
    asked = []
    for size in (5, 4, 3, 6):
        begin = people.turn
        people.ask(0, 1.0, size)
        asked.append(people.order[(begin + np.arange(size)) % 12].tolist())
    assert sorted(asked[0] + asked[1] + asked[2]) == list(range(12))
    assert asked[3] == people.order[:6].tolist()


@pytest.mark.parametrize("absorb", [False, True])
@pytest.mark.parametrize("persons", [False, True])
def test_adaptive_schemes_release_where_levels_change(absorb, persons):
    values = levels(60, 4_000)
    epsilon = 3.0 if persons else 20.0
    released = local.adaptive(values, epsilon, KEY, bound=100, w=5, absorb=absorb, persons=persons)
    changes = np.flatnonzero(np.diff(released)) + 1
    assert 4 <= changes.size <= 30
    assert np.abs(released - values.mean(1)).mean() < 4


@pytest.mark.parametrize("mechanism", LOCAL, ids=lambda each: each.name)
def test_each_follows_levels_at_a_large_epsilon(mechanism):
    values = levels(60, 2_000)
    released = mechanism.run(values, 90.0, KEY, bound=100, w=3, holdout=4)
    assert np.abs(released - values.mean(1))[4:].mean() < 8
