"""Numbers of values in ranges, and quantiles, with intervals, from square-wave reports."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import minimize

from fastdp import local
from fastdp.errors import MissingError, ParameterError
from fastdp.local.distribution import Distribution
from fastdp.local.reports import window_distribution
from fastdp.local.strict_bounds import StrictBounds
from tests.grid import exhaustive

#: None of them chose a constant.
SHAPES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "smooth": lambda rng, n: rng.beta(2, 5, n),
    "peaks": lambda rng, n: np.where(rng.random(n) < 0.5, rng.beta(50, 200, n), rng.beta(100, 20, n)),
    "one value": lambda rng, n: np.where(rng.random(n) < 0.5, 0.3, rng.random(n)),
    "mostly nothing": lambda rng, n: np.where(rng.random(n) < 0.9, 0.0, rng.random(n)),
    "few values": lambda rng, n: rng.integers(0, 8, n) / 8,
}


@pytest.mark.parametrize("seed", range(2))
def test_bounds_are_the_extremes_over_all_distributions(seed: int) -> None:
    """Of values on every step, by another solver; nothing is lost by the few steps that the bounds look at."""
    rng, window = np.random.default_rng(seed), window_distribution(1.5, 5, 14)
    values = rng.choice(15, 4000, p=rng.dirichlet(np.full(15, 0.3)))
    weights = np.array([[window.weight(x, j) / window.total for x in range(15)] for j in range(window.outputs)])
    outputs = [rng.multinomial(count, weights[:, x]) for x, count in enumerate(np.bincount(values, minlength=15))]
    counts, first, last, z = np.sum(outputs, axis=0), 4, 9, 1.96
    expected = 4000 * weights
    total = {"type": "eq", "fun": lambda p: p.sum() - 1, "jac": np.ones_like}

    def solved(aim: Callable, slope: Callable, start: np.ndarray, *constraints: dict) -> np.ndarray:
        options = {"maxiter": 2000, "ftol": 1e-10}
        ends, all_of_them = [(0, 1)] * 15, [total, *constraints]
        return minimize(aim, start, jac=slope, bounds=ends, constraints=all_of_them, options=options).x

    variances, best = counts + 1.0, np.full(15, 1 / 15)
    for _ in range(2):
        used = variances

        def misfit(p: np.ndarray, by: np.ndarray = used) -> float:
            return float(((expected @ p - counts) ** 2 / by).sum())

        def slope(p: np.ndarray, by: np.ndarray = used) -> np.ndarray:
            return 2 * expected.T @ ((expected @ p - counts) / by)

        best = solved(misfit, slope, best)
        variances = np.maximum(expected @ best, 1.0)
    allowed = misfit(best) + z**2
    close = {"type": "ineq", "fun": lambda p: allowed - misfit(p), "jac": lambda p: -slope(p)}

    def most(chosen: np.ndarray) -> float:
        return float(chosen @ solved(lambda p: -chosen @ p, lambda p: -chosen, best, close))

    steps = np.arange(15)
    inner, outer = (steps > first) & (steps < last), (steps >= first) & (steps <= last)
    bounds = StrictBounds(window, np.arange(window.outputs + 1), counts, first, last)
    low, high = bounds.share(first, last, z)
    assert low == pytest.approx(1.0 - most(1.0 - inner), abs=0.01)
    assert high == pytest.approx(most(outer.astype(float)), abs=0.01)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("n", [100, 3_000, *exhaustive(100_000)])
def test_true_numbers_and_quantiles_are_in_their_intervals(shape: str, log: bool, n: int) -> None:
    """More than nine of ten in each cell, by any bins and method."""
    rng, low = np.random.default_rng(n + log), 1 / 64 if log else 0.0
    mechanism = (local.LogSquareWave if log else local.SquareWave)(1.5, low, 1.0)
    starts, stops, shares = (
        np.array([0.0, 0.2, 0.25, 0.6, 0.7]),
        np.array([0.25, 0.5, 0.35, 1.0, 2.0]),
        (0.25, 0.5, 0.9),
    )
    held, widths = [], []
    for _ in range(4):
        values = np.clip(SHAPES[shape](rng, n), low, 1.0)
        collector = local.HistogramCollector(mechanism, bins=512)
        collector.add(mechanism.perturb(values, seed=int(rng.integers(2**31))))
        found = collector.estimate(bins=50, method="ems")
        true = [((values >= a) & ((values < b) | (b >= 1.0))).sum() for a, b in zip(starts, stops, strict=True)]
        (least, most), likely = found.interval(starts, stops), found.sum(starts, stops)
        assert ((least <= likely) & (likely <= most)).all()
        held += [*((least <= true) & (true <= most))]
        widths += [*(most - least)]
        for q in shares:
            first, last = found.quantile_interval(q)
            held.append(first <= np.quantile(values, q, method="inverted_cdf") + 1e-6 and first <= last)
            held.append(np.quantile(values, q, method="inverted_cdf") - 1e-6 <= last)
    assert np.mean(held) >= 0.95
    assert np.mean(widths) < (n if n < 3_000 else 0.6 * n)


def test_intervals_of_whole_domains_and_refusals() -> None:
    mechanism = local.SquareWave(2.0, -5.0, 5.0)
    collector = local.HistogramCollector(mechanism)
    collector.add(mechanism.perturb(np.linspace(-5, 5, 2_000), seed=1))
    found = collector.estimate()
    low, high = found.interval([-5.0, -9.0, 1.0], [5.0, 9.0, 1.0])
    assert (low[0], high[0]) == (low[1], high[1]) == pytest.approx((2_000, 2_000), abs=1)
    assert found.sum(-5.0, 5.0) == pytest.approx(2_000)
    assert low[2] == found.sum(1.0, 1.0) == 0.0
    narrow, wide = (np.subtract(*found.interval(0.0, 2.0, level)[::-1]) for level in (0.5, 0.99))
    assert narrow < wide
    assert found.quantile_interval(0.0)[0] == -5.0
    assert found.quantile_interval(1.0)[1] == 5.0
    for wrong in ((2.0, 1.0), (np.nan, 1.0)):
        with pytest.raises(ParameterError, match=r"^starts, stops: expected numbers, each start at most its stop"):
            found.interval(*wrong)
    with pytest.raises(ParameterError, match="confidence"):
        found.interval(0.0, 1.0, 1.0)
    with pytest.raises(MissingError, match="no reports"):
        Distribution(np.ones(1), 0.0, 1.0, "em", 1, True, 0.0, 1).interval(0.0, 1.0)


def test_a_narrow_range_at_a_value_that_many_have() -> None:
    """The normal quantile held it in two thirds of the runs: the fit has few values, and noise moves all of them."""
    mechanism, held = local.SquareWave(1.0, low=0.0, high=1.0), 0
    for seed in range(20):
        values = np.where(np.random.default_rng(seed).random(5000) < 0.3, 0.2, 0.81)
        found = mechanism.estimate(mechanism.perturb(values, seed=seed), bins=64)
        low, high = found.interval(0.195, 0.205)
        held += low <= (values == 0.2).sum() <= high
    assert held >= 18
