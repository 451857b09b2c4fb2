from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import fastdp
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee
from fastdp.releases.intervals import laplace_sum_quantile, laplace_variance
from fastdp.tables.answers import Answers
from fastdp.tables.sums import Number, RowNumbers
from fastdp.units import UnitRows
from tests.tables import flat
from tests.tables.released import STEP, noise, table


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


def test_shapes_without_keys():
    t = table("counts", np.full((5, 1), 7.0))
    assert t.sum(0, 1).shape == (1,)
    assert t.std_error([0, 1], 5).shape == (2,)
    assert t.interval([0, 1, 2], 5)[0].shape == (3,)


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


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, float("nan"), "much"])
def test_confidence_out_of_range(confidence):
    with pytest.raises(ParameterError, match="confidence"):
        table("counts", np.full((5, 1), 7.0)).interval(0, 1, confidence)


@pytest.mark.parametrize("scale", [0.3, 1.0, 20.0])
@pytest.mark.parametrize("m", [1, 3, 24])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_intervals_of_counts_hold_the_true_count(scale, m, confidence):
    t = table("counts", np.full((m, 4000), 5.0), scale=scale, keys={"k": list(range(4000))})
    low, high = t.interval(0, m, confidence)
    covered = np.mean((low <= 5.0 * m) & (5.0 * m <= high))
    # Three standard deviations of 4,000 draws below the nominal share.
    assert covered >= confidence - 3.0 * np.sqrt(confidence * (1.0 - confidence) / 4000)
    revised_low, revised_high = t.interval(0, m, 0.95, revised=True)
    assert np.mean((revised_low <= 5.0 * m) & (5.0 * m <= revised_high)) >= 0.94


@pytest.mark.parametrize("rows", [2.0, 30.0, 200.0, 5000.0])
@pytest.mark.parametrize("mean", [0.0, 1.0, 5.0, 9.5])
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


def test_the_error_of_a_mean_counts_that_of_the_number_of_rows():
    """Far from the middle of the clip most of it comes from there."""
    counts = np.full((1, 20_000), 400.0)
    t = table("means", (4.5 * counts, counts), scale=4.0, keys={"k": list(range(20_000))})
    np.testing.assert_allclose(np.mean(t.std_error(0, 1)), np.std(t.mean(0, 1)), rtol=0.03)


def test_fieller_quantile_bounds_the_mixture():
    """The largest of the standardised quantiles of the parts and the normal one is enough for their sum."""
    rng = np.random.default_rng(11)
    x, y = noise(rng, 50.0, (2, 400_000))
    from scipy.stats import norm

    for confidence in (0.5, 0.8, 0.95, 0.99):
        z = laplace_sum_quantile(50.0, 1, confidence) / np.sqrt(laplace_variance(50.0))
        z = max(z, float(norm.ppf(0.5 + confidence / 2)))
        for weight in (0.0, 0.2, 1.0, 5.0):
            spread = np.sqrt((1.0 + weight**2) * laplace_variance(50.0))
            assert np.mean(np.abs(x + weight * y) <= z * spread) >= confidence - 0.003


def test_counts_below_zero_say_nothing_about_a_mean():
    counts = np.full((1, 3), -500.0)
    t = table("means", (np.full((1, 3), 40.0), counts), scale=2.0, keys={"k": [1, 2, 3]})
    np.testing.assert_array_equal(t.interval(0, 1), [[[0.0] * 3], [[10.0] * 3]])


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


def test_no_windows_and_no_keys():
    for true in (np.zeros((0, 2)), np.zeros((4, 0))):
        t = table("totals", true, keys={"k": ["a", "b"][: true.shape[1]]})
        assert t.frame.num_rows == 0
        assert "Totals of" in repr(t)
        assert t._repr_html_()
    means = table("means", (np.zeros((0, 1)), np.zeros((0, 1))))
    assert means.frame.num_rows == 0


def test_means_with_a_count_that_is_not_clearly_positive_say_nothing():
    counts = np.zeros((3, 50))
    t = table("means", (counts, counts), scale=30.0, keys={"k": list(range(50))})
    low, high = t.interval(0, 3)
    unknown = (low[0] == 0.0) & (high[0] == 10.0)
    assert unknown.mean() > 0.9


@pytest.mark.parametrize("epsilon", [0.05, 0.2, 0.3, 0.7, 2.0])
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
    """By the delta method: a mean far from the centre carries the count's noise too."""
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
    guarantee = Guarantee(0.5, unit="one person", adjacency="add or remove one person", rows=UnitRows("person"))
    t = table(kind, np.zeros((2000, 1)), rows=rows, guarantee=guarantee)
    starts = np.arange(2000)
    for revised in (False, True):
        estimate = t.estimate(starts, starts + 1, revised=revised)
        low, high = t.interval(starts, starts + 1, revised=revised)
        assert (low <= estimate).all()
        assert (estimate <= high).all()
    assert (t.released.measured[0].steps < 0).any()


def test_a_number_of_distinct_entries_lies_in_its_interval():
    time = fastdp.Time("at", "1h", start="2024-05-01")
    windows = fastdp.Windows({"v": "nunique"}, time, epsilon=0.5, seed=1)
    t = windows.advance("2024-05-11")
    starts = np.arange(len(t))
    estimate, (low, high) = t.estimate(starts, starts + 1), t.interval(starts, starts + 1)
    assert (low <= estimate).all()
    assert (estimate <= high).all()
