"""Quantiles of cells: bins, consistent counts against dense least squares, intervals, and their coverage."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fastdp
from fastdp.errors import DataError, ParameterError
from fastdp.guarantee import zcdp_loss
from fastdp.releases.intervals import DrawnNoise
from fastdp.tables import quantiles
from fastdp.tables.quantiles import BINS, FAN_OUT, LEVELS, Bins, Histogram

ENDS = [(0.0, 10.0), (-5.0, 20.0), (-3.0, 0.0), (2.0, 3.0), (-4.0, -1.0)]


def design() -> np.ndarray:
    """One row a node: the bins that it counts."""
    return np.concatenate([np.kron(np.eye(FAN_OUT), np.ones(BINS // FAN_OUT)), np.eye(BINS)])


def histogram(values: np.ndarray, ends: tuple[float, float], epsilon: float, seed: int) -> Histogram:
    """Noisy histogram of one cell a row of `values`, float64[W, n]."""
    bins, counts = Bins(*ends), np.zeros((len(values), 1, BINS), np.int64)
    windows = np.repeat(np.arange(len(values)), values.shape[1])
    bins.add((windows, np.zeros(values.size, np.int32), values.ravel()), 0, counts)
    nodes, rng = bins.nodes(counts), np.random.default_rng(seed)
    noise = np.rint(rng.laplace(0.0, LEVELS / epsilon, nodes.shape)).astype(np.int64)
    return Histogram(bins, nodes + noise, DrawnNoise(Fraction(LEVELS) / Fraction(epsilon)), np.ones(1, np.int64))


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
    nodes = bins.nodes(counts)
    assert nodes.shape == (FAN_OUT + BINS, 2, 2)
    assert nodes[:FAN_OUT].sum() == nodes[FAN_OUT:].sum() == 1


def test_consistent_counts_equal_dense_least_squares() -> None:
    noisy = np.random.default_rng(1).normal(size=(3, FAN_OUT + BINS))
    dense = np.linalg.lstsq(design(), noisy.T, rcond=None)[0].T
    np.testing.assert_allclose(quantiles.consistent_leaves(noisy), dense, atol=1e-10)


@pytest.mark.parametrize("rank", [0.0, 0.25, 0.5, 0.95])
def test_variances_equal_dense_least_squares(rank: float) -> None:
    covariance = np.linalg.inv(design().T @ design())
    weights = np.tri(BINS + 1, BINS, -1) - rank
    expected = np.einsum("ij,jk,ik->i", weights, covariance, weights)
    np.testing.assert_allclose(quantiles.prefix_variances(rank), expected, atol=1e-9)


@pytest.mark.parametrize("rank", [0.1, 0.5, 0.95])
def test_without_noise_quantiles_are_within_a_bin(rank: float) -> None:
    values = np.random.default_rng(2).lognormal(0.0, 2.0, (4, 5001))
    found = histogram(values, (0.0, 1000.0), 1e9, 3)
    estimate, low, high = (each[:, 0] for each in found.quantiles(rank, np.arange(4), np.arange(1, 5), 0.95))
    true = np.quantile(values, rank, axis=1)
    assert ((low <= true) & (true <= high)).all()
    np.testing.assert_allclose(estimate, true, rtol=0.015)
    assert (high - low <= 0.04 * true).all()


def test_quantiles_of_ranges_count_the_rows_of_all_their_windows() -> None:
    values = np.stack([np.full(1001, 1.0), np.full(1001, 5.0), np.full(1001, 9.0)])
    found = histogram(values, (0.0, 10.0), 1e9, 4)
    estimate, low, high = found.quantiles(0.5, np.array([0, 1]), np.array([3, 3]), 0.9)
    assert low[0, 0] <= 5.0 <= high[0, 0]
    assert estimate[0, 0] == pytest.approx(5.0, rel=0.02)
    assert low[1, 0] <= 5.0 <= 9.0 <= high[1, 0] * 1.001


def test_a_cell_without_rows_says_nothing() -> None:
    found = histogram(np.empty((5, 0)), (-1.0, 1.0), 0.1, 5)
    _, low, high = found.quantiles(0.5, np.arange(5), np.arange(5) + 1, 0.95)
    assert (high - low > 1.9).mean() >= 0.8


@pytest.mark.statistical
@pytest.mark.parametrize("rank", [0.25, 0.5, 0.9])
def test_intervals_cover_the_quantiles_of_the_rows(rank: float) -> None:
    values = np.random.default_rng(6).gamma(2.0, 0.2, (400, 500))
    found = histogram(values, (0.0, 10.0), 1.0, 7)
    _, low, high = (each[:, 0] for each in found.quantiles(rank, np.arange(400), np.arange(1, 401), 0.9))
    true = np.quantile(values, rank, axis=1)
    covered = ((low <= true) & (true <= high)).mean()
    assert covered >= 0.9


def test_more_histograms_than_fit_are_refused() -> None:
    with pytest.raises(ParameterError, match="quantiles of 70,000 windows and keys: expected at most 65,536"):
        quantiles.check_bins(70_000)


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
    rows = day_rows()
    one = fastdp.aggregate(rows, {"kwh": "median"}, bounds=10.0, **DAY | {"epsilon": 1.0})
    names = [f"person {i}" for i in range(7)]
    many = fastdp.aggregate(rows, {"kwh": "median"}, by="who", keys=names, bounds=10.0, **DAY | {"epsilon": 1.0})
    narrow, wide = (np.diff(np.ravel(table.level(0).interval(0, 1))) for table in (one, many))
    assert (wide >= narrow).all()
    histogram = Histogram(Bins(0.0, 10.0), np.zeros((FAN_OUT + BINS, 1, 1), np.int64), DrawnNoise(2.0), np.ones(1))
    assert (histogram.quantiles(0.5, np.zeros(1, int), np.ones(1, int), 0.9)[2] == 10.0).all()


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


def test_rows_of_busy_persons_are_not_said_to_be_all() -> None:
    rng = np.random.default_rng(4)
    persons = np.concatenate([rng.integers(0, 4000, 4000), np.repeat(np.arange(4000, 4020), 1000)])
    rows = pd.DataFrame({"who": persons, "kwh": rng.gamma(2.0, 0.2, persons.size)})
    given = {
        "epsilon": 1.0,
        "unit": fastdp.Person("who", rows=5),
        "bounds": {"kwh": fastdp.Value(clip=10.0)},
        "seed": 3,
    }
    found = fastdp.aggregate(rows, {"*": "count", "kwh": ["sum", "mean", "median"]}, **given).frame
    assert [found[f"{name}_about"][0] for name in ("count", "kwh_median")] == ["capped", "counted"]
    assert found["kwh_mean_about"][0] in ("counted", "clipped")
    capped = np.minimum(np.unique(persons, return_counts=True)[1], 25).sum()
    assert found["count_low"][0] <= capped <= found["count_high"][0]


def test_a_share_of_dropped_rows_is_known_or_none() -> None:
    few = pd.DataFrame({"p": range(60)})
    for seed in range(8):
        share = fastdp.counts(few, epsilon=0.5, unit=fastdp.Person("p", rows=100), seed=seed).dropped_rows
        assert share is None or 0.0 <= share <= 1.0


def test_shares_that_leave_nothing_are_refused() -> None:
    person = fastdp.Person("p", rows=20)
    with pytest.raises(ParameterError, match=r"share = 0.97: expected at most"):
        fastdp.plan({"*": "count"}, epsilon=1.0, keys=fastdp.PrivateKeys(0.97), delta=1e-6, unit=person)
    for wrong in ({"mean": "x"}, {"mean": np.nan}, {"rows": 1e300}):
        with pytest.raises(ParameterError, match=r"mean = |rows = "):
            fastdp.plan({"v": "sum"}, epsilon=1.0, bounds=1.0, **({"rows": 3.0} | wrong))
    with pytest.raises(ParameterError, match="level of a table with nunique"):
        fastdp.aggregate(few_keys(), {"v": "nunique"}, by="k", keys=[1, 2], epsilon=1.0, seed=1).level(0)


def few_keys() -> pd.DataFrame:
    """Two keys."""
    return pd.DataFrame({"k": [1, 2], "v": ["a", "b"]})
