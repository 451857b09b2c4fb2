"""Releases: sums of ranges, patterns, pictures."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from importlib.util import find_spec

import numpy as np
import pytest

import fastdp
from fastdp.errors import ParameterError
from fastdp.releases import pictures, revised
from fastdp.releases.release import MAX_DRAWN, Release
from fastdp.releases.revised import Sums, _integrals, _Model, _peak, find_waves
from tests.oracles import waves as oracle
from tests.shared import finished

KINDS = [{"prune": 0}, {"prune": 1}, {"prune": 2}]


@pytest.fixture(scope="module")
def releases(make) -> dict[tuple[int, int], fastdp.Release]:
    """By prune and length: whole blocks, one value more, one less, less than a block, many prefix blocks."""
    values = np.random.default_rng(1).integers(0, 50, 2000).astype(float)
    return {
        (options["prune"], n): make(**options).release(values[: 40 + n])
        for options in KINDS
        for n in (1, 15, 16, 17, 255, 256, 257, 1000, 1960)
    }


def spread(release: fastdp.Release) -> np.ndarray:
    """The revised stream: each closed block's sum spread evenly; the open block as published."""
    revised = release.values.copy()
    for begin in range(0, revised.size - release.block + 1, release.block):
        block = slice(begin, begin + release.block)
        revised[block] = release.values[block].sum() / release.block
    return revised


def slice_sums(values: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    return np.array([values[a:b].sum() for a, b in zip(starts, stops, strict=True)])


def random_pairs(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.sort(np.random.default_rng(seed).integers(0, n + 1, (300, 2)), axis=1)
    return pairs[:, 0], pairs[:, 1]


@pytest.mark.parametrize("revised", [False, True])
def test_range_sums_are_sums_of_slices(releases, revised: bool) -> None:
    for seed, release in enumerate(releases.values()):
        starts, stops = random_pairs(len(release), seed)
        stream = spread(release) if revised else release.values
        answers = (release.revised if revised else release).sum(starts, stops)
        assert answers.dtype == np.float64
        assert answers.shape == (300,)
        np.testing.assert_allclose(answers, slice_sums(stream, starts, stops), rtol=1e-9, atol=1e-6)


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("method", ["adaptive", "tops", "topl", "pak"])
@pytest.mark.parametrize("n", [1, 1000])
def test_a_release_shows_what_was_published_in_five_lines(method: str, n: int) -> None:
    release = finished(method, n + 20, 1.0, 50, 20, seed=5).release(np.full(n + 20, 7.0))
    shown = repr(release).splitlines()
    assert str(release) == repr(release)
    assert shown[0].endswith(f"Release of {n:,} values after a hold-out of 20")
    assert shown[1].split(None, 1)[1].startswith(f"{release.values[0]:.6g}")
    assert shown[2].split() == ["threshold", f"{release.threshold:g}"]
    true = method in ("adaptive", "tops")
    model = ", by a model: as many values lie beyond the threshold as in the hold-out, more where released sums grew"
    says = f"true sums{model if release.threshold < 50 else ''}"
    says = says if true else "sums of values clipped to the threshold, not for true ones"
    assert shown[3] == f"  intervals  for {says}"
    assert shown[4].endswith(str(release.guarantee))
    assert len(shown) == 5
    other = dataclasses.replace(
        release, noise=release.noise and dataclasses.replace(release.noise, bounded=False, kind="blocks")
    )
    assert "  intervals  for true sums\n" in repr(other)
    lowest = release.threshold if release.revision is None else release.revision.thetas.min()
    whole = dataclasses.replace(release.noise, kind="blocks", bound=lowest) if release.noise else None
    assert ("  intervals  for true sums\n" in repr(dataclasses.replace(release, noise=whole))) == (whole is not None)
    assert "  intervals  none: the noise of sums is not stated\n" in repr(dataclasses.replace(release, noise=None))
    assert max(map(len, shown)) < 200


def test_any_block_length_and_any_prediction() -> None:
    """By hand: Recent would predict the open block as the mean of the block before."""
    for block, rest in itertools.product((2, 3, 5, 9, 16), (0, 1)):
        generator = np.random.default_rng(block)
        closed = generator.normal(10.0, 30.0, 41 * block)
        values = np.concatenate([closed, np.full(rest * (block - 1), 777.0)])
        release = Release(values, 0, np.array([50.0]), fastdp.Guarantee(1.0), block, online=True)
        starts, stops = random_pairs(values.size, block)
        for answer, stream in ((release, values), (release.revised, spread(release))):
            expected = slice_sums(stream, starts, stops)
            np.testing.assert_allclose(answer.sum(starts, stops), expected, rtol=1e-9, atol=1e-6)


def test_scalars_and_every_integer_type(releases) -> None:
    for kind in ("i1", "u1", "i2", ">i4", "u4", "i8", "u8"):
        release = releases[2, 255]
        assert release.sum(5, 100).shape == (1,)
        expected = release.sum([5, 7], [100, 120])
        assert np.array_equal(release.sum(np.array([5, 7], kind), np.array([100, 120], kind)), expected)
        assert release.sum(np.dtype(kind).type(5), np.dtype(kind).type(100)) == expected[0]
        strided = np.array([5, 0, 7, 0], kind)[::2]
        assert np.array_equal(release.sum(strided, [100, 120]), expected)


def test_one_stream_is_indexed_as_its_array_and_many_by_name(releases) -> None:
    release = releases[2, 255]
    for index in (3, -1, slice(2, 9, 3), release.values > 10.0, np.array([5, 1]), ...):
        assert np.array_equal(release[index], release.values[index])
    for wrong in (release.values.size, "a", 1.5):
        with pytest.raises(IndexError) as error:
            release[wrong]
        assert "stream" not in str(error.value)
    many = fastdp.release_many(np.ones((3, 100)), 1.0, 5.0, threshold=4.0, seed=1)
    with pytest.raises(ParameterError, match="the name of a stream"):
        many["a"]


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_what_a_release_says(make, stream, options) -> None:
    publisher = make(**options)
    release = publisher.release(stream)
    assert len(release) == release.values.size == publisher.n_published == stream.size - 40
    assert release.offset == publisher.holdout == 40
    assert release.threshold == publisher.threshold
    assert 0 < release.threshold <= 50
    assert release.block == publisher.plan.block == 4 ** options["prune"]
    assert release.guarantee == publisher.guarantee
    assert release.guarantee.epsilon == 1.0
    assert release.guarantee.simulated
    assert "_prefix" not in repr(release)
    with pytest.raises(dataclasses.FrozenInstanceError):
        release.offset = 3


def rate_of(n: int, period: float, week: float = 0.0) -> np.ndarray:
    at = 2.0 * np.pi * np.arange(n) / period
    return 4.0 * (1.0 + np.sin(at)) * (1.0 + week * np.cos(at / 7.0))


def days(n: int, period: float, seed: int, week: float = 0.0) -> np.ndarray:
    """Counts about that rate."""
    return np.random.default_rng(seed).poisson(rate_of(n, period, week)).astype(float)


def mean_square(release: fastdp.Release, rate: np.ndarray) -> float:
    return float(np.mean((release.revised.values - rate) ** 2))


def test_rows_are_integrals_of_waves() -> None:
    edges, periods = np.array([0.0, 3.0, 11.0, 27.0]), (9.5, 66.5)
    expected = [oracle.sums_of_waves(a, b, periods, revised.HARMONICS) for a, b in itertools.pairwise(edges)]
    np.testing.assert_allclose(np.diff(_integrals(edges, periods), axis=0), expected, atol=1e-5)


def test_the_pattern_is_that_of_the_joint_law() -> None:
    generator = np.random.default_rng(3)
    edges = np.concatenate([[0], np.cumsum(2 ** generator.integers(1, 4, 40))])
    totals, noises = generator.normal(20.0, 9.0, 40), generator.uniform(1.0, 4.0, 40)
    model, variances = _Model(Sums(edges, totals, noises), (21.3,)), np.array([0.5, 0.02, 3.0])
    lengths = np.diff(edges).astype(float)
    shares = np.tile(1.0 / np.arange(1, revised.HARMONICS + 1), 2)
    spread = 4.0 * np.var(totals / lengths)
    sums_of = [oracle.sums_of_waves(a, b, (21.3,), revised.HARMONICS) for a, b in itertools.pairwise(edges)]
    distribution = (
        np.hstack([lengths[:, None], sums_of]),
        noises + 0.5 * lengths,
        np.concatenate([[0.0], (lengths[1:] + lengths[:-1]) / 2]),
        np.concatenate([[0.02], 3.0 * shares / edges[-1]]),
        np.array([totals.sum() / edges[-1], *np.zeros(shares.size)]),
        np.concatenate([[spread], 3.0 * shares]),
    )
    assert model.likelihood(variances) == pytest.approx(oracle.log_likelihood(totals, *distribution), rel=1e-9)
    states = oracle.states(totals, *distribution)
    found = model.waves(variances, int(edges[-1]) + 8)
    expected = np.cumsum([(row * state)[1:].sum() for row, state in zip(distribution[0], states, strict=True)])
    np.testing.assert_allclose(found.before(edges[1:]), expected, rtol=1e-7, atol=1e-7)
    # Behind the last sum its coefficients go on, for as long as the open block is.
    on = oracle.sums_of_waves(edges[-1], edges[-1] + 8, (21.3,), revised.HARMONICS) @ states[-1, 1:]
    assert found.before(np.array([edges[-1] + 8]))[0] == pytest.approx(expected[-1] + on)
    # Within a sum, the wave itself.
    middle = (edges[5] + edges[6]) // 2
    part = oracle.sums_of_waves(edges[5], middle, (21.3,), revised.HARMONICS) @ states[5, 1:]
    got = np.diff(found.before(np.array([edges[5], middle])))[0]
    assert got == pytest.approx(part, rel=0.05, abs=0.2)


@pytest.mark.parametrize(("period", "epsilon"), [(480.0, 0.1), (333.3, 0.2)])
def test_a_period_is_found_in_released_sums(period: float, epsilon: float) -> None:
    values = days(40_000, period, 1)
    release = fastdp.Adaptive(epsilon, sensitivity=1, max_range=values.size, seed=1).release(values)
    found = release.revision._smoothed.waves
    assert found is not None
    assert found.periods[0] == pytest.approx(period, rel=0.005)
    # No stream has seen six periods of that length.
    plain = release.with_season(2.0**40)
    assert plain.revision._smoothed.waves is None
    rate = rate_of(values.size, period)
    assert mean_square(release, rate) < 0.7 * mean_square(plain, rate)


@pytest.mark.parametrize("epsilon", [0.05, 1.0])
def test_a_stream_without_a_pattern_has_none(epsilon: float) -> None:
    for seed in range(4):
        generator = np.random.default_rng(seed)
        wandering = 5.0 * np.exp(np.cumsum(generator.normal(0.0, 0.01, 20_000))).clip(0.05, 20.0)
        for values in (generator.poisson(5.0, 20_000), generator.poisson(wandering)):
            release = fastdp.Adaptive(epsilon, sensitivity=1, max_range=values.size, seed=seed).release(values)
            assert release.revision._smoothed.waves is None
            given = release.with_season(240)
            assert given.revision._smoothed.waves is None
            np.testing.assert_array_equal(given.revised.values, release.revised.values)


def test_too_few_blocks_or_periods_have_no_pattern() -> None:
    edges = np.arange(0, 8 * 41, 8)
    generator = np.random.default_rng(1)
    totals = generator.normal(size=40)
    assert find_waves(edges, totals, np.ones(40), totals, 330, 24.0) is None
    edges, totals = np.arange(0, 8 * 81, 8), generator.normal(size=80)
    assert find_waves(edges, totals, np.ones(80), totals, 650, 200.0) is None
    assert _peak(edges, totals)[0] == 0.0
    edges *= 2
    wave = 1e6 * np.sin(2 * np.pi * edges[:-1] / 192)
    assert find_waves(edges, wave, np.full(80, 1e11), totals, 1300, 192.0) is not None
    assert find_waves(edges, wave, np.full(80, 1e16), totals, 1300, 192.0) is None, "it may be noise"
    # Clear sums, many for a period: nothing to add.
    edges = np.arange(0, 16 * 2001, 16)
    wave, totals = 1e6 * np.sin(2 * np.pi * edges[:-1] / 320), np.zeros(2000)
    assert find_waves(edges, wave, np.ones(2000), totals, 32_016, 320.0) is None
    assert find_waves(edges, wave, np.full(2000, 1e12), totals, 32_016, 320.0) is not None


def test_the_form_within_blocks_keeps_their_sums_and_does_not_fall_below_zero() -> None:
    values = np.where(np.arange(30_000) < 10_000, 0.0, days(30_000, 480.0, 4))
    publisher = fastdp.Adaptive(0.05, sensitivity=1, max_range=values.size, seed=1)
    release = publisher.release(values).with_season(480)
    revision = release.revision
    assert revision._smoothed.waves is not None
    edges, revised = revision.edges, release.revised.values
    lengths = np.diff(edges)
    np.testing.assert_allclose(
        np.add.reduceat(revised[: edges[-1]], edges[:-1]), lengths * revision.means, rtol=1e-6, atol=1e-5
    )
    parts = revision._form
    mine = np.searchsorted(edges, parts.edges[:-1], side="right") - 1
    inside = mine < revision.means.size
    bends = parts.means[inside] - revision.means[mine[inside]]
    assert bends.min() < -1.0, "or the test shows nothing"
    quiet = revision.means[mine[inside]] < 0.3
    assert quiet.any()
    assert parts.means[inside][quiet].min() > -1.5


def test_with_season_says_what_it_expects() -> None:
    release = fastdp.release(days(3000, 100.0, 1), 1.0, sensitivity=1, seed=1)
    for wrong in (1.0, 0, -5, 2.0**41, float("nan"), "1d"):
        with pytest.raises(ParameterError, match="period"):
            release.with_season(wrong)
    other = fastdp.ToPS(1.0, 50.0, 500, 2500, seed=1).release(days(3000, 100.0, 1))
    with pytest.raises(ParameterError, match="Adaptive"):
        other.with_season(100)


def test_clear_sums_of_a_stream_that_stands_still_keep_their_digits() -> None:
    edges, noises = np.arange(0, 256 * 301, 256), np.full(300, 0.02)
    totals = 256e6 + np.random.default_rng(1).laplace(0.0, 0.1, 300)
    sums = Sums(edges, totals, noises)
    likely = _Model(sums, (1536.0,)).likeliest(_Model(sums, ()).likeliest(None))
    assert np.isfinite(_Model(sums, (1536.0,)).likelihood(likely))
    assert find_waves(edges, totals, noises, np.zeros(300), 77_056, 1536.0) is None


VALUES = np.random.default_rng(5).integers(0, 20, 5000).astype(float)


drawing = pytest.mark.skipif(find_spec("matplotlib") is None, reason="needs matplotlib")


def lines(axes) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {line.get_label(): (line.get_xdata(), line.get_ydata()) for line in axes.lines}


@drawing
def test_a_picture_shows_means_with_their_interval(tmp_path) -> None:
    before = "matplotlib.pyplot" in sys.modules
    release = fastdp.Adaptive(0.5, 50, holdout=1000, max_range=4096, seed=1).release(VALUES)
    axes = release.plot(tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 20_000
    caption = axes.get_xlabel().splitlines()
    assert caption[:2] == [
        "position in the input", f"band: 95 % interval of the revised line; threshold: {release.threshold:g}"
    ]  # fmt: skip
    assert " ".join(caption[2:]) == str(release.guarantee)
    assert max(map(len, caption)) <= 110
    drawn = lines(axes)
    assert set(drawn) == {"published", "revised"}
    x, y = drawn["published"]
    assert x.size == MAX_DRAWN == 1000
    assert x[[0, -1]].tolist() == [1002.0, 4998.0]
    assert np.array_equal(y, release.sum(np.arange(0, 4000, 4), np.arange(4, 4001, 4)) / 4.0)
    np.testing.assert_allclose(drawn["revised"][1], release.revised.values.reshape(-1, 4).mean(axis=1), atol=1e-6)
    border = axes.collections[0].get_paths()[0].vertices[:, 1]
    low, high = release.revised.interval(np.arange(0, 4000, 4), np.arange(4, 4001, 4))
    assert border.min() == pytest.approx(low.min() / 4.0)
    assert border.max() == pytest.approx(high.max() / 4.0)
    assert ("matplotlib.pyplot" in sys.modules) == before, "pyplot would open a window manager"


@drawing
def test_few_values_are_drawn_one_by_one_on_axes_of_the_callers() -> None:
    release = fastdp.StreamPublisher(
        threshold=20.0, perturber=fastdp.perturbers.Flat(), epsilon=1.0, bound=20, seed=1
    ).release(VALUES[:50])
    axes = pictures.new_axes(2)[1]
    assert release.plot(ax=axes) is axes
    drawn = lines(axes)
    assert set(drawn) == {"published"}
    assert np.array_equal(drawn["published"][1], release.values)
    assert axes.get_ylabel() == "value"
    settled = fastdp.Adaptive(1.0, 20, threshold=20.0, seed=1).release(VALUES).revised
    assert settled.revised is settled
    assert set(lines(settled.plot())) == {"released"}


@drawing
def test_what_cannot_be_drawn_is_refused(tmp_path, monkeypatch) -> None:
    release = fastdp.Adaptive(0.5, 50, threshold=20.0, seed=1).release(VALUES)
    with pytest.raises(ParameterError, match="expected a suffix among"):
        release.plot(tmp_path / "p.kwh")
    nothing = fastdp.Release(np.empty(0), 0, np.ones(1), release.guarantee)
    with pytest.raises(ParameterError, match="has no values"):
        nothing.plot()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'fastdp-streams\[plot\]'"):
        release.plot()
