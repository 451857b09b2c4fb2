"""Least squares of all levels, their shares of the budget, and sums that are revised by patterns and frequencies."""

from __future__ import annotations

import itertools
import math
from datetime import datetime

import numpy as np
import pytest
from scipy import fft

from fastdp.tables import consistent as revised
from fastdp.tables.consistent import ASKED, GROWTH, Level, consistent, level_shares, local_patterns
from fastdp.units import zone_of
from tests.oracles import dense

#: Key trees as parents of depths 1, 2, ...: no keys, one column, two with children in any order, three, single nodes.
TREES = {
    "none": [],
    "one": [np.zeros(5, np.int64)],
    "two": [np.zeros(3, np.int64), np.array([2, 0, 1, 2, 2, 0])],
    "three": [np.zeros(2, np.int64), np.array([0, 1, 1]), np.array([1, 2, 0, 1])],
    "chain": [np.zeros(1, np.int64), np.zeros(2, np.int64)],
}


@pytest.mark.parametrize("windows", [1, 2, 7])
@pytest.mark.parametrize("tree", TREES)
def test_least_squares_of_any_measurements(tree, windows):
    parents, rng = TREES[tree], np.random.default_rng(5)
    leaves = len(parents)
    others = [(d, each) for d in range(leaves + 1) for each in (True, False) if (d, each) != (leaves, True)]
    chosen = [those for n in range(len(others) + 1) for those in itertools.combinations(others, n)]
    for those in [chosen[0], chosen[-1], *rng.permutation(np.array(chosen, object))[:8].tolist()]:
        measured = []
        for depth, each in [(leaves, True), *those]:
            size = parents[depth - 1].size if depth else 1
            values = rng.normal(0.0, 10.0, (windows if each else 1, size))
            measured.append((depth, each, values, float(rng.uniform(0.2, 9.0))))
        found = consistent([(Level(d, e), y, v) for d, e, y, v in measured], parents)
        cells, covariance = dense.fitted(measured, parents, windows)
        for depth in range(leaves + 1):
            tree_rows = dense.rows(parents, windows, depth, True)
            np.testing.assert_allclose(found.values[depth].ravel(), tree_rows @ cells, atol=1e-9)
            for start, stop in ((0, 1), (0, windows), (windows // 2, windows)):
                ask = tree_rows.reshape(windows, -1, cells.size)[start:stop].sum(axis=0)
                np.testing.assert_allclose(
                    found.sums(depth, np.array([start]), np.array([stop]))[0], ask @ cells, atol=1e-9
                )
                variances = np.einsum("ij,jk,ik->i", ask, covariance, ask)
                np.testing.assert_allclose(
                    found.variances(depth, np.array([start]), np.array([stop]))[0], variances, rtol=1e-9
                )


def test_cells_alone_come_back_unchanged():
    cells = np.random.default_rng(1).integers(-(2**40), 2**40, (50, 6)).astype(float)
    found = consistent([(Level(2, True), cells, 3.0)], TREES["two"])
    np.testing.assert_array_equal(found.values[2], cells)
    np.testing.assert_array_equal(found.values[0][:, 0], cells.sum(axis=1))
    np.testing.assert_allclose(
        found.variances(0, np.array([3, 0, 0]), np.array([4, 9, 50]))[:, 0], [18.0, 162.0, 900.0]
    )
    for cells, parents in ((np.zeros((0, 5)), TREES["one"]), (np.zeros((4, 0)), [np.zeros(0, np.int64)])):
        whole = Level(0, False), np.full((1, 1), 7.0), 2.0
        assert consistent([(Level(1, True), cells, 3.0), whole], parents).values[1].shape == cells.shape


def listed_shares(windows, nodes, levels, gaussian):
    found = level_shares(windows, nodes, levels, gaussian=gaussian)
    return [(*level, float(share)) for level, share in found.items()]


def deviations(shares, windows, nodes, gaussian):
    """Standard errors of all levels on a balanced tree, in units of the budget's own, by the dense oracle."""
    parents = [np.repeat(np.arange(a), b // a) for a, b in itertools.pairwise(nodes)]
    measured = []
    for depth, each, share in shares:
        size = (windows if each else 1, nodes[depth])
        measured.append((depth, each, np.zeros(size), share ** (-1.0 if gaussian else -2.0)))
    covariance = dense.fitted(measured, parents, windows)[1]
    found = {}
    for depth in range(len(nodes)):
        for each in (True, False) if windows > 1 else (True,):
            ask = dense.rows(parents, windows, depth, each)[0]
            found[depth, each] = math.sqrt(ask @ covariance @ ask)
    return found


@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize(("levels", "growth"), [(True, ASKED), (None, GROWTH)])
@pytest.mark.parametrize(
    ("windows", "nodes"), [(1, [1, 8, 96]), (24, [1, 3]), (168, [1]), (30, [1, 8]), (2, [1, 2]), (6, [1, 4, 8])]
)
def test_levels_cost_a_cell_little_and_beat_equal_shares_of_that(windows, nodes, levels, growth, gaussian):
    shares = listed_shares(windows, nodes, levels, gaussian)
    assert math.isclose(sum(share for *_, share in shares), 1.0)
    cells = len(nodes) - 1, True
    assert shares[0][:2] == cells
    spans = (True, False) if windows > 1 else (True,)
    others = [(depth, each) for depth in range(len(nodes)) for each in spans if (depth, each) != cells]
    own = growth ** (-1.0 if gaussian else -0.5)
    equal = [(*cells, own), *((*level, (1.0 - own) / len(others)) for level in others)]
    found, other, alone = (deviations(each, windows, nodes, gaussian) for each in (shares, equal, [(*cells, 1.0)]))
    assert found[cells] ** 2 <= growth * (1.0 + 1e-9)
    best, rest, none = (sum(map(math.log, each.values())) for each in (found, other, alone))
    # Shares are whole points.
    assert best < min(rest + 0.02, none + 1e-9)


def test_cells_alone_where_nothing_else_is_wanted():
    assert level_shares(24, [1, 9], False, gaussian=False) == {Level(1, True): 1}
    assert level_shares(1, [1], True, gaussian=False) == {Level(0, True): 1}
    assert level_shares(24, [1, 0], True, gaussian=False) == {Level(1, True): 1}
    # A column with one value repeats the level before it: no share for both.
    assert {level.depth for level in level_shares(24, [1, 1, 5], True, gaussian=True)} == {1, 2}


# Revised sums.

HOUR, DAY = 3_600_000_000, 86_400_000_000
#: 2015-01-01 00:00 in Melbourne.
BEGIN = 1_420_030_800_000_000
HOURS = np.arange(24 * 7 * 8)
EDGES = BEGIN + HOUR * np.arange(HOURS.size + 1)


class Alone:
    """Columns that are smoothed separately, as roots of trees of their own."""

    def __init__(self, estimates, noise, patterns=()):
        self.of = revised.revise(consistent([(Level(0, True), estimates, noise)], []), [], patterns)
        self.values, self.smoothed = self.of.values[0], self.of.smoothed[0]
        windows = np.arange(len(estimates))
        self.variances = self.of.variances(0, windows, windows + 1)

    def sum_variance(self, start, stop):
        return self.of.variances(0, np.array([start]), np.array([stop]))[0]


revise = Alone


def test_estimates_without_noise_and_noise_alone():
    """They come back, or become their mean; few windows and constant streams stay as they are."""
    estimates = np.random.default_rng(1).normal(100.0, 30.0, (HOURS.size, 3))
    smooth = revise(estimates, 1e-12, local_patterns(EDGES, None))
    np.testing.assert_allclose(smooth.values, estimates, atol=1e-6)
    np.testing.assert_allclose(smooth.variances, 1e-12, rtol=1e-3)
    np.testing.assert_allclose(revise(estimates, 0.0).values, estimates, atol=1e-9)
    alone = 50.0 + np.random.default_rng(2).laplace(0.0, 10.0, (HOURS.size, 20))
    smooth = revise(alone, 200.0, local_patterns(EDGES, None))
    assert np.mean((smooth.values - 50.0) ** 2) < 0.05 * 200.0
    assert np.mean(np.abs(smooth.values - 50.0) <= 2.0 * np.sqrt(smooth.variances)) > 0.94
    for windows in (1, 2, 3):
        few = np.array([[3.0], [-40.0], [7.0]])[:windows]
        np.testing.assert_allclose(revise(few, 25.0).values, few)
        np.testing.assert_allclose(revise(few, 25.0).variances, 25.0)
    for level, noise in itertools.product((0.0, 1e-300, 1e200, -1e200), (1e-250, 1.0, 1e250)):
        smooth = revise(np.full((200, 2), level), noise)
        np.testing.assert_allclose(smooth.values, np.full((200, 2), level), rtol=1e-12)
        assert np.all(np.isfinite(smooth.variances))


@pytest.mark.parametrize("noise", [0.1, 3.0, 300.0])
@pytest.mark.parametrize("stream", ["pattern", "drift", "spikes", "white", "steps"])
def test_never_worse_than_the_estimates(stream, noise):
    rng = np.random.default_rng(3)
    t = HOURS[:, None] / HOURS.size
    true = {
        "pattern": 30.0 * np.sin(2.0 * np.pi * HOURS / 24)[:, None] + 10.0 * (HOURS[:, None] // 24 % 7 == 5),
        "drift": 100.0 * t + 30.0 * np.sin(3.0 * t),
        "spikes": 500.0 * (rng.random((HOURS.size, 1)) < 0.01),
        "white": rng.exponential(30.0, (HOURS.size, 1)),
        "steps": 80.0 * (t > 0.4),
    }[stream] + np.zeros((1, 20))
    estimates = true + rng.laplace(0.0, noise / np.sqrt(2.0), true.shape)
    smooth = revise(estimates, noise**2, local_patterns(EDGES, None))
    ratio = np.mean((smooth.values - true) ** 2) / noise**2
    assert ratio < 1.05
    if stream in ("pattern", "drift", "steps") and noise >= 3.0:
        assert ratio < 0.5
    # Wide enough for Laplace noise that nothing takes away.
    assert np.mean(np.abs(smooth.values - true) <= 2.12 * np.sqrt(smooth.variances)) > 0.94


def test_blocks_have_the_noise_that_patterns_left():
    """The pattern of the day takes 23 of the coefficients of the noise besides the mean, evenly out of all blocks."""
    rng, noise = np.random.default_rng(6), 4.0
    estimates = rng.normal(50.0, 2.5, (HOURS.size, 3))
    phases = HOURS % 24
    smooth = revise(estimates, noise, [phases])
    rest = estimates - np.array([estimates[phases == phase].mean(axis=0) for phase in phases])
    waves, left = fft.dct(rest, axis=0, norm="ortho"), 1.0 - 23.0 / (HOURS.size - 1)
    for b in range(1, int(smooth.smoothed.block.max()) + 1):
        inside = smooth.smoothed.block == b
        size, energy = inside.sum() * left, (waves[inside] ** 2).sum(axis=0) / noise
        lost = (size - 2.0) / np.maximum(energy, size - 2.0)
        np.testing.assert_allclose(smooth.smoothed.kept[b], left * np.minimum(1.0, 1.0 - lost + 2.0 * lost / size))


def test_patterns_follow_the_local_clock():
    # Eight weeks around the end of summer time in Melbourne, 5 April 2015: by UTC the pattern shifts by an hour.
    edges = BEGIN + DAY * 70 + HOUR * np.arange(HOURS.size + 1)
    local, fixed = local_patterns(edges, "Australia/Melbourne"), local_patterns(edges, "UTC")
    clock = local[0]
    true = np.zeros((HOURS.size, 10))
    true[clock == 8] = 200.0
    rng = np.random.default_rng(4)
    estimates = true + rng.laplace(0.0, 20.0, true.shape)
    errors = [np.mean((revise(estimates, 800.0, each).values - true) ** 2) for each in (local, fixed)]
    assert errors[0] < 0.2 * 800.0
    assert errors[0] < 0.5 * errors[1]


def test_patterns_refine_each_other_and_know_the_week():
    day, weekend, week = local_patterns(EDGES, "Australia/Melbourne")
    assert (day.max(), week.max()) == (23, 7 * 24 - 1)
    # 1 January 2015 was a Thursday.
    assert day[0] == 0
    assert set(week[:24] // 24) == {3}
    assert set((weekend // 24)[24 * 2 : 24 * 4]) == {1}
    assert set((weekend // 24)[: 24 * 2]) == {0}
    for fine, coarse in ((weekend, day), (week, weekend)):
        assert all(np.unique(coarse[fine == phase]).size == 1 for phase in np.unique(fine))


def test_windows_of_other_lengths():
    def count(length, windows, zone=None):
        return [int(p.max()) + 1 for p in local_patterns(length * np.arange(windows + 1), zone)]

    assert count(HOUR // 4, 96 * 20) == [96, 192, 672]
    assert count(DAY, 100, "Europe/London") == [2, 7]
    assert count(7 * HOUR, 100) == []
    assert count(7 * DAY, 100) == []
    assert count(HOUR, 30) == []
    assert count(HOUR, 50) == [24]


def test_variances_are_those_of_the_smoother():
    rng = np.random.default_rng(5)
    estimates = 40.0 * np.sin(HOURS / 4.0)[:, None] + rng.laplace(0.0, 10.0, (HOURS.size, 3))
    smooth = revise(estimates, 200.0, local_patterns(EDGES, None))
    for at in (0, 1, 77, HOURS.size - 1):
        np.testing.assert_allclose(smooth.sum_variance(at, at + 1), smooth.variances[at], rtol=0.15)
    # All windows together: their mean is as it was released.
    np.testing.assert_allclose(smooth.sum_variance(0, HOURS.size), 200.0 * HOURS.size)
    np.testing.assert_allclose(smooth.values.sum(axis=0), estimates.sum(axis=0))


@pytest.mark.parametrize("windows", [1, 2, 9, 50, 61])
def test_variances_without_patterns_are_exact(windows: int) -> None:
    noise = np.array([4.0, 9.0])
    found = revised.smooth(np.random.default_rng(6).normal(0, 3, (windows, 2)).cumsum(axis=0), noise)
    kept, transform = found.kept[found.block], fft.dct(np.eye(windows), axis=0, norm="ortho")
    kept[0] = 0.0
    for k in range(2):
        expected = noise[k] * np.diag(transform.T @ np.diag(kept[:, k]) @ transform)
        np.testing.assert_allclose(found.variances[:, k], expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    "zone", ["Europe/Paris", "Australia/Lord_Howe", "Pacific/Apia", "+05:30", "Africa/Casablanca"]
)
def test_patterns_are_of_the_local_clock(zone: str) -> None:
    """Over clock changes, window by window as Python has it."""
    edges = (np.datetime64("2011-10-01", "us") + np.arange(24 * 700) * np.timedelta64(1, "h")).astype(np.int64)
    clock = [datetime.fromtimestamp(each / 1e6, zone_of(zone)) for each in edges[:-1].tolist()]
    day, _, week = local_patterns(edges, zone)
    assert day.tolist() == [each.hour for each in clock]
    assert week.tolist() == [each.hour + 24 * each.weekday() for each in clock]


def test_keys_are_smoothed_each_by_itself():
    # More cells than are smoothed at a time: in parts of so many keys.
    part, rng = 2**21 // 300, np.random.default_rng(7)
    estimates = rng.laplace(0.0, 10.0, (300, part + 100)) + np.arange(part + 100.0) % 7 * 50.0
    phases = [np.arange(300) % 24]
    whole = revise(estimates, 200.0, phases)
    for k in (0, 1, part - 1, part, part + 1, part + 99):
        alone = revise(estimates[:, [k]], 200.0, phases)
        np.testing.assert_allclose(alone.values[:, 0], whole.values[:, k])
        np.testing.assert_allclose(alone.variances[:, 0], whole.variances[:, k])
        np.testing.assert_allclose(alone.sum_variance(3, 50)[0], whole.sum_variance(3, 50)[k])


@pytest.mark.parametrize("strength", [0.0, 1.0, 5.0])
def test_model_variances_cover_the_errors(strength):
    rng = np.random.default_rng(9)
    true = strength * (4.0 * np.sin(HOURS / 100.0) + np.sin(2.0 * np.pi * HOURS / 24))[:, None] + np.zeros((1, 40))
    smooth = revise(true + rng.normal(0.0, 3.0, true.shape), 9.0, local_patterns(EDGES, None))
    # Where nearly everything is noise the model is on the safe side.
    assert 1.0 < np.mean(smooth.variances) / np.mean((smooth.values - true) ** 2) < 5.0


@pytest.mark.parametrize("name", ["one", "two", "three"])
def test_revised_children_add_up_to_their_parents(name):
    parents, rng = TREES[name], np.random.default_rng(10)
    cells = rng.gamma(2.0, 5.0, (HOURS.size, parents[-1].size)) + rng.laplace(
        0.0, 20.0, (HOURS.size, parents[-1].size)
    )
    whole = Level(0, False), np.array([[cells.sum() + 90.0]]), 1e4
    exact = consistent([(Level(len(parents), True), cells, 800.0), whole], parents)
    found = revised.revise(exact, parents, local_patterns(EDGES, None))
    for depth, up in enumerate(parents):
        total = np.zeros(found.values[depth].shape)
        np.add.at(total.T, up, found.values[depth + 1].T)
        np.testing.assert_allclose(total, found.values[depth], atol=1e-8)
        # Over all windows the sums and their errors are those of least squares.
        np.testing.assert_allclose(found.values[depth].sum(axis=0), exact.values[depth].sum(axis=0))
    windows = np.array([0]), np.array([HOURS.size])
    np.testing.assert_allclose(found.variances(1, *windows)[0], exact.total[1])


@pytest.mark.parametrize("noise", [3.0, 30.0, 300.0])
def test_revised_keys_share_the_pattern_of_all(noise):
    """Keys that are shares of one series: errors far below those of keys alone, and covered; totals no worse."""
    rng, parents = np.random.default_rng(11), [np.zeros(30, np.int64)]
    series = 40.0 + 30.0 * np.sin(2.0 * np.pi * HOURS / 24) + 10.0 * (HOURS // 24 % 7 == 5)
    shares = 1.0 / np.arange(1.0, 31.0)
    true = series[:, None] * shares
    estimates = true + rng.laplace(0.0, noise / np.sqrt(2.0), true.shape)
    exact = consistent([(Level(1, True), estimates, noise**2)], parents)
    patterns = local_patterns(EDGES, None)
    found, alone = revised.revise(exact, parents, patterns), revise(estimates, noise**2, patterns)
    errors = [np.mean((each - true) ** 2) for each in (found.values[1], alone.values, estimates)]
    assert errors[0] < 1.02 * errors[1]
    assert errors[0] < 0.3 * errors[2]
    totals = [
        np.mean((each.sum(axis=1) - true.sum(axis=1)) ** 2) for each in (found.values[1], alone.values, estimates)
    ]
    assert totals[0] < 1.25 * totals[1]
    assert totals[0] < totals[2]
    windows = np.arange(HOURS.size)
    for depth, wanted in ((0, true.sum(axis=1, keepdims=True)), (1, true)):
        for starts, stops in ((windows, windows + 1), (windows[:-24], windows[:-24] + 24)):
            sums = np.array([wanted[a:b].sum(axis=0) for a, b in zip(starts, stops, strict=True)])
            error = np.sqrt(found.variances(depth, starts, stops))
            assert np.mean(np.abs(found.sums(depth, starts, stops) - sums) <= 2.12 * error) > 0.93


def test_the_variance_of_a_range_is_that_of_its_patterns_and_frequencies():
    windows, noise = 96, 4.0
    day, both = np.arange(windows) % 24, np.arange(windows) % 48
    estimates = 9.0 * np.sin(day / 4.0)[:, None] + np.random.default_rng(12).normal(0.0, 2.0, (windows, 2))
    found = revised.smooth(estimates, np.full(2, noise), [day, both])
    rest, wanted = np.zeros(windows), 0.0
    rest[7:40] = 1.0
    rest -= rest.mean()
    for phases, (_, kept) in zip((day, both), found.patterns, strict=True):
        pattern = np.array([rest[phases == phase].mean() for phase in phases])
        wanted, rest = wanted + kept * (pattern @ pattern), rest - pattern
    wanted += fft.dct(rest, norm="ortho") ** 2 @ found.kept[found.block]
    np.testing.assert_allclose(found.sum_variances(np.array([7]), np.array([40]))[0], noise * wanted)
