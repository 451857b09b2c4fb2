"""Choices and numbers before the sums: rows by size, their clips, rows of persons."""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import fastdp
from fastdp.errors import AccuracyWarning, ParameterError
from fastdp.noise.sampler import noise_distribution
from fastdp.tables import choices
from fastdp.tables.rows import dropped_rows
from fastdp.tables.shares import WEIGHT, ColumnTask
from fastdp.tables.sizes import Noise, Number
from tests.oracles import body_and_tail as oracle
from tests.oracles import scale_free as naive
from tests.oracles import table_choices, words
from tests.tables import flat

TASK = ColumnTask("euro", (-40.0, 100.0), 1, False, 0.2, "laplace", Noise(1.8, 1.7, 28.0, 1.7), 24, 24.0, 0.001)
KEY = fastdp.Key.from_seed(4)


def quietly(call, *given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        return call(*given)


def said(call, *given):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", AccuracyWarning)
        call(*given)
    return [str(each.message) for each in found]


def refunds(n=40_000):
    generator = np.random.default_rng(2)
    return np.where(generator.random(n) < 0.3, -generator.exponential(0.5, n), generator.exponential(4.0, n))


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_number_has_exact_noise_bound_to_it(noise):
    found = choices.noisy_number(1000, 3, 0.5, noise, KEY)
    distribution = noise_distribution(noise, 3, 1, 0.5)
    if noise == "laplace":
        own = words.within(KEY.reveal(), 3, 0.5)
        assert found.value == 1000 + table_choices.bound_noise(own, [1000], [Fraction(6)])[0]
        assert found.variance == pytest.approx(2 * 36, rel=0.01)
    else:
        assert found.variance == pytest.approx(36)
        assert float(distribution.sigma) == pytest.approx(6.0)
    assert found == choices.noisy_number(1000, 3, 0.5, noise, KEY)
    # Another sum, budget or sensitivity meets independent noise.
    ways = itertools.product(range(9), (10**6, 10**6 + 1), (0.5, 0.6))
    assert len({choices.noisy_number(n, s, b, noise, KEY).value - n for n, s, b in ways}) == 36


def test_the_best_candidate_is_that_of_the_oracle():
    generator = np.random.default_rng(1)
    for moved, epsilon, target in itertools.product((1, 7), (0.02, 0.1, 1.0, 30.0), (0.5, 40.0, 90.0)):
        above = np.sort(generator.integers(0, 400, 9))[::-1].copy()
        sizes = np.array([0.1 * 1.5**i for i in range(9)])
        given = above.tolist(), sizes.tolist(), moved, epsilon, target
        found = choices.best_candidate(above, sizes, moved, epsilon, target, KEY, "end")
        assert found == table_choices.best(*given, KEY.reveal(), "end")


@pytest.mark.parametrize("moved", [1, 3])
def test_exact_ratios_of_a_choice_and_all_its_neighbours(moved):
    """Probabilities of every winner, with and without one to `moved` rows, wherever they lie.

    By the oracle's scores, in steps that can be added up; the choice is the oracle's above.
    """
    epsilon, sizes, unit = 0.8, [1.0, 1.5, 2.25, 5.0], 4

    def probabilities(above):
        scale = unit * moved / epsilon
        scores = table_choices.scores(above, sizes, moved, epsilon, 2.0, unit)
        return naive.winner_probabilities(scores, "exponential", scale, int(60 * scale))

    worst = 0.0
    for base in ([9, 5, 3, 0], [40, 1, 1, 1], [2, 2, 2, 2], [12, 11, 10, 9]):
        before = probabilities(base)
        for rows in range(1, moved + 1):
            for places in itertools.combinations_with_replacement(range(5), rows):
                # A row at place p lies above the first p candidates.
                after = probabilities([count + sum(p > i for p in places) for i, count in enumerate(base)])
                ratio = np.abs(np.log(before / after)).max()
                assert ratio <= epsilon * rows / moved * (1 + 1e-9)
                worst = max(worst, ratio)
    assert worst > 0.8 * epsilon


# Rows by size.


def counted(values, ends=TASK.ends, rows=None):
    return flat.sizes(np.asarray(values, float), ends, rows)


@pytest.mark.parametrize("ends", [(-40.0, 100.0), (0.0, 100.0), (5.0, 100.0), (-40.0, 0.0), (-40.0, -5.0)])
def test_a_row_is_in_one_bin(ends):
    low, high = ends
    values = np.array([0.0, -0.0, 3.0, -3.0, 100.0, -40.0, 100.1, -40.1, 1e300, -1e300, 1e-300, 50.0, -6.0])
    sides, wanted = [(1, high), (-1, -low)], []
    for side, end in sides:
        edges = oracle.edges(end) if end > 0.0 else []
        inside = [side * v for v in values.tolist() if low <= v <= high and side * v > 0.0]
        bounds = [*edges[1:], 0.0]
        wanted += [sum(b < v <= e for v in inside) for e, b in zip(edges, bounds, strict=False)]
    zeros = sum(v == 0.0 and low <= v <= high for v in values)
    wanted += [zeros, int((values < low).sum()), int((values > high).sum())]
    assert counted(values, ends).tolist() == wanted
    assert sum(wanted) == values.size
    parts = counted(values[:5], ends) + counted(values[5:], ends)
    assert parts.tolist() == wanted


def test_rows_of_a_person_share_one_weight():
    sizes, values = np.array([1, 3, 7, 5000]), refunds(5011)
    every, ends = counted(values, rows=np.repeat(sizes, sizes)), np.append(0, np.cumsum(sizes))
    for i in range(sizes.size):
        others = np.delete(values, np.arange(ends[i], ends[i + 1]))
        less = np.delete(sizes, i)
        moved = every - counted(others, rows=np.repeat(less, less))
        assert moved.min() >= 0
        assert 0.999 * WEIGHT < moved.sum() <= WEIGHT, "however many rows"
    assert not counted(np.empty(0), rows=np.empty(0, np.int64)).any()


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("weighs", [False, True])
def test_rows_by_size_have_noise_of_a_unit_bound_to_them(noise, weighs):
    task = replace(TASK, contributions=5, noise=noise, weighs=weighs)
    rows = np.full(40_000, 4) if weighs else None
    counts = counted(refunds(), rows=rows)
    whole = Number(40_000.0, 1.0) if weighs else None
    found = choices.release_sizes(task, counts, KEY, whole)
    moved, one = (WEIGHT, WEIGHT) if weighs else (5, 1)
    distribution = noise_distribution(noise, moved, 1, task.sizes)
    deviation = (math.sqrt(2.0) * 5 if not weighs else math.sqrt(2.0)) / task.sizes
    if noise == "gaussian":
        deviation /= math.sqrt(2.0)
    assert found.sides[0].noise == pytest.approx(deviation, rel=1e-3)
    noisy = np.concatenate([each.noisy for each in found.sides])
    if noise == "laplace":
        own = words.within(KEY.reveal(), "sizes", moved, task.sizes, *task.ends)
        drawn = table_choices.bound_noise(own, counts.tolist(), [distribution.scale] * counts.size)
        np.testing.assert_allclose(noisy, (counts + drawn)[:-3] / one)
    assert found.rows.value == pytest.approx(40_000, abs=6 * math.sqrt(found.rows.variance))
    if weighs:
        assert found.sides[0].unit.per == pytest.approx(4.0, rel=0.5)
    # Other rows, losses and ends meet other noise.
    ways = [(task, counts + 1), (replace(task, sizes=0.3), counts), (replace(task, ends=(-40.0, 101.0)), counts)]
    for other, given in ways:
        again = choices.release_sizes(other, given, KEY, whole)
        assert not np.allclose(
            np.concatenate([each.noisy for each in again.sides]) - given[:-3] / one, noisy - counts[:-3] / one
        )


def test_clips_are_whole_steps_within_the_bound():
    for grid, ends in ((0.5, (-40.0, 100.0)), (1e-6, (0.0, 100.0)), (0.5, (60.0, 100.0)), (0.5, (-40.0, -30.0))):
        task = replace(TASK, grid=grid, ends=ends)
        sizes = choices.release_sizes(task, counted(np.clip(refunds(), *ends), ends), KEY)
        choice = choices.choose_clips(task, sizes)
        for each in (choice.clip, choice.second):
            assert each / grid == round(each / grid)
        low, high = choices.ends_within(ends, choice.clip)
        assert ends[0] <= low < high <= ends[1]
        assert choice.clip <= choice.second
        assert choice.tail == (choice.second > choice.clip)


def test_zeros_do_not_choose_the_clip():
    """Delays, 52 % of them 0: the clip was the lowest candidate, and the total of a year next to nothing."""
    generator = np.random.default_rng(1)
    values = np.where(generator.random(100_000) < 0.52, 0.0, generator.lognormal(2.3, 1.0, 100_000))
    table = pa.table({"second": 3600 * (np.arange(100_000) * 2400 // 100_000), "v": values})
    for epsilon in (0.1, 0.3):
        given = {"epsilon": epsilon, "bound": 1440.0, "seed": 1}
        t = quietly(lambda given=given: fastdp.totals(table, "v", fastdp.Time("second", "1h", unit="s"), **given))
        assert 10.0 < flat.clip(t.released)[1] < 200.0
        assert t.sum(0, len(t))[0] > 0.5 * values.sum()


def test_the_chosen_clip_is_near_the_best() -> None:
    import pyarrow as pa

    generator = np.random.default_rng(3)
    values = generator.lognormal(0.0, 1.0, 120_000)
    hours = np.repeat(np.arange(1200), 100)
    table = pa.table({"at": np.datetime64("2024-01-01", "s") + hours.astype("timedelta64[h]"), "kwh": values})
    sums_of = values.reshape(240, 500)

    def error(theta: float) -> float:
        return 5 * 2 * theta**2 + float(np.mean(np.maximum(sums_of - theta, 0.0).sum(axis=1) ** 2))

    best = min(error(theta) for theta in np.geomspace(0.1, 100.0, 100))
    for bound in (60.0, 1e6):
        sums = flat.totals(table, "kwh", "at", "1h", epsilon=1.0, bound=bound, seed=2).released
        assert flat.clip(sums) is not None
        assert error(flat.clip(sums)[1]) < 1.33 * best
        # As small a share as a good choice needs, beside those for rows beyond the clip and for all rows.
        assert float(flat.noise(sums, "total").scale) * sums.quantities[0].resolution < 1.27 * flat.clip(sums)[1]


# Outcomes.


def test_one_number_for_the_table_is_warned_of_and_said():
    table = pa.table(
        {"at": np.arange(250) * 345, "v": np.random.default_rng(1).lognormal(3.0, 1.0, 250) * np.tile([1, -1], 125)}
    )
    time = fastdp.Time("at", "1h", unit="s", start="1970-01-01", stop="1970-01-02")
    with pytest.warns(AccuracyWarning, match="one number was released for the whole table"):
        t = fastdp.totals(table, "v", time, epsilon=0.1, bound=(-1e5, 1e5), seed=1)
    assert np.isnan(t.interval(0, 1)[0]).all()
    assert np.isfinite(t.interval(0, 24)[0]).all()
    assert "missing, as values have both signs" in repr(t)
    assert any("missing" in text for text in t.metadata["missing"])


@pytest.mark.parametrize("bound", [50.0, 5000.0])
@pytest.mark.parametrize("rows", [3, 300])
@pytest.mark.parametrize("kind", ["sum", "mean"])
def test_a_total_that_noise_hides_is_no_number(kind, rows, bound):
    """No size stands out: what is left is noise times a far bound, or times many rows of a person."""
    who = np.arange(600) // 3
    frame = pa.table({"p": who, "v": np.random.default_rng(3).gamma(2.0, 2.0, 600)})
    for seed in range(4):
        for unit in (fastdp.Person("p", rows=rows), fastdp.Rows(rows)):
            t = quietly(
                lambda unit=unit, seed=seed: fastdp.aggregate(
                    frame, {"v": kind}, epsilon=0.1, unit=unit, bounds={"v": bound}, seed=seed
                )
            )
            estimate, (low, high) = t.estimate(0, 1), t.interval(0, 1)
            assert np.isnan(estimate).all()
            assert "estimate is missing, as noise hides the sum of all rows" in repr(t)
            if isinstance(unit, fastdp.Rows):
                assert low <= getattr(np, kind)(frame["v"]) <= high
    many = pa.table({"v": np.tile(frame["v"], 100)})
    assert np.isfinite(
        quietly(lambda: fastdp.totals(many, "v", epsilon=0.1, bound=bound, seed=1)).estimate(0, 1)
    ).all()


def test_a_call_that_no_table_suits_is_refused_before_it_costs(tmp_path):
    ledger = fastdp.Ledger(tmp_path / "ledger")
    with pytest.raises(ParameterError, match=r"epsilon = 1e-12: expected at least .* hides any table"):
        fastdp.counts(pa.table({"v": [1.0]}), epsilon=1e-12, ledger=ledger, stream="t")
    assert list(ledger.entries()) == []


def test_negative_rows_of_a_small_table_are_named():
    values = np.random.default_rng(1).normal(1.0, 3.0, 300)
    with pytest.warns(AccuracyWarning, match="negative"):
        t = fastdp.totals(pa.table({"v": values}), "v", epsilon=1.0, bound=10.0, seed=1)
    assert "negative" in repr(t)


def test_a_far_bound_raises_the_upper_end_and_says_so():
    """Bytes under a far bound: the largest value is a billionth of it."""
    values = np.random.default_rng(1).gamma(2.0, 4.0, 20_000)
    t = quietly(lambda: fastdp.totals(pa.table({"v": values}), "v", epsilon=1.0, bound=3e10, seed=1))
    assert 5.0 < flat.clip(t.released)[1] < 200.0
    (low,), (high,) = t.interval(0, 1)
    assert 0.95 * values.sum() < low < values.sum() < high
    assert "rows of up to 3e+10 could hide in the noise" in repr(t)


def test_negative_values_under_one_bound_are_named():
    table = pa.table({"v": np.tile([3.0, -4.0], 20_000)})
    with pytest.warns(AccuracyWarning, match=r"rows are negative, below the bound.*bound=\(-10, 10\)"):
        t = fastdp.totals(table, "v", epsilon=1.0, bound=10, seed=1)
    assert t.clipped_rows == pytest.approx(0.5, abs=0.02)
    assert "negative (below the bound)" in repr(t)
    assert np.isnan(t.interval(0, 1)[0]).all()
    with pytest.warns(AccuracyWarning, match="are negative"):
        fastdp.totals(pa.table({"v": np.full(20_000, -4.0)}), "v", epsilon=1.0, bound=10, seed=1)
    with pytest.warns(AccuracyWarning, match=r"are negative, below the clip.*clip=\(-10, 10\)"):
        fastdp.means(table, "v", epsilon=1.0, clip=10, seed=1)
    with pytest.warns(AccuracyWarning, match="lie above the bound"):
        fastdp.means(table, "v", epsilon=1.0, bound=(-10, 2), seed=1)
    t = fastdp.totals(table, "v", epsilon=1.0, bound=(-10, 10), seed=1)
    (low,), (high,) = t.interval(0, 1)
    assert low <= -20_000 <= high


@pytest.mark.parametrize(("rows", "epsilon"), [(300_000, 1.0), (30_000, 1.0), (3000, 100.0), (3000, 1e9)])
def test_a_total_of_many_rows_is_about_true_values(rows, epsilon):
    values = np.random.default_rng(0).gamma(2.0, 2.0, rows)
    for call, truth in ((fastdp.totals, values.sum()), (fastdp.means, values.mean())):
        t = call(pa.table({"v": values}), "v", epsilon=epsilon, bound=50.0, seed=4)
        row = t.arrow.to_pylist()[0]
        assert row["low"] <= truth <= row["high"]
        assert row["high"] - row["low"] < 0.06 * truth


# Rows of persons.


def test_dropped_rows_of_a_person_are_bounded():
    generator = np.random.default_rng(5)
    groups = np.concatenate([generator.integers(0, 6, 40), np.full(50, 6)])
    kept = generator.random(90) < 0.4
    naive_sum = sum(min(4 * 2, sum((groups == g) & ~kept)) for g in range(8))
    assert dropped_rows(groups, kept, 8, 2) == naive_sum
    moves = []
    for person in range(7):
        others = groups != person
        moves.append(naive_sum - dropped_rows(groups[others], kept[others], 8, 2))
    assert max(moves) == 8
    assert min(moves) >= 0


def test_numbers_of_rows_have_noise_of_their_sensitivity():
    frame = pa.table({"who": np.arange(40_000) // 5})
    rows = fastdp.counts(frame, epsilon=2.0, unit=fastdp.Person("who", rows=5), seed=1).released.rows
    assert rows.counted.variance == pytest.approx(2 * (5 / 0.02) ** 2, rel=1e-3)
    assert rows.dropped.variance == pytest.approx(2 * (20 / 0.1) ** 2, rel=1e-3)
    where = "a larger rows=, or a per="
    assert said(choices.warn_of_dropped, rows, 5, where) == []
    (many,) = said(choices.warn_of_dropped, rows._replace(dropped=rows.counted), 5, where)
    assert many.startswith("rows = 5: at least an estimated 50%")
    assert many.endswith(where)
    # Nor is the answer scaled up where rows that count are lost in noise, though not all together.
    lost = rows.counted._replace(variance=(rows.counted.value / 2.0) ** 2)
    assert said(choices.warn_of_dropped, rows._replace(counted=lost, dropped=rows.counted), 5, where) == []


def test_rows_are_chosen_by_how_many_persons_have_more_than_are_counted():
    assert choices.row_candidates(365).tolist() == [1, 2, 5, 10, 20, 50, 100, 200, 365]
    totals, candidates = np.random.default_rng(3).integers(1, 120, 100), [1, 2, 5, 10, 20]
    above = [int((totals > 5 * k).sum()) for k in candidates]
    found = []
    for noise, factor in (("laplace", math.sqrt(2)), ("gaussian", 1.0)):
        target = 4 * factor / 0.03 / 5 / math.sqrt(0.6)
        given = above, [float(k) for k in candidates], 1, 0.02, target
        for key in map(fastdp.Key.from_seed, range(10)):
            found.append(choices.choose_rows(totals, 20, 0.03, noise, 0.02, key))
            assert found[-1] == candidates[table_choices.best(*given, key.reveal(), "auto rows")]
    assert len(set(found)) > 1
    many = np.random.default_rng(1).geometric(0.02, 50_000)
    found = [choices.choose_rows(many, 1000, 0.03, "laplace", 0.02, fastdp.Key.from_seed(i)) for i in range(20)]
    assert found.count(50) + found.count(100) >= 15, "1 of 150 persons has more than 250 rows, and none 500"
