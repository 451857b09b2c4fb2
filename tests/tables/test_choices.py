"""Choices and numbers before the sums: the clip at both ends, rows beyond it, rows of persons."""

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
from fastdp.errors import AccuracyWarning
from fastdp.noise.sampler import noise_distribution
from fastdp.releases.intervals import DrawnNoise
from fastdp.tables import choices
from fastdp.tables.choices import ValueCounts
from fastdp.tables.consistent import Level
from fastdp.tables.quantities import Quantity
from fastdp.tables.released import Measured
from fastdp.tables.rows import dropped_rows
from fastdp.tables.shares import ColumnTask, shares_of
from fastdp.tables.tails import Number, count_tail, tail_edges
from tests.oracles import scale_free as naive
from tests.oracles import table_choices, words
from tests.tables import flat

TASK = ColumnTask((-40.0, 100.0), 1, 300.0, 0.01, 0.2, 0.14, "laplace", False, "euro", 24, 2.0)
KEY = fastdp.Key.from_seed(4)


def counted(values, bound=TASK.bound):
    found = ValueCounts(bound)
    found.observe(np.asarray(values, float))
    return found


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


def test_counts_of_one_purpose_have_the_noise_of_the_oracle():
    own = words.within(KEY.reveal(), "rows")
    noise = table_choices.bound_noise(own, [5, 70], [Fraction(8)] * 2)
    assert choices.noisy_counts([5, 70], 4, 0.5, KEY, "rows").tolist() == [5 + noise[0], 70 + noise[1]]


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


# The clip.


def test_candidates_and_counts_of_both_sides():
    values = [0.0, -0.0, 3.0, 3.0, 99.0, 500.0, -3.0, -50.0]
    found = counted(values)
    assert found.sides == [-1, 1]
    for side, inside in ((1, [3.0, 3.0, 99.0, 100.0]), (-1, [3.0, 40.0])):
        candidates, counts = found.candidates(side), found.counts(side)
        assert candidates[-1] == found.top(side) == (100.0 if side > 0 else 40.0)
        assert counts.sum() == len(values)
        assert int(counts[1:].sum()) == len(inside), "zeros and the other side lie below the lowest candidate"
        for i, candidate in enumerate(candidates):
            assert counts[i + 1 :].sum() == sum(v > candidate for v in inside)
    assert [ValueCounts(bound).sides for bound in ((2.0, 9.0), (-9.0, -2.0), (0.0, 9.0))] == [[1], [-1], [1]]
    # More rows than scores hold count as so many.
    found = counted([5.0])
    found._choosers[1].counts[3] = 2**50
    assert found.counts(1)[3] == choices.MAX_ROWS - 1, "one row lies above"
    assert found.counts(1).sum() == choices.MAX_ROWS


def ends_of_the_oracle(task, found, key, wanted=None):
    sides = {side: (found.top(side), found.counts(side).tolist()) for side in found.sides}
    given = task.contributions, task.counting, task.choosing, wanted or task.wanted
    return table_choices.clip(sides, *given, key.reveal())


@pytest.mark.parametrize("contributions", [1, 3])
@pytest.mark.parametrize("wanted", [300.0, 301.0, 3000.0])
def test_each_end_is_scale_frees_choice_of_its_side(wanted, contributions):
    """With the oracle's noise, so that other rows and scales share none; of k rows each has a k-th of the loss."""
    # Zeros are on neither side; the first side has fewer rows, so the dearer choice.
    values, task = np.append(refunds(), np.zeros(5000)), replace(TASK, wanted=wanted, contributions=contributions)
    for key, rows in itertools.product((KEY, fastdp.Key.from_seed(5)), (values, values[1:])):
        clip = quietly(choices.choose_clip, task, counted(rows), key)
        assert -40.0 < clip.low < 0.0 < clip.high < 100.0
        wanted_ends = ends_of_the_oracle(task, counted(rows), key)
        assert (-clip.low, clip.high) == (wanted_ends[-1][0], wanted_ends[1][0])
        assert clip.epsilon == wanted_ends[-1][1] >= wanted_ends[1][1]
    if wanted == 3000.0:
        assert -4.0 * clip.low < clip.high, "the sides differ as their values do"
        assert wanted_ends[-1][1] > wanted_ends[1][1]


def test_where_noise_follows_the_greater_end_both_are_as_far():
    values, follows = refunds(), replace(TASK, alike=True)
    apart, alike = (quietly(choices.choose_clip, task, counted(values), KEY) for task in (TASK, follows))
    assert alike[:2] == (-apart.high, apart.high)
    narrow = replace(follows, bound=(-1.0, 100.0))
    assert quietly(choices.choose_clip, narrow, counted(values, narrow.bound), KEY).low == -1.0


def of_persons(rows_of_each, values):
    found = ValueCounts(TASK.bound, persons=True)
    found.weigh(np.asarray(values, float), np.repeat(rows_of_each, rows_of_each))
    return found


def test_a_person_moves_the_counts_of_a_choice_by_one_weight():
    sizes, values = np.array([1, 3, 7, 5000]), refunds(5011)
    every, ends = of_persons(sizes, values), np.append(0, np.cumsum(sizes))
    for i in range(sizes.size):
        others = np.delete(values, np.arange(ends[i], ends[i + 1]))
        less = of_persons(np.delete(sizes, i), others)
        moved = [every.counts(side) - less.counts(side) for side in every.sides]
        above = [np.cumsum(each[::-1])[::-1] for each in moved]
        assert all((each >= 0).all() for each in above), "in one direction"
        assert sum(each[1:].max() for each in above) <= choices.WEIGHT
        assert sum(each[1].sum() for each in above) > 0.9 * choices.WEIGHT, "however many rows"

    empty = ValueCounts(TASK.bound, persons=True)
    empty.weigh(np.empty(0), np.empty(0, np.int64))
    assert not any(empty.counts(side).any() for side in empty.sides)
    one = of_persons([4, 1], [5.0, 5.0, 5.0, -3.0, 5.0])
    assert [int(one.counts(side)[1:].sum()) for side in (-1, 1)] == [1023, 3071 + 4095]


def test_a_person_beside_more_rows_than_scores_hold_moves_no_count_back():
    found = [of_persons([3] * 5, np.tile([1.0, 3.0, 9.0], 5)), of_persons([3] * 4, np.tile([1.0, 3.0, 9.0], 4))]
    sums = []
    for each in found:
        each._choosers[1].counts[40] += 2**62
        sums.append(np.cumsum(each.counts(1)[::-1]))
    assert (sums[0] >= sums[1]).all()
    assert (sums[0] - sums[1]).max() <= choices.WEIGHT
    assert sums[0].max() == choices.MAX_ROWS


def test_noise_of_a_choice_for_persons_follows_one_person():
    """With k rows of a person, noise has the scale of one weight, and the target is a share of the weights."""
    task, sizes = replace(TASK, contributions=20, wanted=4000.0), np.full(2000, 20)
    found = of_persons(sizes, refunds())
    clip = quietly(choices.choose_clip, task, found, KEY, Number(40_000.0, 0.0))
    # A person's weight is for 20 rows.
    weight = replace(task, contributions=choices.WEIGHT)
    sums = [int(found.counts(side)[1:].sum()) for side in found.sides]
    rows = choices.noisy_counts(sums, choices.WEIGHT, task.counting, KEY, "rows").tolist()
    persons = sum(rows) / choices.WEIGHT
    wanted = ends_of_the_oracle(weight, found, KEY, 4000.0 * (sum(rows) / min(40_000.0, persons * 20)))
    assert (-clip.low, clip.high) == (wanted[-1][0], wanted[1][0])
    assert clip.epsilon == wanted[-1][1]
    # Of 28,000 rows above 0 an eighth or so lies above; the choice by rows is the same where noise is small.
    above = (refunds() > clip.high).mean()
    assert 0.04 < above < 0.25
    # Of fewer rows the target is a greater share; of more than the persons can have, that of the most.
    assert quietly(choices.choose_clip, task, found, KEY, Number(10_000.0, 0.0)).high < clip.high
    assert quietly(choices.choose_clip, task, found, KEY, Number(1e9, 0.0)).high < 2.0 * clip.high


def test_a_side_with_next_to_no_rows_has_no_end_of_its_own():
    values = np.append(np.abs(refunds()), [-30.0] * 3)
    clips = [quietly(choices.choose_clip, TASK, counted(values), fastdp.Key.from_seed(k)) for k in range(20)]
    lowest = counted(values).candidates(-1)[0]
    assert all(-clip.low == lowest for clip in clips)
    few = [quietly(choices.choose_clip, TASK, counted([]), fastdp.Key.from_seed(k)) for k in range(20)]
    assert len({clip.high for clip in few}) > 1, "without rows on either side the choice is as before"


@pytest.mark.parametrize(("bound", "sign"), [((20.0, 100.0), 1.0), ((-100.0, -20.0), -1.0)])
def test_a_bound_on_one_side_of_zero_keeps_its_nearer_end(bound, sign):
    values = sign * np.random.default_rng(3).uniform(20.0, 60.0, 20_000)
    clip = quietly(choices.choose_clip, replace(TASK, bound=bound), counted(values, bound), KEY)
    near, far = (clip.low, clip.high) if sign > 0 else (clip.high, clip.low)
    assert near == 20.0 * sign
    assert 30.0 <= sign * far <= 100.0
    narrow = quietly(choices.choose_clip, replace(TASK, bound=bound), counted(values / 1e5, bound), KEY)
    assert max(narrow[:2], key=abs) == 30.0 * sign


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


@pytest.mark.parametrize(
    ("every", "windows", "together"),
    [("1h", 500, 24), ("15min", 500, 96), ("1h", 10, 10), ("1d", 3, 3), ("36h", 500, 7 * 24 / 36),
     ("1w", 500, 365 / 7), ("1mo", 500, 365 / 31), ("1y", 50, 1), ("1h", 0, 1)],
)  # fmt: skip
def test_the_clip_is_for_sums_of_longer_spans(every: str, windows: int, together: float) -> None:
    plan = flat.make_plan("totals", epsilon=1.0, every=every, bound=10.0, levels=False).settled(0, windows, 3)
    rest = 0.99 * (1.0 - 0.005 - 0.075 - 0.08)
    alone = 3 * max(1, windows) * np.sqrt(2.0) / rest
    assert shares_of(plan).wanted["values"] == pytest.approx(
        (alone if windows else np.sqrt(2.0) / rest) / together**0.25
    )


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


# Rows beyond the clip.


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_rows_beyond_the_clip_have_noise_of_a_units_rows(noise):
    task, clip, values = replace(TASK, contributions=5, noise=noise), (-1.0, 9.0), refunds()
    edges = tail_edges(clip, TASK.bound)
    counts = count_tail(values, edges)
    tail = choices.release_tail(task, clip, edges, counts, Number(40_000.0, 1.0), KEY)
    distribution = noise_distribution(noise, 5, 1, 0.14)
    assert tail.variance == pytest.approx((5 / 0.14) ** 2 * (2 if noise == "laplace" else 1), rel=1e-3)
    assert float(distribution.sigma if noise == "gaussian" else distribution.scale) == pytest.approx(5 / 0.14)
    drawn = tail.counts - counts[:-3]
    assert np.unique(drawn).size > counts.size / 2
    assert tail.share == pytest.approx(tail.counts.sum() / 40_000)
    # Bound to the counts, the edges and the budget.
    again = choices.release_tail(task, clip, edges, counts, Number(40_000.0, 1.0), KEY)
    np.testing.assert_array_equal(again.counts, tail.counts)
    more = choices.release_tail(
        task, clip, edges, counts + np.eye(1, counts.size, 0, dtype=np.int64)[0], Number(1.0, 1.0), KEY
    )
    other = choices.release_tail(task, clip, tail_edges((-1.0, 9.5), TASK.bound), counts, Number(1.0, 1.0), KEY)
    for each in (more, other):
        assert not np.array_equal(each.counts - counts[:-3], drawn)
        assert each.share is None
    assert choices.release_tail(task, clip, edges, counts, Number(0.0, 1.0), KEY).share is None
    # A share that its noise hides is unknown: .05 of the rows, beside no rows or half of them.
    for deviation, part, known in ((0.01, 0.0, True), (0.05, 0.0, False), (0.05, 0.5, True)):
        bins = counts.size - 3
        rows = math.sqrt(bins * tail.variance) / deviation
        some = np.append(np.full(bins, round(part * rows / bins)), [0, 0, 0])
        vague = choices.release_tail(task, clip, edges, some, Number(rows, 1.0), KEY)
        assert (vague.share is not None) == known
    none = choices.release_tail(
        task, TASK.bound, tail_edges(TASK.bound, TASK.bound), counts[-3:], Number(1e6, 1.0), KEY
    )
    assert none.counts.size == 0
    assert none.share == 0.0


def a_tail(counts, outside=(0, 0), variance=400.0, resolved=True):
    clip = (0.0, 60.0)
    return choices.Tail(
        clip, tail_edges(clip, (0.0, 100.0)), np.array([counts, 0]), variance, None, outside, resolved=resolved
    )


def test_most_rows_beyond_the_clip_are_warned_of():
    whole, deviation = Number(30_000.0, 1e4), math.sqrt(2 * 400.0 + 0.25 * 1e4)
    for more, expected in ((0.0, 0), (2.0, 0), (5.0, 1), (12_000.0 / deviation, 1)):
        tail = a_tail(15_000 + int(more * deviation))
        warned = said(choices.warn_of_clip, "euro", tail, (0.0, 100.0), whole)
        assert len(warned) == expected
        assert all(each.startswith("euro: an estimated ") for each in warned)
    few = Number(5000.0, 1e6)
    assert said(choices.warn_of_clip, "euro", a_tail(5000), (0.0, 100.0), few) == [], "too few to know"


def test_rows_past_the_bound_are_warned_of_where_they_stand_out():
    whole, bound = Number(30_000.0, 1e4), (0.0, 100.0)
    assert said(choices.warn_of_clip, "euro", a_tail(0, (89, 89)), bound, whole) == []
    (below,) = said(choices.warn_of_clip, "euro", a_tail(0, (91, 0)), bound, whole)
    assert "91 rows are negative, below the bound, and count as 0; expected bound=(-100, 100)" in below
    (above,) = said(choices.warn_of_clip, "euro", a_tail(0, (0, 91)), bound, whole)
    assert "91 rows lie above the bound and count as 100" in above
    (least,) = said(choices.warn_of_clip, "euro", a_tail(0, (91, 0)), (2.0, 100.0), whole)
    assert "91 rows lie below the bound and count as 2" in least


@pytest.mark.parametrize(("size", "cells", "expected"), [(3.0, 9, 0), (1.9, 9, 1), (1.9, 1, 1), (0.0, 0, 0)])
def test_noise_as_large_as_the_number_is_warned_of(size, cells, expected):
    """Of a sum, and of a mean of values in [0, 10], which are 5 from its middle at most."""
    noise, tail = DrawnNoise(Fraction(1000)), a_tail(0, resolved=False)
    deviation = math.sqrt(noise.variance)
    for name, steps in (
        ("total", [math.hypot(size, 1.0) * deviation] * 2),
        ("deviation", [0.0, size * deviation / 5]),
    ):
        quantities = Quantity(name, "euro", 0, 10), Quantity("count")
        found = np.broadcast_to(np.rint(steps).astype(np.int64)[:, None, None], (2, cells, 1))
        warned = said(
            choices.warn_of_noise, "euro", tail, Measured(Level(0, True), quantities, found, (noise, noise))
        )
        assert len(warned) == expected
        assert all(("all rows" in each) == (cells == 1) and "too few nonzero" in each for each in warned)
    assert not said(
        choices.warn_of_noise,
        "euro",
        a_tail(0, (500, 0)),
        Measured(Level(0, True), quantities, found, (noise, noise)),
    )


# A choice that released numbers do not resolve.


def small_tables():
    """By name: values, their windows and persons, options."""
    rng = np.random.default_rng(1)
    night = {"every": "1h", "epsilon": 0.4, "bound": 100.0}
    fares = np.clip(3.0 + rng.gamma(2.0, 5.0, 257), 0.0, 90.0)
    zeros = np.where(rng.random(4000) < 0.99, 0.0, np.clip(rng.gamma(2.0, 5.0, 4000), 0.0, 90.0))
    bursts = np.where(rng.random(400) < 0.02, rng.uniform(300.0, 900.0, 400), rng.gamma(2.0, 0.5, 400))
    shop = np.clip(rng.lognormal(2.5, 0.8, 150 * 30), 0.0, 480.0)
    customers = fastdp.Person("who", 60)
    return {
        "fares": (fares, night),
        "with delta": (fares, night | {"delta": 1e-6}),
        "zeros": (zeros, night | {"epsilon": 1.0}),
        "bursts": (bursts, night | {"epsilon": 0.2, "bound": 1000.0}),
        "persons": (shop, {"epsilon": 1.0, "bound": 500.0, "unit": customers}),
        "grand total": (shop, {"epsilon": 0.1, "bound": 500.0, "unit": customers}),
        "means": (fares, night | {"means": True}),
    }


def small(name, seed):
    values, options = small_tables()[name]
    options = dict(options)
    hours = np.arange(values.size) * 9 // values.size
    table = pa.table({"at": 3600 * hours, "v": values, "who": np.arange(values.size) % 150})
    if every := options.pop("every", None):
        options["time"] = fastdp.Time("at", every, unit="s", start="1970-01-01", stop="1970-01-01T09:00")
    call = fastdp.means if options.pop("means", False) else fastdp.totals
    return quietly(lambda: call(table, "v", seed=seed, **options)), values, options


@pytest.mark.parametrize("name", small_tables())
def test_a_choice_that_resolves_nothing_falls_to_the_bound(name):
    """Sums were 0 +- next to nothing, so that intervals excluded the truth."""
    held = []
    for seed in range(20):
        t, values, options = small(name, seed)
        tail = t.released.tails["v"]
        truth = values.mean() if name == "means" else values.sum()
        (low,), (high,) = t.interval(0, len(t))
        held.append(low <= truth <= high)
        if not tail.resolved:
            assert flat.clip(t.released) == (0.0, options["bound"])
            assert tail.edges[1].tolist() == [options["bound"]]
        assert flat.clip(t.released)[1] > 1.0
        assert t.guarantee.epsilon == options["epsilon"]
    assert sum(held) >= 16
    assert "no clip below the bound" in repr(t)


def test_values_that_noise_may_hide_beyond_the_clip_are_warned_of():
    """A few values make up the sum: the interval holds it, or the table says that it is about clipped values."""
    values = np.concatenate([np.full(100_000, 0.01), np.full(20, 500.0)])
    for seed in range(5):
        with pytest.warns(AccuracyWarning, match="may hide in the noise"):
            t = fastdp.totals(pa.table({"v": values}), "v", epsilon=1.0, bound=1000.0, seed=seed)
        assert t.frame["about"].to_pylist() == ["clipped"]


def test_negative_rows_of_a_small_table_are_named():
    values = np.random.default_rng(1).normal(1.0, 3.0, 300)
    with pytest.warns(AccuracyWarning, match="negative"):
        t = fastdp.totals(pa.table({"v": values}), "v", epsilon=1.0, bound=10.0, seed=1)
    assert "negative" in repr(t)


def test_a_resolved_choice_does_not_depend_on_the_bound_alone():
    """Bytes under a far bound: the largest value is a billionth of it."""
    table = pa.table({"v": np.random.default_rng(1).gamma(2.0, 4.0, 20_000)})
    with pytest.warns(AccuracyWarning, match="a nearer bound"):
        t = fastdp.totals(table, "v", epsilon=1.0, bound=3e10, seed=1)
    assert t.released.tails["v"].resolved
    assert 5.0 < flat.clip(t.released)[1] < 100.0


def test_a_clip_is_resolved_by_rows_within_it_beside_those_beyond_it():
    edges, whole = tail_edges((0.0, 10.0), (0.0, 100.0)), Number(1e6, 1.0)
    task = replace(TASK, bound=(0.0, 100.0), tail=1e3)
    bins = edges[1].size - 1
    for inside, beyond, counted, resolved in (
        (5000, 0, False, True), (0, 0, False, False), (0, 0, True, True), (5000, 9900, False, True),
        (5000, 10_200, False, False), (5000, 10_200, True, False),
    ):  # fmt: skip
        counts = np.array([beyond, *[0] * (bins - 1), 0, 0, inside])
        tail = choices.release_tail(task, (0.0, 10.0), edges, counts, whole, KEY, counted=counted)
        assert tail.resolved == resolved


def test_negative_values_under_one_bound_are_named():
    table = pa.table({"v": np.tile([3.0, -4.0], 20_000)})
    with pytest.warns(AccuracyWarning, match=r"rows are negative, below the bound.*bound=\(-10, 10\)"):
        t = fastdp.totals(table, "v", epsilon=1.0, bound=10, seed=1)
    assert t.clipped_rows == pytest.approx(0.5, abs=0.02)
    assert "negative (below the bound)" in repr(t)
    assert t.arrow["about"].to_pylist() == ["clipped"]
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
        t = call(pa.table({"v": values}), "v", epsilon=epsilon, bound=50.0, seed=3)
        row = t.arrow.to_pylist()[0]
        assert row["about"] == "true"
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
    assert rows.dropped.variance == pytest.approx(2 * (20 / 0.06) ** 2, rel=1e-3)
    where = "a larger rows=, or a per="
    assert said(choices.warn_of_dropped, rows, 5, where) == []
    (many,) = said(choices.warn_of_dropped, rows._replace(dropped=rows.counted), 5, where)
    assert many.startswith("rows = 5: at least an estimated 50%")
    assert many.endswith(where)


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
