"""Intervals of answers, and the law of sums of Laplace noise."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

import fastdp
from fastdp.errors import ParameterError, StateError
from fastdp.perturbers import Blocks, Flat, Hierarchy
from fastdp.releases.intervals import (
    DrawnNoise,
    SumNoise,
    counter_draws,
    hidden_beyond,
    hidden_of_ends,
    laplace_sum_quantile,
    laplace_sum_quantiles,
    laplace_variance,
    rate_of_blocks,
    tree_variances,
    wider_quantile,
)
from fastdp.thresholds import Fixed, TruePercentile
from fastdp_kernels.streams import revision
from tests import stat
from tests.oracles.beyond import allowed_beyond
from tests.oracles.error_bars import consistent_covariance, counter_nodes, shares
from tests.oracles.laplace_sums import inside_exact, real_tail
from tests.shared import finished, release_many

VALUES = np.random.default_rng(5).integers(0, 20, 6000).astype(float)
THETA, EPSILON = 16.0, 0.5
KINDS = {
    "flat": Flat(),
    "nodes": Hierarchy(2, consistent=False, prune=0),
    "tree": Hierarchy(4, prune=0),
    "cut tree": Hierarchy(4, prune=2),
    "blocks": Blocks(),
}


def publisher(kind: str, seed: int = 1, **options) -> fastdp.StreamPublisher:
    perturber = KINDS[kind]
    smoother = fastdp.smoothers.Recent() if kind == "cut tree" else None
    parts = {"threshold": THETA, "epsilon": EPSILON, "bound": 64, "max_range": 4096, "seed": seed}
    return fastdp.StreamPublisher(perturber=perturber, smoother=smoother, **(parts | options))


@pytest.fixture(scope="module")
def releases() -> dict[str, fastdp.Release]:
    made = {kind: publisher(kind).release(VALUES) for kind in KINDS}
    made["pak"] = fastdp.PAK(EPSILON, 1e-6, 64, 6000, holdout=500, seed=1).release(VALUES)
    made["topl"] = fastdp.ToPL(EPSILON, 64, holdout=500, max_range=4096, seed=1).release(VALUES)
    return made | {kind: chosen(kind) for kind in CHOSEN}


#: Methods whose theta is chosen by ScaleFree: theta rises, or stays.
CHOSEN = ("rising", "chosen")


def heavy(kind: str, seed: int) -> np.ndarray:
    """Values with a heavy tail, which grow where theta may rise."""
    values = np.random.default_rng(seed).pareto(2.0, 12_000) * 4.0
    return values * np.geomspace(1.0, 30.0, values.size) if kind == "rising" else values


def chosen(kind: str, seed: int = 1) -> fastdp.Release:
    values = heavy(kind, seed)
    parts = {"threshold": fastdp.thresholds.ScaleFree(), "epsilon": 2.0, "bound": 2000.0}
    return publisher("blocks" if kind == "rising" else "cut tree", seed, **parts, holdout=3000).release(values)


def pairs(release: fastdp.Release, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    starts, stops = np.sort(np.random.default_rng(seed).integers(0, len(release) + 1, (2, 300)), axis=0)
    return starts, stops


def in_other_units(release: fastdp.Release, shift: int) -> fastdp.Release:
    """The release times 2^`shift`."""
    factor, noise, nodes = math.ldexp(1.0, shift), release.noise, release.nodes
    return replace(
        release,
        values=release.values * factor,
        thresholds=release.thresholds * factor,
        nodes=nodes and replace(nodes, sums=nodes.sums * factor),
        revisions=tuple(replace(each, threshold=each.threshold * factor) for each in release.revisions),
        noise=replace(noise, resolution=noise.resolution * factor, bound=noise.bound * factor),
    )


@pytest.mark.parametrize("kind", [*KINDS, "pak", "topl", "rising"])
@pytest.mark.parametrize("shift", [-450, 450])
def test_a_release_in_other_units_has_the_same_intervals(releases, kind: str, shift: int) -> None:
    release = releases[kind]
    other, (starts, stops) = in_other_units(release, shift), pairs(release)
    for mine_, its_ in ((release, other), (release.revised, other.revised)):
        for mine, its in zip(
            (*mine_.interval(starts, stops, 0.9), mine_.std_error(starts, stops)),
            (*its_.interval(starts, stops, 0.9), its_.std_error(starts, stops)),
            strict=True,
        ):
            assert np.array_equal(np.ldexp(its, -shift), mine)


@pytest.mark.parametrize("bound", [1e-250, 1e250])
@pytest.mark.parametrize("method", ["adaptive", "tops", "pak"])
def test_bounds_whose_squares_no_float_holds_have_intervals(bound: float, method: str) -> None:
    options = {"threshold": bound / 2.0} if method == "adaptive" else {}
    release = finished(method, 500, 1.0, bound, seed=1, **options).release(VALUES[:500] / 64.0 * bound)
    for answer in (release, release.revised):
        low, high = answer.interval([0, 3], [len(release), 9])
        errors = answer.std_error([0, 3], [len(release), 9])
        assert np.isfinite([low, high, errors]).all()
        assert (errors > 0.0).all()


@pytest.mark.parametrize("kind", [*KINDS, "pak", "topl", *CHOSEN])
@pytest.mark.parametrize("revised", [False, True])
def test_an_interval_holds_its_answer_and_grows_with_the_confidence(releases, kind: str, revised: bool) -> None:
    release = releases[kind].revised if revised else releases[kind]
    starts, stops = pairs(release)
    starts[0] = stops[0]
    low, high = release.interval(starts, stops)
    answers = release.sum(starts, stops)
    assert (low[0], high[0]) == (0.0, 0.0)
    assert ((low <= answers) & (answers <= high)).all()
    wider = release.interval(starts, stops, 0.999)
    assert (wider[0] <= low).all()
    assert (wider[1] >= high).all()
    assert (wider[1] - wider[0] > high - low).any()
    assert ((release.std_error(starts, stops) > 0.0) == (stops > starts)).all()
    if kind in KINDS and revised:
        assert (low >= np.minimum(answers, 0.0)).all()
        assert (high <= np.maximum(answers, (stops - starts) * THETA)).all()


def grown_means(release: fastdp.Release, means: np.ndarray) -> np.ndarray:
    """`means` beyond theta of each value, where released levels of its block grew; the open block as the last."""
    revised, noise = release.revision, release.noise
    edges, thetas, rates = revised.edges, revised.thetas[:-1], means[revised.edges]
    known = rates[:-1], revised.means / thetas, revised.means / thetas, np.diff(edges), noise.bound - thetas
    said = {"deviation": math.sqrt(revised.shape["noise"][0]), "share": noise.above + noise.slope * release.threshold}
    found = allowed_beyond(*(each.tolist() for each in known), **said)
    return np.repeat([*found, max(found[-1], rates[-1])], np.diff(edges, append=len(release)))


@pytest.mark.parametrize("kind", CHOSEN)
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_high_allows_for_each_value_beyond_a_chosen_theta(releases, kind: str, confidence: float) -> None:
    """Value by value: exponential, of 1.5 to 4 thetas, more where theta is many means, by the rule's share above.

    Where values are larger than at first, it is more.
    """
    release = releases[kind]
    starts, stops = pairs(release)
    thetas = np.full(len(release), release.threshold)
    if release.revision is not None:
        thetas = np.repeat(release.revision.thetas, np.diff(release.revision.edges, append=len(release)))
    assert (thetas.max() > 2.0 * thetas[0]) == (kind == "rising")
    if release.revision is not None:
        length = int(release.revision.edges[-1])
        usual = release.revised.sum(0, length)[0] / length
    else:
        usual = release.values.mean()
    sizes = np.clip(thetas / (6.5 * usual), 1.5, 4.0) * thetas
    means = release.noise.above * np.minimum(1.5 * (2000.0 - thetas), sizes) * thetas / thetas[0]
    before = np.concatenate([[0.0], np.cumsum(means)])
    wanted = math.log(1.0 / (1.0 - confidence)) * (before[stops] - before[starts])
    for answer in (release, release.revised):
        clipped = replace(answer, noise=replace(release.noise, above=0.0))
        low, high = answer.interval(starts, stops, confidence)
        plain = clipped.interval(starts, stops, confidence)
        answers = answer.sum(starts, stops)
        assert np.array_equal(low, plain[0])
        held = plain[1] > answers
        assert held.mean() > 0.5
        more = high - plain[1]
        ratio = more[held & (wanted > 0.0)] / wanted[held & (wanted > 0.0)]
        assert ratio.min() > 1.0 - 1e-9
        if answer.revision is not None:
            grown = np.concatenate([[0.0], np.cumsum(grown_means(answer, means))])
            expected = math.log(1.0 / (1.0 - confidence)) * (grown[stops] - grown[starts])
            np.testing.assert_allclose(more[held], expected[held], rtol=1e-9, atol=1e-6)
        assert (np.median(ratio) > 3.0) == (kind == "rising")
        assert (ratio.max() < 3.0) == (kind == "chosen")
    assert np.array_equal(answer.std_error(starts, stops), clipped.std_error(starts, stops))


@pytest.mark.parametrize(
    ("mean", "factor"), [(10.0, 1.5), (1.0, 10 / 6.5), (0.5, 20 / 6.5), (0.1, 4.0), (0.0, 4.0), (-3.0, 4.0)]
)
def test_the_allowance_beyond_theta_grows_with_theta_over_the_mean(mean: float, factor: float) -> None:
    noise = SumNoise("blocks", 1.0, 1.0, above=0.01, bound=1e6)
    assert noise.excess(10.0, mean, 10.0) == pytest.approx(0.01 * factor * 10.0)
    near = replace(noise, bound=12.0)
    assert near.excess(10.0, mean, 10.0) == pytest.approx(0.01 * 1.5 * 2.0)


def test_the_allowance_beyond_theta_grows_with_the_level() -> None:
    """Of parts of a 64th of the stream, against the first; at most what the bound leaves of each theta.

    By its square, or as an exponential tail does whose mean is as many times larger.
    """
    lengths, levels = np.full(128, 10), np.repeat([0.1, 0.3, 0.8], [2, 125, 1])

    def allowed(rate: float, deviation: float = 0.0, share: float = 1.0) -> list[float]:
        found = hidden_beyond(rate, levels, levels, lengths, 5.0, deviation=deviation, share=share)
        return found[[0, 2, 127]].tolist()

    assert allowed(0.001) == pytest.approx([0.001, 0.009, 4.0])  # 0.8 thetas are cut off
    assert allowed(1.0) == pytest.approx([1.0, 1.5, 4.0])
    # The first part's level is taken for two deviations of its 20 values' noise, 0.2.
    assert allowed(0.001, 2.0 / math.sqrt(2.0)) == pytest.approx([0.001, 0.00225, 4.0])
    assert allowed(0.001, share=1e-3) == pytest.approx([0.001, 0.001 * 1e-3 ** (1 / 3 - 1), 4.0])
    assert hidden_beyond(0.1, levels[:0], levels[:0], lengths[:0], 5.0, deviation=1.0, share=1.0).size == 0


@pytest.mark.parametrize("seed", range(20))
def test_the_allowance_beyond_theta_equals_the_oracle(seed: int) -> None:
    draw = np.random.default_rng(seed)
    n = int(draw.integers(1, 300))
    lengths, levels = draw.integers(1, 40, n), draw.random(n) * draw.choice([0.05, 0.5, 1.2])
    given = {"deviation": float(draw.choice([0.0, 0.1, 3.0])), "share": float(draw.choice([1e-6, 0.01, 1.0, 3.0]))}
    known = draw.random(n) * 0.1, levels, levels - 0.05, lengths, draw.random(n) * 9.0
    for resolved in (True, False):
        expected = allowed_beyond(*(each.tolist() for each in known), **given, resolved=resolved)
        assert hidden_beyond(*known, **given, resolved=resolved).tolist() == pytest.approx(expected, rel=1e-12)


def test_the_share_above_theta_is_that_of_the_rule(releases) -> None:
    """k of m values, k = m sqrt(6 K) / (r epsilon) (``docs/streams_proofs.md``); none for a public theta."""
    m, k = 3000, 3000 * math.sqrt(6.0 * publisher("cut tree").composition.task.noise_constant) / (4096 * 2.0)
    assert releases["chosen"].noise.above == pytest.approx(k / m)
    assert {releases[kind].noise.above for kind in (*KINDS, "pak", "topl")} == {0.0}
    chosen = releases["chosen"]
    at_bound = replace(chosen, noise=replace(chosen.noise, bound=chosen.threshold))
    clipped = replace(at_bound, noise=replace(at_bound.noise, above=0.0))
    assert np.array_equal(at_bound.interval(0, 5000), clipped.interval(0, 5000))


@pytest.mark.parametrize(("share", "epsilon"), [(1e-4, 1.0), (1e-3, 0.1), (1e-2, 0.1)])
def test_true_sums_of_sparse_streams_are_held_where_noise_chose_theta(share: float, epsilon: float) -> None:
    """A theta of 1 to 9 by noise alone says nothing of sizes beyond it; one that values chose is no wider for it."""
    held, asked, thetas = [], np.arange(0, 100_000, 5000), []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        values = np.where(rng.random(200_000) < share, np.minimum(rng.exponential(100.0, 200_000), 1000.0), 0.0)
        release = fastdp.ToPS(epsilon, 1000.0, seed=seed).release(values)
        low, high = release.interval(asked, asked + 20_000)
        before = np.concatenate([[0.0], np.cumsum(values[release.offset :])])
        true = before[asked + 20_000] - before[asked]
        held.append(np.mean((low <= true) & (true <= high)))
        thetas.append(release.threshold)
    assert np.mean(held) >= 0.95
    assert min(held) >= 0.8
    assert (min(thetas) < 10.0) == (share < 1e-2)


def test_values_beyond_a_theta_that_values_chose_are_of_its_size() -> None:
    values = np.random.default_rng(1).gamma(2.0, 20.0, 200_000)
    release = fastdp.ToPS(0.1, 5000.0, seed=1).release(values)
    low, high = release.interval(0, 100_000)
    assert high - low < 0.27 * 40.0 * 100_000


def test_true_sums_are_said_where_no_theta_was_below_the_bound() -> None:
    """Not where the last one is the bound and the first was not."""
    values = np.random.default_rng(2).gamma(4.0, 1.0, 8000) * np.repeat([1.0, 30.0], 4000)
    for rule, holdout in ((TruePercentile(0.99), 600), (Fixed(200.0), 0)):
        release = fastdp.Adaptive(8.0, 200.0, threshold=rule, holdout=holdout, max_range=1024, seed=3).release(values)
        assert release.threshold == 200.0
        assert ("for true sums" in repr(release)) == (holdout == 0)


@pytest.mark.parametrize("kind", CHOSEN)
def test_true_sums_of_values_with_a_heavy_tail_are_covered(kind: str) -> None:
    """A rising theta is late; without the allowance a quarter of the ranges and more is not covered."""
    covered = np.zeros(2)
    for seed in range(12):
        release = chosen(kind, seed)
        before = np.concatenate([[0.0], np.cumsum(heavy(kind, seed)[release.offset :])])
        starts, stops = pairs(release, seed)
        truth = before[stops] - before[starts]
        for i, above in enumerate((0.0, release.noise.above)):
            given = replace(release, noise=replace(release.noise, above=above))
            low, high = given.revised.interval(starts, stops)
            covered[i] += np.mean((low <= truth) & (truth <= high)) / 12
    assert covered[1] > 0.98
    assert covered[0] < 0.75


@pytest.mark.parametrize(("stream", "without"), [("heavy", 0.7), ("step", 0.6), ("drift", 0.7), ("constant", 1.0)])
def test_true_sums_of_tops_are_covered(stream: str, without: float) -> None:
    """Eq. 6 says how many values lie above theta; blocks near theta may hide any number of them."""
    draw, n, covered = np.random.default_rng(5), 40_000, np.zeros(2)
    for seed in range(6):
        values = np.full(n, 20.0) if stream == "constant" else np.minimum(draw.lognormal(2.0, 1.3, n), 4000.0)
        if stream == "step":
            values = np.where(np.arange(n) < 20_000, draw.gamma(2.0, 5.0, n), draw.gamma(2.0, 200.0, n))
        if stream == "drift":
            values = np.minimum(draw.lognormal(1.0, 0.8, n) * np.geomspace(1.0, 10.0, n), 4000.0)
        release = fastdp.ToPS(0.5, 4000.0, holdout=8000, max_range=32_768, seed=seed).release(values)
        before = np.concatenate([[0.0], np.cumsum(values[8000:])])
        starts, stops = pairs(release, seed)
        truth = before[stops] - before[starts]
        for i, noise in enumerate((replace(release.noise, above=0.0), release.noise)):
            low, high = replace(release, noise=noise).interval(starts, stops)
            covered[i] += np.mean((low <= truth) & (truth <= high)) / 6
        # Each value is at most bound / theta times what theta leaves of it.
        _, clipped = replace(release, noise=replace(release.noise, above=0.0)).interval(starts, stops)
        assert (high <= np.maximum(clipped, release.sum(starts, stops)) * 4000.0 / release.threshold + 1e-3).all()
    assert covered[0] <= without
    assert covered[1] > 0.9


@pytest.mark.parametrize("place", [300, 1000, 1900])
def test_one_step_within_a_long_block_is_covered(place: int) -> None:
    """The neighbours' means show it; the rate of an average block would not cover it."""
    begin = 6144
    values = np.full(65_536, 1.0)
    values[begin + place :] = 12.0
    release = publisher("blocks", epsilon=2.0, max_range=65_536).release(values)
    assert {begin, begin + 2048} <= set(release.revision.edges.tolist())
    stops = np.arange(begin, begin + 2049, 16)
    low, high = release.interval(np.full(stops.size, begin), stops)
    truth = stops - begin + 11.0 * np.maximum(stops - begin - place, 0)
    assert ((low <= truth) & (truth <= high)).all()


def steps(release: fastdp.Release) -> int:
    return round(release.threshold / release.noise.resolution)


def draws_of(kind: str, release: fastdp.Release, starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, int]:
    """How many draws are in each range's answer, and how many levels share epsilon."""
    if kind == "flat":
        return stops - starts, 1
    if kind == "nodes":
        tiling = replace(release.nodes, sums=np.ones_like(release.nodes.sums))
        return tiling.sum(starts, stops).astype(int), release.nodes.levels
    assert kind == "pak"
    draws = [len(counter_nodes(a) ^ counter_nodes(b)) for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
    assert counter_draws(starts, stops).tolist() == draws
    return np.array(draws), (6000 - 500).bit_length()


@pytest.mark.parametrize("kind", ["flat", "nodes", "pak"])
def test_answers_have_the_interval_of_their_number_of_draws(releases, kind: str) -> None:
    """Values, nodes and differences of running sums: sums of so many draws of one scale."""
    release = releases[kind]
    starts, stops = pairs(release)
    draws, levels = draws_of(kind, release, starts, stops)
    scale = Fraction(steps(release) * levels) / Fraction(EPSILON)
    half = laplace_sum_quantiles(scale, draws, 0.95) * release.noise.resolution
    low, high = release.interval(starts, stops)
    np.testing.assert_allclose(high - low, 2.0 * half, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose((low + high) / 2.0, release.sum(starts, stops), rtol=1e-9, atol=1e-6)
    if kind == "flat":
        spread = np.sqrt(draws * laplace_variance(scale)) * release.noise.resolution
        np.testing.assert_allclose(release.std_error(starts, stops), spread, rtol=1e-12)


@given(st.integers(0, 2**62), st.integers(0, 2**62))
def test_far_counters(first: int, last: int) -> None:
    wanted = len(counter_nodes(first) ^ counter_nodes(last))
    assert counter_draws(np.array([first]), np.array([last])).tolist() == [wanted]


@pytest.mark.parametrize(("fan_out", "levels", "tops"), [(2, 1, 3), (2, 3, 1), (2, 4, 2), (3, 3, 2), (4, 2, 4)])
def test_variances_of_consistent_leaves_are_those_of_least_squares(fan_out: int, levels: int, tops: int) -> None:
    covariance = consistent_covariance(fan_out, levels, tops)
    leaves = covariance.shape[0]
    noise = SumNoise("tree", 1.0, 1.0, fan_out=fan_out, levels=levels, tree_blocks=leaves)
    points = np.random.default_rng(3).uniform(0, 3 * leaves, (2, 200))
    whole = np.floor(points)
    first, last = np.sort(np.concatenate([points, whole], axis=1), axis=0)
    wanted = []
    for a, b in zip(first, last, strict=True):
        each = shares(a, b, 4 * leaves).reshape(4, leaves)
        wanted.append(sum(float(row @ covariance @ row) for row in each))
    np.testing.assert_allclose(tree_variances(noise, first, last), wanted, rtol=1e-9, atol=1e-12)


def test_a_consistent_tree_is_as_wide_as_its_variance(releases) -> None:
    release = releases["tree"]
    starts, stops = pairs(release)
    noise = release.noise
    variances = tree_variances(noise, starts.astype(float), stops.astype(float))
    deviation = np.sqrt(variances * noise.draw(THETA).variance) * noise.resolution
    np.testing.assert_allclose(release.std_error(starts, stops), deviation, rtol=1e-9, atol=1e-9)
    low, high = release.interval(starts, stops)
    some = stops > starts
    ratio = (high - low)[some] / 2.0 / deviation[some]
    assert (ratio >= 1.9599).all()
    assert (ratio <= wider_quantile(0.95) * (1.0 + 1e-9)).all()


def test_ends_of_ranges_by_hand() -> None:
    edges, rates = np.array([0, 4, 6, 14]), np.array([1.0, 10.0, 100.0, 1000.0])
    cases = {
        (0, 14): (0.0, 3, 0.0),
        (0, 6): (0.0, 2, 0.0),
        (6, 6): (0.0, 0, 0.0),
        (1, 3): (1.0, 0, 0.25),
        (1, 4): (0.75, 0, 0.5625),
        (1, 6): (0.75, 1, 0.5625),
        (3, 10): (0.75 + 200.0, 1, 0.0625 + 0.25),
        (14, 20): (6000.0, 0, 0.0),
        (5, 15): (5.0 + 1000.0, 1, 0.25),
        (0, 17): (3000.0, 3, 0.0),
    }
    first, last = np.array(list(cases)).T
    found = hidden_of_ends(first, last, edges, rates)
    for measured, wanted in zip(zip(*found, strict=True), cases.values(), strict=True):
        assert measured == pytest.approx(wanted)
    nothing = hidden_of_ends(np.array([0, 2]), np.array([5, 2]), np.zeros(1, np.int64), np.array([7.0]))
    assert [part.tolist() for part in nothing] == [[35.0, 0.0], [0, 0], [0.0, 0.0]]


def test_a_cut_block_has_its_share_of_what_was_released_and_not_revised(releases) -> None:
    release = releases["blocks"]
    revision = release.revision
    lengths = np.diff(revision.edges)
    missing = (revision.totals * release.threshold - revision.means * lengths) / lengths
    at = np.arange(revision.edges[-1])
    centre = release._reading.error_bars(at, at + 1).centre
    np.testing.assert_allclose(centre, release.revised.values[at] + np.repeat(missing, lengths), rtol=1e-9, atol=1e-6)


def test_values_behind_the_last_block_have_the_noise_of_a_mean(releases) -> None:
    release = releases["cut tree"]
    _, rates, beyond = release._reading.hidden
    deviation = math.sqrt(release.noise.draw(THETA).variance) * release.noise.resolution / release.block
    assert release.block > 1
    assert beyond == pytest.approx(2.0 * rates[0] / release.block + deviation**2)


def test_where_theta_fell_noise_is_that_of_the_highest(releases) -> None:
    release, whole = releases["rising"], (np.zeros(1, np.int64), np.array([len(releases["rising"])]))
    fallen = replace(release.revision)
    vars(fallen)["_smoothed"] = release.revision._smoothed._replace(unit=1.0)
    highest = release.revision.thetas[:-1].max()
    assert highest > 2.0 * release.revision.threshold
    noise = fallen.error_bars(release.noise, *whole).noise
    assert noise.variance == pytest.approx(release.noise.draw(highest).variance)


def test_a_resolution_that_rounds_still_counts_the_edge() -> None:
    release = publisher("flat", resolution=0.1, threshold=1.6, epsilon=4.0, bound=3.2).release(VALUES / 10.0)
    low, high = release.interval(0, 1)
    t = laplace_sum_quantile(Fraction(16) / 4, 1, 0.95)
    assert (high - low) / 2.0 == pytest.approx(0.1 * (t + 0.25))


@pytest.mark.parametrize("kind", ["flat", "nodes", "tree", "cut tree"])
def test_many_streams_have_each_its_intervals(kind: str) -> None:
    plain = publisher(kind)
    rows = VALUES.reshape(6, 1000)
    parts = {"threshold": THETA, "perturber": KINDS[kind], "smoother": plain.composition.smoother}
    many = release_many(rows, epsilon=EPSILON, bound=64, max_range=4096, seed=1, **parts)
    whose, starts = np.arange(6).repeat(5), np.tile(np.arange(5) * 100, 6)
    for each in (many, many.revised):
        low, high = each.interval(starts, starts + 333, 0.9, streams=whose)
        answers = each.sum(starts, starts + 333, streams=whose)
        errors = each.std_error(starts, starts + 333, streams=whose)
        for i, stream in enumerate(whose.tolist()):
            own = each[stream].interval(starts[i], starts[i] + 333, 0.9)
            assert (low[i], high[i]) == (own[0][0], own[1][0])
            assert errors[i] == each[stream].std_error(starts[i], starts[i] + 333)[0]
            assert answers[i] == each[stream].sum(starts[i], starts[i] + 333)[0]


def test_local_reports_use_the_largest_variance(releases) -> None:
    release = releases["topl"]
    low, high = release.interval([0, 5], [1, 1005], 0.9)
    deviation = np.sqrt(np.array([1.0, 1000.0]) * release.noise.report_variance)
    np.testing.assert_allclose((high - low) / 2.0, wider_quantile(0.9) * deviation, rtol=1e-9)
    np.testing.assert_allclose(release.std_error([0, 5], [1, 1005]), deviation)


def test_what_has_no_interval_says_why(releases) -> None:
    with pytest.raises(ParameterError, match=r"confidence = 1\.0"):
        releases["flat"].interval(0, 1, 1.0)
    for ask, stop in ((releases["flat"].interval, 4), (releases["flat"].std_error, 10**6)):
        with pytest.raises(ParameterError, match="starts"):
            ask(5, stop)
    parts = {"threshold": fastdp.thresholds.NoisyMax(), "holdout": 500}
    renewal = fastdp.thresholds.renewals.RenewFromHoldout(2000, 500)
    renewed = publisher("flat", **parts, renewal=renewal).release(VALUES)
    for ask in (renewed.interval, renewed.std_error):
        with pytest.raises(StateError, match="its threshold was renewed"):
            ask(0, 1)


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["flat", "nodes", "pak"])
def test_single_values_are_covered_as_often_as_stated(kind: str) -> None:
    n = 40_000
    values = np.resize(VALUES, n)
    if kind == "pak":
        release = fastdp.PAK(EPSILON, 1e-6, 64, n, holdout=0, threshold=THETA, seed=stat.seed(162)).release(values)
    else:
        release = publisher(kind, stat.seed(162)).release(values)
    # Values at odd places of a counter differ by one node of their own each; blocks of others share none.
    starts = np.arange(0, n, 2)
    low, high = release.interval(starts, starts + 1, 0.95)
    truth = np.minimum(values[starts], release.threshold)
    inside = int(((low <= truth) & (truth <= high)).sum())
    stat.accept(float(binom.cdf(inside, starts.size, 0.95)))
    stat.accept(float(binom.sf(inside, starts.size, 0.955)))


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["tree", "cut tree", "blocks"])
@pytest.mark.parametrize("revised", [False, True])
def test_ranges_at_any_place_are_covered(kind: str, revised: bool) -> None:
    found = []
    for seed in range(100):
        release = publisher(kind, seed).release(VALUES)
        starts, stops = pairs(release, seed)
        low, high = (release.revised if revised else release).interval(starts, stops)
        before = np.concatenate([[0.0], np.cumsum(np.minimum(VALUES, THETA))])
        truth = before[stops] - before[starts]
        found.append(np.mean((low <= truth) & (truth <= high)))
    # Ranges of one release share noise: the spread between releases says how sure the mean is.
    assert np.mean(found) + 4.0 * np.std(found) / np.sqrt(100) > 0.95
    assert np.mean(found) > 0.94
    assert np.mean(found) < 0.999


def test_differences_that_noise_explains_are_not_taken_for_the_streams() -> None:
    """Blocks whose sums differ by their two noises alone."""
    noise, threshold, block = SumNoise("blocks", 4.0, 1.0), 8.0, 16
    drawn = noise.draw(threshold).variance / threshold**2
    totals = threshold * (20.0 + np.tile([0.0, np.sqrt(2.0 * drawn)], 20))
    level = float(totals.mean()) / threshold / block
    wanted = revision.cautious_rate(0.0, level, drawn, block, 1.0 + 39 / 2.0) * threshold**2
    assert rate_of_blocks(totals, noise, threshold, block) == pytest.approx(wanted, rel=1e-9)
    # One block shows no difference: all of its sum may have come in one step.
    energy = (level * block) ** 2 - 2.0 * drawn
    wanted = revision.cautious_rate(energy / (2.0 * block), level, drawn, block, 1.5) * threshold**2
    assert rate_of_blocks(totals.mean(keepdims=True), noise, threshold, block) == pytest.approx(wanted, rel=1e-9)


CONFIDENCES = (0.01, 0.5, 0.68, 0.9, 0.95, 0.99, 0.9999)


@pytest.mark.parametrize("p", [Fraction(1, 1000), Fraction(1, 4), Fraction(3, 5)])
@pytest.mark.parametrize("m", [1, 2, 3, 5])
def test_quantiles_are_those_of_the_exact_law(p: Fraction, m: int) -> None:
    inside = inside_exact(p, m, 30 if p < Fraction(1, 2) else 55)
    for confidence in CONFIDENCES:
        t = laplace_sum_quantile(-1.0 / math.log(p), m, confidence)
        assert float(inside[t][1]) >= confidence
        assert t == 0 or float(inside[t - 1][0]) < confidence + 1e-10


@pytest.mark.parametrize("m", [1, 2, 3, 4, 7, 20, 100, 400])
def test_on_a_fine_grid_quantiles_are_those_of_the_real_law(m: int) -> None:
    # A discrete draw is a real one with two fractional parts less, so that sums differ by at most m steps.
    scale = 2**40
    for confidence in CONFIDENCES:
        t = laplace_sum_quantile(Fraction(scale), m, confidence)
        assert real_tail(t / scale, m) == pytest.approx(1.0 - confidence, rel=1e-6)


def test_a_wider_sum_has_a_wider_quantile_and_many_terms_are_normal() -> None:
    many = laplace_sum_quantiles(2.0**32, np.array([0, 1, 2, 3, 10, 100, 10**6, 2**40, 10]), 0.95)
    assert many[0] == 0
    assert (np.diff(many[:-1]) > 0).all()
    assert many[4] == many[8] == laplace_sum_quantile(2**32, 10, 0.95)
    assert many[7] / math.sqrt(2**40 * laplace_variance(2**32)) == pytest.approx(1.959963985, rel=1e-8)


def test_sums_of_gaussian_draws_are_a_step_wider_than_normal_ones() -> None:
    """1.96 sigma sqrt(m), rounded up, and a step; none without draws."""
    assert DrawnNoise(2.0, gaussian=True).quantiles(np.array([0, 1, 4]), 0.95).tolist() == [0.0, 5.0, 9.0]
