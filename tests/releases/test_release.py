"""Release: range sums are sums of slices, revised ones of the evenly spread stream."""

from __future__ import annotations

import dataclasses
import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp

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
        answers = release.sum(starts, stops, revised=revised)
        assert answers.dtype == np.float64
        assert answers.shape == (300,)
        np.testing.assert_allclose(answers, slice_sums(stream, starts, stops), rtol=1e-9, atol=1e-6)


def test_the_two_answers_differ_only_where_a_block_is_cut(releases) -> None:
    release = releases[2, 1000]
    assert release.block == 16
    whole = np.arange(0, 62) * 16
    np.testing.assert_allclose(release.sum(0, whole), release.sum(0, whole, revised=True), rtol=1e-12, atol=1e-7)
    cut = whole + 9
    cut = cut[cut < 62 * 16]
    apart = np.abs(release.sum(0, cut) - release.sum(0, cut, revised=True))
    assert np.median(apart) > 1.0


def test_without_blocks_revised_is_the_same(releases) -> None:
    release = releases[0, 1000]
    starts, stops = random_pairs(1000, 3)
    assert np.array_equal(release.sum(starts, stops), release.sum(starts, stops, revised=True))


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("method", ["adaptive", "tops", "topl", "pak"])
@pytest.mark.parametrize("n", [1, 1000])
def test_a_release_shows_what_was_published_in_five_lines(method: str, n: int) -> None:
    release = fastdp.release(np.full(n + 20, 7.0), 1.0, 50, method, seed=1, holdout=20)
    shown = repr(release).splitlines()
    assert str(release) == repr(release)
    assert shown[0].endswith(f"Release of {n:,} values after a hold-out of 20")
    assert shown[1].split(None, 1)[1].startswith(f"{release.values[0]:.6g}")
    assert shown[2].split() == ["threshold", f"{release.threshold:g}"]
    assert shown[3].endswith(str(release.guarantee))
    assert len(shown) <= 5
    assert max(map(len, shown)) < 200


def test_many_releases_show_in_five_lines() -> None:
    many = fastdp.release_many(np.full((3000, 40), 7.0), 1.0, 50, seed=1, holdout=10)
    shown = repr(many).splitlines()
    assert shown[0] == "ReleasedMany of 3,000 streams, 90,000 values, each after a hold-out of 10"
    assert f"{many.thresholds[-1]:.6g}" in shown[2]
    assert shown[3].endswith(str(many.guarantee))
    assert len(shown) <= 5
    assert max(map(len, shown)) < 200


@pytest.mark.parametrize("n", [1, 15, 17, 255, 1000, 1960])
def test_unfinished_last_block(releases, n: int) -> None:
    release = releases[2, n]
    closed = n // 16 * 16
    rest = n - closed
    assert rest
    # The open block is answered from its predictions, which are all equal.
    assert np.unique(release.values[closed:]).size == 1
    prediction = release.values[closed]
    for revised in (False, True):
        ends = np.arange(rest + 1)
        np.testing.assert_allclose(
            release.sum(closed, closed + ends, revised), ends * prediction, rtol=1e-9, atol=1e-6
        )
        np.testing.assert_allclose(release.sum(0, n, revised), release.values.sum(), rtol=1e-9, atol=1e-6)


def test_any_block_length_and_any_prediction() -> None:
    """By hand: Recent would predict the open block as the mean of the block before."""
    for block, rest in itertools.product((2, 3, 5, 9, 16), (0, 1)):
        generator = np.random.default_rng(block)
        closed = generator.normal(10.0, 30.0, 41 * block)
        values = np.concatenate([closed, np.full(rest * (block - 1), 777.0)])
        release = fastdp.Release(values, 0, 50.0, fastdp.Guarantee(1.0), block)
        starts, stops = random_pairs(values.size, block)
        for revised, stream in ((False, values), (True, spread(release))):
            np.testing.assert_allclose(
                release.sum(starts, stops, revised), slice_sums(stream, starts, stops), rtol=1e-9, atol=1e-6
            )


@given(data=st.data(), prune=st.sampled_from([0, 2]), n=st.sampled_from([17, 256, 1960]), revised=st.booleans())
def test_ranges_add_up(releases, data, prune: int, n: int, revised: bool) -> None:
    release = releases[prune, n]
    a, b, c = sorted(data.draw(st.lists(st.integers(0, n), min_size=3, max_size=3)))
    left, right, both = release.sum([a, b, a], [b, c, c], revised)
    assert left + right == pytest.approx(both, rel=1e-9, abs=1e-6)
    stream = spread(release) if revised else release.values
    assert both == pytest.approx(stream[a:c].sum(), rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("revised", [False, True])
def test_empty_ranges_are_0(releases, revised: bool) -> None:
    for release in releases.values():
        places = np.arange(len(release) + 1)
        assert (release.sum(places, places, revised) == 0.0).all()


@pytest.mark.parametrize("revised", [False, True])
def test_no_ranges(releases, revised: bool) -> None:
    for nothing in ([], (), np.empty(0, int), np.empty(0)):
        assert releases[2, 17].sum(nothing, nothing, revised).shape == (0,)


def test_no_ranges_and_one_start(releases) -> None:
    """As NumPy broadcasts one entry against none."""
    for starts, stops in ((3, []), ([3], []), ([], 3)):
        assert releases[2, 17].sum(starts, stops).shape == (0,)


def test_broadcasting(releases) -> None:
    for revised in (False, True):
        release = releases[2, 255]
        several = [20, 33, 255]
        for starts, stops in ((3, several), ([3], several), (np.int8(3), tuple(several)), ([3, 3, 3], several)):
            assert np.array_equal(
                release.sum(starts, stops, revised), [release.sum(3, stop, revised)[0] for stop in several]
            )
        assert np.array_equal(
            release.sum([1, 2, 3], 200, revised), [release.sum(start, 200, revised)[0] for start in (1, 2, 3)]
        )


def test_scalars_and_every_integer_type(releases) -> None:
    for kind in ("i1", "u1", "i2", ">i4", "u4", "i8", "u8"):
        release = releases[2, 255]
        assert release.sum(5, 100).shape == (1,)
        expected = release.sum([5, 7], [100, 120])
        assert np.array_equal(release.sum(np.array([5, 7], kind), np.array([100, 120], kind)), expected)
        assert release.sum(np.dtype(kind).type(5), np.dtype(kind).type(100)) == expected[0]
        strided = np.array([5, 0, 7, 0], kind)[::2]
        assert np.array_equal(release.sum(strided, [100, 120]), expected)


def test_queries_do_not_interfere(releases) -> None:
    release = releases[2, 1960]
    starts, stops = random_pairs(1960, 5)
    first = release.sum(starts, stops)
    release.sum(starts, stops, revised=True)
    assert np.array_equal(release.sum(starts, stops), first)
    assert np.array_equal(release.sum(starts[:1], stops[:1]), first[:1])


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


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize(
    ("method", "system", "options"),
    [("adaptive", fastdp.Adaptive, {}), ("tops", fastdp.ToPS, {"fan_out": 4, "prune": 1})],
)
def test_one_call_is_the_publisher(method, system, options, stream) -> None:
    options |= {"max_range": 64}
    named = {"method": method, **options}
    if method == "adaptive":
        # Its own default withholds nothing (tests/streams/test_whole.py).
        by_call = fastdp.release(stream, 1.0, 50, seed=3, holdout=stream.size // 4, **named)
        by_hand = system(1.0, 50, holdout=stream.size // 4, seed=3, **options).release(stream)
        assert by_call.offset == stream.size // 4
        assert np.array_equal(by_call.values, by_hand.values)
        return
    by_call = fastdp.release(stream, 1.0, 50, seed=3, **named)
    by_hand = system(1.0, 50, holdout=stream.size // 4, seed=3, **options).release(stream)
    assert by_call.offset == stream.size // 4
    assert np.array_equal(by_call.values, by_hand.values)
    assert fastdp.release(stream, 1.0, 50, seed=3, holdout=7, **named).offset == 7
    assert fastdp.release([1, 2], 1.0, 50, method, seed=3).offset == 1
    assert fastdp.release(np.ones(300_000), 1.0, 50, method, seed=3).offset == 65_536
    assert not fastdp.release(stream, 1.0, 50, **named).guarantee.simulated


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_the_default_method_follows_the_stream(stream) -> None:
    usual, named = (fastdp.release(stream, 1.0, 50, seed=3, **more) for more in ({}, {"method": "adaptive"}))
    assert np.array_equal(usual.values, named.values)
    assert usual.revised.size == len(usual)
    assert re.search(r"^RevisedStream\(\d+ blocks\)$", repr(usual.revision)), "not every released sum"
