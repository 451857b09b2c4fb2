"""Release: range sums are sums of slices, revised ones of the evenly spread stream."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

import fastdp
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
        answers = release.sum(starts, stops, revised=revised)
        assert answers.dtype == np.float64
        assert answers.shape == (300,)
        np.testing.assert_allclose(answers, slice_sums(stream, starts, stops), rtol=1e-9, atol=1e-6)


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("method", ["adaptive", "tops", "topl", "pak"])
@pytest.mark.parametrize("n", [1, 1000])
def test_a_release_shows_what_was_published_in_five_lines(method: str, n: int) -> None:
    release = finished(method, n + 20, 1.0, 50, 20, seed=1).release(np.full(n + 20, 7.0))
    shown = repr(release).splitlines()
    assert str(release) == repr(release)
    assert shown[0].endswith(f"Release of {n:,} values after a hold-out of 20")
    assert shown[1].split(None, 1)[1].startswith(f"{release.values[0]:.6g}")
    assert shown[2].split() == ["threshold", f"{release.threshold:g}"]
    assert shown[3].endswith(str(release.guarantee))
    assert len(shown) <= 5
    assert max(map(len, shown)) < 200


def test_any_block_length_and_any_prediction() -> None:
    """By hand: Recent would predict the open block as the mean of the block before."""
    for block, rest in itertools.product((2, 3, 5, 9, 16), (0, 1)):
        generator = np.random.default_rng(block)
        closed = generator.normal(10.0, 30.0, 41 * block)
        values = np.concatenate([closed, np.full(rest * (block - 1), 777.0)])
        release = fastdp.Release(values, 0, np.array([50.0]), fastdp.Guarantee(1.0), block)
        starts, stops = random_pairs(values.size, block)
        for revised, stream in ((False, values), (True, spread(release))):
            np.testing.assert_allclose(
                release.sum(starts, stops, revised), slice_sums(stream, starts, stops), rtol=1e-9, atol=1e-6
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
