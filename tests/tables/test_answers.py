"""Answers of a table: sums, means, quantiles, their errors and intervals, and the excess beyond a clip."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fastdp
from fastdp.errors import DataError, ParameterError
from fastdp.guarantee import zcdp_loss
from fastdp.releases.intervals import DrawnNoise, laplace_sum_quantile, laplace_variance
from fastdp.tables import quantiles
from fastdp.tables.answers import Answers
from fastdp.tables.quantiles import BINS, FAN_OUT, Bins, Histogram, Parts
from fastdp.tables.released import RowNumbers
from fastdp.tables.sizes import Number
from fastdp.tables.statistics import Estimate, dispersion
from tests.tables import flat
from tests.tables.released import STEP, table


def test_windows_are_named_by_their_times():
    frame = pd.DataFrame({"at": pd.date_range("2026-03-27", periods=200, freq="h", tz="Europe/Paris"), "v": 1.0})
    t = fastdp.totals(frame, "v", fastdp.Time("at", "1d"), epsilon=1.0, bound=1.0, seed=1)
    # A day of 23 hours among them.
    aware = pd.Timestamp("2026-03-27T23:00Z"), "2026-03-31T00:00+02:00"
    for ends in (("2026-03-28", "2026-03-31"), aware, (1, "2026-03-31")):
        for ask in (t.sum, t.std_error, t.interval):
            np.testing.assert_array_equal(ask(*ends), ask(1, 4))
    np.testing.assert_array_equal(t.sum(["2026-03-27", "2026-03-30"], "2026-04-05"), t.sum([0, 3], 9))
    for stop, near in (("2026-03-28T01:00", "2026-03-28 or 2026-03-29"), ("2026-05-01", "2026-04-05")):
        with pytest.raises(ParameterError, match=f"stops = '{stop}': expected .* such as {near}$"):
            t.sum("2026-03-27", stop)
    with pytest.raises(ParameterError, match="expected whole numbers, because there are no times"):
        fastdp.totals(frame, "v", epsilon=1.0, bound=1.0, seed=1).sum("2026-03-27", 1)


def test_totals_are_the_noisy_sums_with_the_exact_law():
    true = np.arange(60.0).reshape(20, 3)
    t = table("totals", true, scale=4.0, keys={"k": ["a", "b", "c"]})
    values = flat.values(t.released, "total")
    np.testing.assert_array_equal(t.sum(np.arange(20), np.arange(1, 21)), values)
    np.testing.assert_allclose(t.sum(2, 9), values[2:9].sum(axis=0, keepdims=True))
    scale = Fraction(4) / Fraction(STEP)
    np.testing.assert_allclose(
        t.std_error(0, [1, 7])[:, 0], np.sqrt([1, 7] * np.array(laplace_variance(scale))) * STEP
    )
    for m in (1, 2, 20):
        low, high = t.interval(0, m)
        half = laplace_sum_quantile(scale, m, 0.95) * STEP
        np.testing.assert_allclose((low + high) / 2.0, t.sum(0, m))
        np.testing.assert_allclose((high - low) / 2.0, half)
    assert np.all(t.interval(0, 1, 0.5)[0] > t.interval(0, 1, 0.99)[0])


@pytest.mark.parametrize(
    ("starts", "stops"), [(-1, 2), (0, 6), (3, 3), ([0, 1], [1, 2, 3]), (0.5, 1), ("a", 2), ([0, 4], [1, 4])]
)
def test_windows_that_are_not_there(starts, stops):
    t = table("counts", np.full((5, 1), 7.0))
    for ask in (t.sum, t.std_error, t.interval):
        with pytest.raises(ParameterError, match=r"starts|stops"):
            ask(starts, stops)
    with pytest.raises(ParameterError, match=r"mean of a table of count: expected sum"):
        t.mean(0, 1)
    with pytest.raises(ParameterError, match="confidence"):
        t.interval(0, 1, 1.0)
    assert (t.sum(0, 1).shape, t.std_error([0, 1], 5).shape, t.interval([0, 1, 2], 5)[0].shape) == ((1,), (2,), (3,))


@pytest.mark.parametrize("scale", [0.3, 1.0, 20.0])
@pytest.mark.parametrize("m", [1, 3, 24])
@pytest.mark.parametrize("confidence", [0.5, 0.99])
def test_intervals_of_counts_hold_the_true_count(scale, m, confidence):
    t = table("counts", np.full((m, 4000), 5.0), scale=scale, keys={"k": list(range(4000))})
    low, high = t.interval(0, m, confidence)
    covered = np.mean((low <= 5.0 * m) & (5.0 * m <= high))
    # Three standard deviations of 4,000 draws below the nominal share.
    assert covered >= confidence - 3.0 * np.sqrt(confidence * (1.0 - confidence) / 4000)
    revised_low, revised_high = t.interval(0, m, 0.95, revised=True)
    assert np.mean((revised_low <= 5.0 * m) & (5.0 * m <= revised_high)) >= 0.94


@pytest.mark.parametrize("rows", [2.0, 30.0, 5000.0])
@pytest.mark.parametrize("mean", [0.0, 5.0, 9.5])
@pytest.mark.parametrize("m", [1, 6])
@pytest.mark.parametrize("confidence", [0.6, 0.95])
def test_intervals_of_means_hold_the_true_mean(rows, mean, m, confidence):
    counts = np.full((m, 2000), rows)
    t = table("means", ((mean - 5.0) * counts, counts), scale=4.0, keys={"k": list(range(2000))})
    low, high = t.interval(0, m, confidence)
    assert np.mean((low <= mean + 1e-9) & (mean - 1e-9 <= high)) >= confidence - 0.02
    assert np.all((low >= 0.0) & (high <= 10.0) & (low <= t.mean(0, m)) & (t.mean(0, m) <= high))
    if rows * m >= 5000.0:
        assert np.all(high - low < 0.2)
    if rows * m <= 2.0:
        assert np.all(t.std_error(0, m) <= 10.0)


def test_keys_together_carry_the_noise_of_each():
    t = table("counts", np.full((6, 5), 7.0), scale=3.0, keys={"k": list(range(5))})
    answers, count = Answers(t.released, 0.9), t.released.statistics[0]
    start, stop = np.array([1]), np.array([3])
    found = answers.about(count, start, stop, depth=0)
    np.testing.assert_array_equal(found.estimate, [[t.released.cells("count")[1:3].sum()]])
    np.testing.assert_allclose(found.high - found.estimate, laplace_sum_quantile(Fraction(3), 10, 0.9))
    np.testing.assert_allclose(found.std_error, np.sqrt(10.0 * laplace_variance(3.0)))
    revised = [answers.about(count, start, stop, revised=True, depth=which) for which in (0, 1)]
    np.testing.assert_allclose(revised[0].estimate, np.sum(revised[1].estimate, axis=1, keepdims=True))
    assert revised[0].std_error[0, 0] <= found.std_error[0, 0] * 1.01


def test_sums_of_several_levels_have_the_longest_tail_of_one_draw():
    """Weights may leave one draw alone, whose tail is longer than the normal one."""
    frame = pd.DataFrame({"a": np.repeat(range(8), 60), "b": np.tile(range(12), 40)})
    listed = {"a": list(range(8)), "b": list(range(12))}
    made = fastdp.aggregate(frame, {"*": "count"}, by=["a", "b"], keys=listed, epsilon=1.0, seed=1, levels=True)
    low, high = made.interval(0, 1, 1.0 - 1e-6)
    draw = made.released.sums[0].noise[0]
    one = float(draw.quantiles(np.ones(1, np.int64), 1.0 - 1e-6)[0]) - 1.0
    assert len(made.released.sums) > 1
    assert np.all((high - low) / 2.0 >= made.std_error(0, 1) * one / np.sqrt(draw.variance))


@pytest.mark.parametrize("centre", [-3.0, 0.0, 3.0])
def test_the_error_of_a_variance_is_its_gradients(centre):
    """Off centre, too: finite differences of the estimate in each of its three sums."""
    values = np.random.default_rng(1).normal(5, 1, 1000)
    true = [np.sum((values - centre) ** 2), np.sum(values), 1000.0]

    def part(value, deviation):
        return Estimate(*(np.array([[x]]) for x in (value, deviation**2, value - deviation, value + deviation)))

    def estimate(sums):
        return dispersion(*(part(x, 0.0) for x in sums), centre, (-20.0, 20.0), 1.96).estimate[0, 0]

    for i in range(3):
        sides = [estimate([x + side * 1e-3 * (j == i) for j, x in enumerate(true)]) for side in (-1, 1)]
        moved = [part(x, 2.0 * (j == i)) for j, x in enumerate(true)]
        found = dispersion(*moved, centre, (-20.0, 20.0), 1.96).std_error[0, 0]
        assert found == pytest.approx(2.0 * abs(sides[1] - sides[0]) / 2e-3, rel=1e-3, abs=1e-6)


def test_no_windows_and_no_keys():
    for true in (np.zeros((0, 2)), np.zeros((4, 0))):
        t = table("totals", true, keys={"k": ["a", "b"][: true.shape[1]]})
        assert t.frame.num_rows == 0
        assert "Totals of" in repr(t)
        assert t._repr_html_()
    means = table("means", (np.zeros((0, 1)), np.zeros((0, 1))))
    assert means.frame.num_rows == 0


def test_means_with_a_count_that_is_not_clearly_positive_say_nothing():
    for rows, scale, least in ((0.0, 30.0, 0.9), (-500.0, 2.0, 1.0)):
        counts = np.full((3, 50), rows)
        t = table("means", (np.full((3, 50), 40.0), counts), scale=scale, keys={"k": list(range(50))})
        low, high = t.interval(0, 3)
        assert ((low[0] == 0.0) & (high[0] == 10.0)).mean() >= least


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 2.0])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_the_ends_of_an_interval_of_counts_belong_to_it(epsilon, confidence):
    """Both are whole numbers: an end moved inwards by a rounding loses all its probability."""
    t = table("counts", np.full((30, 1), 7.0), scale=1.0 / epsilon)
    scale = flat.noise(t.released, "count").scale
    for m in (1, 2, 5, 24):
        half = laplace_sum_quantile(scale, m, confidence)
        for depth in (None, 0):
            answer = Answers(t.released, confidence).about(
                t.released.statistics[0], np.zeros(1, np.int64), np.full(1, m), depth=depth
            )
            assert answer.low.tolist() == (answer.estimate - half).tolist()
            assert answer.high.tolist() == (answer.estimate + half).tolist()


def test_the_standard_error_of_a_mean_has_both_errors():
    rng = np.random.default_rng(8)
    counts, deviations = np.full((6, 2), 400.0), np.full((6, 2), 1500.0)
    released = table("means", (deviations, counts), rng=rng, keys={"k": ["a", "b"]})
    own = released.released
    count, deviation = flat.values(own, "count"), flat.values(own, "deviation")
    resolution = {"count": 1.0, "deviation": STEP}
    variances = {name: flat.noise(own, name).variance * each**2 for name, each in resolution.items()}
    mean = deviation / count
    wanted = np.sqrt(variances["deviation"] + mean**2 * variances["count"]) / count
    np.testing.assert_allclose(released.std_error(np.arange(6), np.arange(1, 7)), wanted)
    assert (np.abs(mean) > 3.0).all()


@pytest.mark.parametrize("kind", ["counts", "totals"])
def test_an_estimate_lies_in_its_interval(kind):
    """Noisy sums below zero too, scaled up for dropped rows."""
    rows = RowNumbers(Number(1e4, 1.0), Number(2e4, 1.0))
    t = table(kind, np.zeros((2000, 1)), rows=rows, who="person")
    starts = np.arange(2000)
    for revised in (False, True):
        estimate = t.estimate(starts, starts + 1, revised=revised)
        low, high = t.interval(starts, starts + 1, revised=revised)
        assert (low <= estimate).all()
        # Of persons with any number of rows.
        assert np.isnan(high).all()
    assert (t.released.measured[0].steps < 0).any()


def test_a_number_of_distinct_entries_lies_in_its_interval():
    time = fastdp.Time("at", "1h", start="2024-05-01")
    windows = fastdp.Windows({"v": "nunique"}, time, epsilon=0.5, seed=1)
    t = windows.advance("2024-05-11")
    starts = np.arange(len(t))
    estimate, (low, high) = t.estimate(starts, starts + 1), t.interval(starts, starts + 1)
    assert (low <= estimate).all()
    assert (estimate <= high).all()


# Quantiles of cells.

ENDS = [(0.0, 10.0), (-5.0, 20.0), (-3.0, 0.0), (2.0, 3.0), (-4.0, -1.0)]


def histogram(
    values: np.ndarray, ends: tuple[float, float], epsilon: float, seed: int, ranks: tuple[float, ...]
) -> Histogram:
    """Released numbers of one cell a row of `values`, float64[W, n], with bins by the table's rows."""
    bins, counts = Bins(*ends), np.zeros((len(values), 1, BINS), np.int64)
    windows = np.repeat(np.arange(len(values)), values.shape[1])
    bins.add((windows, np.zeros(values.size, np.int32), values.ravel()), 0, counts)
    fine, rng = counts.transpose(2, 0, 1).copy(), np.random.default_rng(seed)

    def noisy(exact: np.ndarray, scale: float) -> np.ndarray:
        return exact + np.rint(rng.laplace(0.0, scale, exact.shape)).astype(np.int64)

    tree = noisy(quantiles.nodes_of(fine), 2 / (0.08 * epsilon))
    noise = DrawnNoise(1 / Fraction(0.46 * epsilon))
    parts = Parts.of_table(tree, len(values), noise)
    cells = noisy(parts.counts(fine), float(noise.scale))
    places = quantiles.places_of(parts, cells, ranks, noise)
    scale = quantiles.excess_sensitivity(ranks) / Fraction(0.46 * epsilon)
    excess = noisy(quantiles.excess_at(fine, places, ranks), float(scale))
    rest = ranks, places, excess, DrawnNoise(scale), np.ones(1, np.int64), lambda cells: cells
    return Histogram(bins, parts, cells, noise, *rest)


@pytest.mark.parametrize("ends", ENDS)
def test_bins_cover_the_range_and_hold_their_values(ends: tuple[float, float]) -> None:
    bins = Bins(*ends)
    borders = bins.borders
    assert borders.size == BINS + 1
    assert (borders[0], borders[-1]) == ends
    assert (np.diff(borders) > 0.0).all()
    values = np.concatenate([borders, (borders[1:] + borders[:-1]) / 2.0, [ends[0] - 1.0, ends[1] + 1.0]])
    found = bins.of(values)
    inside = np.clip(values, *ends)
    assert (borders[found] <= inside).all()
    assert (inside <= borders[found + 1]).all()
    near = np.argmin(np.abs(borders[:-1] + borders[1:]))
    assert np.diff(borders)[near] <= np.diff(borders).min() * 1.1


def test_rows_of_other_keys_and_windows_do_not_count() -> None:
    bins, counts = Bins(0.0, 1.0), np.zeros((2, 2, BINS), np.int64)
    rows = np.array([4, 5, 6, 7]), np.array([0, 1, -1, 0], np.int32), np.full(4, 0.5)
    bins.add(rows, 5, counts)
    assert np.argwhere(counts).tolist() == [[0, 1, bins.of(np.array([0.5]))[0]]]
    nodes = quantiles.nodes_of(counts.transpose(2, 0, 1))
    assert nodes.shape == (FAN_OUT + BINS,)
    assert nodes[:FAN_OUT].sum() == nodes[FAN_OUT:].sum() == 1


def test_counts_of_the_table_equal_dense_least_squares() -> None:
    noisy = np.random.default_rng(1).normal(size=FAN_OUT + BINS)
    design = np.concatenate([np.kron(np.eye(FAN_OUT), np.ones(BINS // FAN_OUT)), np.eye(BINS)])
    np.testing.assert_allclose(
        quantiles.consistent_leaves(noisy), np.linalg.lstsq(design, noisy, rcond=None)[0], atol=1e-10
    )


def test_excesses_and_what_a_row_moves() -> None:
    """By every row, and by every place of a row between borders that rise with ranks."""
    rng, ranks = np.random.default_rng(4), (0.05, 0.5, 0.999)
    fine = rng.integers(0, 4, (BINS, 2, 3))
    places = np.sort(rng.integers(1, BINS, (3, 2, 3)), axis=0)
    found = quantiles.excess_at(fine, places, ranks)
    weights = [round(rank * 2**20) for rank in ranks]
    for r, w, k in itertools.product(range(3), range(2), range(3)):
        own = fine[:, w, k].tolist()
        below = sum(own[: places[r, w, k]])
        assert found[r, w, k] == below * (2**20 - weights[r]) - (sum(own) - below) * weights[r]
    moved = []
    for row in range(BINS):
        more = fine.copy()
        more[row, 0, 0] += 1
        moved.append(int(np.abs(quantiles.excess_at(more, places, ranks) - found).sum()))
    assert max(moved) == quantiles.excess_sensitivity(ranks) == sum(weights)


def test_bins_of_cells_have_about_equal_rows_of_the_table() -> None:
    rng = np.random.default_rng(5)
    fine = np.bincount(Bins(0.0, 1e6).of(rng.gamma(2.0, 5.0, 100_000)), minlength=BINS)[:, None, None]
    parts = Parts.of_table(quantiles.nodes_of(fine), 1, DrawnNoise(4000))
    counts = parts.counts(fine)[:, 0, 0]
    assert counts.size == 16
    assert counts.sum() == 100_000
    assert counts.max() <= 1.3 * 100_000 / 16
    # More of them where noise is small, and none that say anything without rows.
    assert Parts.of_table(quantiles.nodes_of(fine), 1, DrawnNoise(10)).cut.size > 80
    nothing = Parts.of_table(np.zeros(FAN_OUT + BINS), 1, DrawnNoise(1))
    assert (np.diff(nothing.cut) > 0).all()
    assert (np.diff(nothing.below) > 0).all()


@pytest.mark.parametrize("rank", [0.1, 0.5, 0.95])
def test_without_noise_quantiles_are_within_a_bin(rank: float) -> None:
    values = np.random.default_rng(2).lognormal(0.0, 2.0, (4, 5001))
    found = histogram(values, (0.0, 1000.0), 1e6, 3, (rank,))
    estimate, low, high = (each[:, 0] for each in found.quantiles(rank, np.arange(4), np.arange(1, 5), 0.95))
    true = np.quantile(values, rank, axis=1)
    assert ((low <= true) & (true <= high)).all()
    np.testing.assert_allclose(estimate, true, rtol=0.015)
    assert (high - low <= 0.6 * true).all()


def test_quantiles_of_ranges_count_the_rows_of_all_their_windows() -> None:
    values = np.stack([np.full(1001, 1.0), np.full(1001, 5.0), np.full(1001, 9.0)])
    found = histogram(values, (0.0, 10.0), 1e6, 4, (0.5,))
    estimate, low, high = found.quantiles(0.5, np.array([0, 1]), np.array([3, 3]), 0.9)
    assert low[0, 0] <= 5.0 <= high[0, 0]
    assert estimate[0, 0] == pytest.approx(5.0, rel=0.02)
    assert low[1, 0] <= 5.0 <= 9.0 <= high[1, 0] * 1.001


def test_a_cell_without_rows_says_nothing() -> None:
    found = histogram(np.empty((5, 0)), (-1.0, 1.0), 0.1, 5, (0.5,))
    _, low, high = found.quantiles(0.5, np.arange(5), np.arange(5) + 1, 0.95)
    assert (high - low > 1.9).mean() >= 0.8


@pytest.mark.statistical
@pytest.mark.parametrize("rank", [0.5, 0.95])
def test_a_median_errs_little_more_than_that_of_an_exponential_mechanism(rank: float) -> None:
    """Each window's, with all of epsilon, a score of sensitivity 1, and the bound as the range."""
    rng, n, rows = np.random.default_rng(8), 300, 300
    values = np.sort(rng.lognormal(1.0, 1.0, (n, rows)) * rng.lognormal(0.0, 0.2, (n, 1)), axis=1)
    true = np.quantile(values, rank, axis=1)
    ends = np.column_stack([np.zeros(n), values, np.full(n, 1000.0)])
    scores = np.log(np.diff(ends, axis=1)) - np.abs(np.arange(rows + 1) - rank * rows) / 2.0
    chosen = np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)
    left, right = (ends[np.arange(n), chosen + side] for side in (0, 1))
    usual = np.abs(left + rng.random(n) * (right - left) - true)
    found = histogram(values, (0.0, 1000.0), 1.0, 9, (rank,))
    error = np.abs(found.quantiles(rank, np.arange(n), np.arange(n) + 1, 0.95)[0][:, 0] - true)
    assert np.median(error) <= 1.2 * np.median(usual)


DAY = {"time": fastdp.Time("at", "1d", start="2026-01-01", stop="2026-01-03"), "epsilon": 1e6, "seed": 1}


def day_rows() -> pd.DataFrame:
    """Two days with a row before them; persons of the first day come again in the second."""
    return pd.DataFrame(
        {
            "at": pd.to_datetime(["2025-12-31", *["2026-01-01"] * 40, *["2026-01-02"] * 20]),
            "who": ["z", *(f"person {i % 7}" for i in range(40)), *(f"person {i % 3}" for i in range(20))],
            "kwh": [9.0, *np.linspace(0.0, 2.0, 40), *np.linspace(4.0, 5.0, 20)],
        }
    )


def test_a_release_has_quantiles_and_distinct_entries() -> None:
    found = fastdp.aggregate(day_rows(), {"kwh": ["median", "p90"], "who": "nunique"}, bounds=10.0, **DAY)
    with pytest.raises(ParameterError, match="quantiles of 70,000 windows and keys: expected at most 65,536"):
        quantiles.check_bins(70_000)
    frame = found.frame
    np.testing.assert_allclose(frame["kwh_median"], [1.0, 4.5], rtol=0.02)
    np.testing.assert_allclose(frame["kwh_p90"], [1.8, 4.9], rtol=0.02)
    np.testing.assert_allclose(frame["who_nunique"], [7.0, 3.0])
    np.testing.assert_allclose(found["kwh_median"].estimate(0, 2), 1.54, rtol=0.05)
    with pytest.raises(ParameterError, match="nunique: expected single windows and keys"):
        found["who_nunique"].estimate(0, 2)


def test_values_outside_the_windows_change_nothing() -> None:
    rows = day_rows()
    wanted = fastdp.aggregate(rows, {"kwh": ["median"]}, bounds=10.0, **DAY).frame
    rows.loc[0, "kwh"] = np.nan
    assert fastdp.aggregate(rows, {"kwh": ["median"]}, bounds=10.0, **DAY).frame.equals(wanted)
    rows.loc[1, "kwh"] = np.inf
    with pytest.raises(DataError, match="not a finite number"):
        fastdp.aggregate(rows, {"kwh": ["median"]}, bounds=10.0, **DAY)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_noise_covers_both_levels_of_bins_and_all_rows_of_a_unit(delta: float) -> None:
    person = fastdp.Person("who", rows=60, per_window=30)
    asked, bounds = {"kwh": "median", "who": "nunique"}, {"kwh": 10.0}
    given = DAY | {"epsilon": 1.0}
    found = fastdp.aggregate(day_rows(), asked, unit=person, bounds=bounds, delta=delta, **given)
    shares = {each.quantities[0].column: each.noise[0] for each in found.released.measured}
    plan = fastdp.plan(asked, epsilon=1.0, delta=delta, unit=person, bounds=bounds, every="1d", windows=2)
    # Half of the counts' share each; a row is in one node of each of the two levels.
    part = plan.shares["counts"] / 2.0
    for column, levels in (("kwh", 2), ("who", 1)):
        noise = shares[column]
        if noise.gaussian:
            rho = zcdp_loss(1.0, delta) ** 2 / 2.0 * part
            assert float(noise.scale) ** 2 >= levels * 60 * 30 / (2.0 * rho) * (1.0 - 1e-9)
        else:
            assert float(noise.scale) >= levels * 60 / part * (1.0 - 1e-9)
        assert noise.gaussian == (plan.noise == "gaussian")


@pytest.mark.parametrize("bounds", [fastdp.Value(clip=60.0), 60.0, 6e4], ids=["clip", "bound", "far"])
def test_without_noise_a_quantile_errs_by_a_fine_bin(bounds: float | fastdp.Value) -> None:
    for values in (np.full(999, 20.0), np.random.default_rng(1).gamma(4.0, 4.0, 999)):
        rows, asked = pd.DataFrame({"v": values}), {"v": ["median", "p95"]}
        table = fastdp.aggregate(rows, asked, epsilon=1e4, bounds=bounds, seed=1)
        for name, rank in (("v_median", 0.5), ("v_p95", 0.95)):
            # One of the 1,024 bins: neighbours of it have rows elsewhere.
            assert float(table[name].estimate(0, 1)[0]) == pytest.approx(np.quantile(values, rank), rel=0.015)


def test_whole_numbers_add_up() -> None:
    rng = np.random.default_rng(8)
    frame = pd.DataFrame({"a": rng.integers(0, 4, 400), "b": rng.integers(0, 6, 400)})
    keys = [(a, b) for a in range(4) for b in range(6)]
    table = fastdp.counts(frame, by=["a", "b"], keys=keys, epsilon=0.3, seed=2)
    leaves, prefixes, total = (table.level(depth).whole_numbers() for depth in (2, 1, 0))
    assert leaves["count"].dtype == prefixes["count"].dtype == np.int64
    assert leaves["count"].min() >= 0
    assert leaves.groupby("a")["count"].sum().tolist() == prefixes["count"].tolist()
    assert prefixes["count"].sum() == total["count"].item()


def test_entries_count_once_in_all_batches_and_missing_ones_never(tmp_path: Path) -> None:
    rows = day_rows()
    rows.loc[[3, 44], "who"] = None
    path = tmp_path / "rows.parquet"
    rows.to_parquet(path, row_group_size=7)
    for frame in (rows, path, rows.sample(frac=1.0, random_state=1)):
        found = fastdp.aggregate(frame, {"who": "nunique"}, **DAY)
        np.testing.assert_allclose(np.ravel(found.estimate([0, 1], [1, 2])), [7.0, 3.0])


def test_pooled_keys_have_the_noise_of_all() -> None:
    rows, names, widths = day_rows(), [f"person {i}" for i in range(7)], []
    for seed in range(5):
        given = DAY | {"bounds": 10.0, "epsilon": 2.0, "seed": seed}
        one = fastdp.aggregate(rows, {"kwh": "median"}, **given)
        many = fastdp.aggregate(rows, {"kwh": "median"}, by="who", keys=names, **given)
        widths.append([np.diff(np.ravel(table.level(0).interval(0, 1))).item() for table in (one, many)])
    narrow, wide = np.mean(widths, axis=0)
    assert wide >= narrow
    nothing = histogram(np.empty((1, 0)), (0.0, 10.0), 1e6, 5, (0.5,))
    assert (nothing.quantiles(0.5, np.zeros(1, int), np.ones(1, int), 0.9)[2] == 10.0).all()


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_no_key_and_no_window_are_a_table_too() -> None:
    rows = day_rows().assign(own=range(61))
    given = {"by": "own", "delta": 1e-9, "epsilon": 1.0, "bounds": 10.0, "seed": 1}
    none = fastdp.aggregate(rows, {"kwh": "p95"}, **given)
    assert len(none.frame) == 0
    assert none.frame.columns[0] == "own"
    later = fastdp.Time("at", "1d", start="2030-01-01")
    assert len(fastdp.aggregate(rows, {"kwh": "sum"}, later, epsilon=1.0, bounds=10.0, seed=1)) == 0


@pytest.mark.parametrize("keys", ["public", None])
@pytest.mark.parametrize("unit", [fastdp.Rows(), fastdp.Person("who", rows=5)])
def test_the_spelling_of_a_key_follows_from_no_row(keys: str | None, unit: fastdp.Rows | fastdp.Person) -> None:
    names = ["abcdefab-0000-4000-8000-000000000001", "caf\u00e9"]
    rows = pd.DataFrame({"at": pd.Timestamp("2026-01-01"), "who": range(1000), "k": names * 500, "x": 0.0})
    other = rows.iloc[:2].assign(at=pd.Timestamp("2020-01-01"), k=[names[0].upper(), "cafe\u0301"], x=-0.0)
    for by in ("k", "x"):
        given = DAY | {"by": by, "keys": keys, "delta": 1e-6, "unit": unit, "epsilon": 20.0}
        wanted, found = (
            fastdp.aggregate(each, {"*": "count"}, **given).frame[by].map(repr).tolist()
            for each in (rows, pd.concat([other, rows], ignore_index=True))
        )
        assert found == wanted
        assert len(found) == 2 * len(rows[by].unique())


#: Persons as (how many, rows of each, value of each row, or of dropped ones' window), and the rows= that count.
CROWDS = {
    "nobody drops": ([(2000, 4, 1.0)], 4),
    "busy": ([(4000, 1, 1.0), (200, 1000, 2.0)], 5),
    "hidden": ([(500, 5, 1.0), (2, 1000, 9.0)], 5),
    "more hidden": ([(2000, 4, 1.0), (30, 200, 1.0)], 4),
    "chosen": ([(300, 3, 1.0), (40, 1000, 9.0)], "auto"),
    "large dropped": ([(400, 2, 1.0), (100, 20, 8.0)], 5),
    "small dropped": ([(400, 2, 8.0), (100, 20, 0.0)], 5),
    "both signs": ([(400, 2, -1.0), (100, 20, 8.0)], 5),
    "negative": ([(400, 2, -1.0), (100, 20, -8.0)], 5),
}


def crowd_of(crowds: list[tuple[int, int, float]]) -> tuple[pd.DataFrame, np.ndarray, tuple[float, float]]:
    """Rows, their days, and the bound of values."""
    sizes = np.concatenate([np.full(many, each) for many, each, _ in crowds])
    values = np.concatenate([np.full(many * each, value) for many, each, value in crowds])
    day = np.where(np.arange(values.size) < crowds[0][0] * crowds[0][1], np.arange(values.size) % 5, 0)
    at = np.datetime64("2024-03-01", "s") + 86_400 * day
    frame = pd.DataFrame({"at": at, "who": np.repeat(np.arange(sizes.size), sizes), "v": values})
    return frame, day, (min(values.min() * 2.0, 0.0), max(values.max() * 2.0, 0.0))


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("case", CROWDS)
def test_an_end_that_dropped_rows_move_is_missing(case: str) -> None:
    """Of a person beyond five times rows= no number holds the rows; those of many persons lie in the first day."""
    crowds, rows = CROWDS[case]
    frame, day, ends = crowd_of(crowds)
    given = {"epsilon": 2.0, "unit": fastdp.Person("who", rows=rows), "bounds": {"v": ends}}
    truths = {"count": np.bincount(day, minlength=5), "v_sum": np.bincount(day, frame.v, 5)}
    held, asked, seeds = 0, 0, 6
    for seed in range(seeds):
        time = fastdp.Time("at", "1d", start="2024-03-01", stop="2024-03-06")
        table = fastdp.aggregate(
            frame, {"*": "count", "v": ["sum", "mean", "var", "median"]}, time, seed=seed, **given
        )
        for name in table.names:
            one, known = table[name], name == "count" or (name == "v_sum" and ends[0] == 0.0)
            for starts, stops in ((np.arange(5), np.arange(1, 6)), ([0], [5])):
                low, high = one.interval(starts, stops)
                assert np.isnan(low).all() == (not known)
                assert np.isnan(high).all() == (name != "v_sum" or ends[1] > 0.0)
                if name in truths:
                    truth = np.add.reduceat(truths[name], starts)
                    held += np.count_nonzero(~(low > truth) & ~(high < truth))
                    asked += truth.size
            assert "a public most" in str(one.metadata["missing"])
    assert held >= 0.9 * asked


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("rows", [5, 20])
@pytest.mark.parametrize("case", ["nobody drops", "large dropped", "small dropped", "both signs", "negative"])
def test_both_ends_hold_where_the_most_rows_of_a_person_are_public(case: str, rows: int) -> None:
    """Also where all dropped rows lie in one day and are larger than all others."""
    frame, day, ends = crowd_of(CROWDS[case][0])
    unit, of_all = fastdp.Person("who", rows=rows, most=20), rows == 20
    time, asked = fastdp.Time("at", "1d", start="2024-03-01", stop="2024-03-06"), {"*": "count", "who": "nunique"}
    means = frame.groupby(day).v.mean().reindex(range(5)).to_numpy()
    truths = {
        "count": np.bincount(day, minlength=5),
        "v_sum": np.bincount(day, frame.v, 5),
        "v_mean": means,
        "who_nunique": frame.groupby(day).who.nunique().reindex(range(5)).to_numpy(),
    }
    held = []
    for seed in range(6):
        table = fastdp.aggregate(
            frame,
            {"v": ["sum", "mean", "median"], **asked},
            time,
            epsilon=2.0,
            unit=unit,
            bounds={"v": ends},
            seed=seed,
        )
        for name, truth in truths.items():
            low, high = table[name].interval(np.arange(5), np.arange(1, 6))
            # Of both signs a table may have one number.
            one = name == "v_sum" and "the table one number" in str(table.metadata["missing"])
            assert name == "v_mean" or one or not np.isnan(low + high).any()
            held += (~(low > truth + 1e-9) & ~(high < truth - 1e-9)).tolist()
        median = table["v_median"].interval(np.arange(5), np.arange(1, 6))
        assert np.isnan(median).all() == (not of_all)
    assert np.mean(held) >= 0.9


def test_a_share_of_dropped_rows_is_known_or_none() -> None:
    few = pd.DataFrame({"p": range(60)})
    for seed in range(8):
        share = fastdp.counts(few, epsilon=0.5, unit=fastdp.Person("p", rows=100), seed=seed).dropped_rows
        assert share is None or 0.0 <= share <= 1.0


def test_a_number_of_dropped_rows_below_0_is_none() -> None:
    rows = pd.DataFrame({"p": np.arange(5000) % 1000})
    table = fastdp.counts(rows, epsilon=1.0, unit=fastdp.Person("p", rows=5), seed=1)
    numbers, found = table.released.rows, []
    for dropped in (-40.0, 0.0):
        changed = numbers._replace(dropped=numbers.dropped._replace(value=dropped))
        found.append(replace(table, released=replace(table.released, rows=changed)).estimate(0, 1).item())
    assert found[0] == found[1]


def test_a_scaled_count_by_hand() -> None:
    rows = pd.DataFrame({"p": np.arange(5000) % 1000})
    table = fastdp.counts(rows, epsilon=1.0, unit=fastdp.Person("p", rows=5), seed=1)
    own, count = table.released.measured[0].noise[0], table.released.cells("count").item()
    numbers = RowNumbers(Number(1000.0, 4000.0), Number(500.0, 100.0))
    scaled = replace(table, released=replace(table.released, rows=numbers))
    relative = (100.0 + 0.25 * 4000.0) / 1000.0**2
    assert scaled.std_error(0, 1).item() == pytest.approx(math.sqrt(1.5**2 * own.variance + count**2 * relative))
    assert scaled.estimate(0, 1).item() == pytest.approx(1.5 * count)
    half, error = own.quantiles(np.ones(1, np.int64), 0.95)[0] + 1.0, count * math.sqrt(relative)
    wanted = 1.5 * count - math.hypot(1.5 * half, -math.log(0.05) / math.sqrt(2.0) * error)
    assert scaled.interval(0, 1)[0].item() == pytest.approx(wanted, rel=1e-2)
    # Of a number that does not stand out nothing is added to the estimate.
    quiet = replace(table, released=replace(table.released, rows=numbers._replace(dropped=Number(20.0, 100.0))))
    assert quiet.estimate(0, 1).item() == count


def test_shares_that_leave_nothing_are_refused() -> None:
    person = fastdp.Person("p", rows=20)
    with pytest.raises(ParameterError, match=r"share = 0.97: expected at most"):
        fastdp.plan({"*": "count"}, epsilon=1.0, keys=fastdp.PrivateKeys(0.97), delta=1e-6, unit=person)
    for wrong in ({"mean": "x"}, {"mean": np.nan}, {"rows": 1e300}):
        with pytest.raises(ParameterError, match=r"mean = |rows = "):
            fastdp.plan({"v": "sum"}, epsilon=1.0, bounds=1.0, **({"rows": 3.0} | wrong))
    with pytest.raises(ParameterError, match="level of a table with nunique"):
        fastdp.aggregate(
            pd.DataFrame({"k": [1, 2], "v": ["a", "b"]}), {"v": "nunique"}, by="k", keys=[1, 2], epsilon=1.0, seed=1
        ).level(0)
