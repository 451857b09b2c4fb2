"""The online pass, the noisy-max scan and range sums against naive versions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fastdp_kernels.streams import online_pass, ranges, threshold_choice
from tests.oracles import tops

RESOLUTION = 2.0**-6


def stream(n: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    values = generator.gamma(2.0, 3.0, n)
    values[generator.random(n) < 0.05] *= -1.0
    values[generator.random(n) < 0.05] = 1e300
    half = generator.random(n) < 0.2
    values[half] = (np.floor(values[half] % 50) + 0.5) * RESOLUTION  # ties of the rounding
    return values


def test_block_sums_equal_python_integers() -> None:
    for block, n in itertools.product(
        (1, 2, 7, 16, 32, 64, 256), (0, 1, 15, 16, 17, 255, 256, 257, 1009, 2048, 2079, 5003)
    ):
        values = stream(n, n + block)
        top = 640.0
        steps = [int(np.rint(min(max(v, 0.0) / RESOLUTION, top))) for v in values]
        filled = n % block
        sums = np.full(-(-(filled + n) // block), -1, np.int64)
        assert online_pass.sum_blocks(values, 1 / RESOLUTION, top, block, filled, sums) is False
        expected = [0] * sums.size
        for i, step in enumerate(steps):
            expected[(filled + i) // block] += step
        assert sums.tolist() == expected
        rounded = np.empty(n, np.int64)
        assert online_pass.round_values(values, 1 / RESOLUTION, top, rounded) is False
        assert rounded.tolist() == steps


def test_non_finite_values_are_noticed_anywhere() -> None:
    for wrong, position in itertools.product((np.nan, -np.nan, np.inf, -np.inf), (0, 4, 5, 8, 12, 16)):
        values = np.array([1.7976931348623157e308, -1e308, 5e-324, -0.0, 3.0] + [2.0] * 12)
        sums, steps = np.empty(5, np.int64), np.empty(17, np.int64)
        assert not online_pass.sum_blocks(values, 1.0, 10.0, 4, 1, sums)
        assert not online_pass.round_values(values, 1.0, 10.0, steps)
        values[position] = wrong
        assert online_pass.sum_blocks(values, 1.0, 10.0, 4, 1, sums)
        assert online_pass.round_values(values, 1.0, 10.0, steps)


def test_non_finite_values_are_noticed_in_long_chunks() -> None:
    for block, position, wrong in itertools.product(
        (4, 16), (2, 3, 17, 3_002, 3_003, 5_000, 5_999), (np.nan, -np.inf)
    ):
        values, sums = np.arange(6_000.0), np.empty(1_501, np.int64)
        assert not online_pass.sum_blocks(values, 1.0, 10.0, block, 1, sums)
        values[position] = wrong
        assert online_pass.sum_blocks(values, 1.0, 10.0, block, 1, sums)


def test_largest_threshold_rounds_exactly() -> None:
    values = np.array([2.0**51, 2.0**51 - 1, 2.0**50 + 0.5, 0.5, 1.5, 2.5])
    steps = np.empty(values.size, np.int64)
    online_pass.round_values(values, 1.0, 2.0**51, steps)
    assert steps.tolist() == [2**51, 2**51 - 1, 2**50, 0, 2, 2]


def test_emission_closes_every_block() -> None:
    for block, n in itertools.product((2, 3, 16), (0, 1, 2, 15, 16, 17, 100)):
        generator = np.random.default_rng(n)
        for filled in range(block):
            closing, rest = divmod(filled + n, block)
            totals, predictions = generator.normal(size=closing), generator.normal(size=closing + 1)
            out = np.full(n, np.nan)
            online_pass.emit_blocks(totals, predictions, block, filled, out)
            expected = []
            for i in range(filled, filled + n):
                j = i // block
                last = i % block == block - 1
                expected.append(totals[j] - predictions[j] * (block - 1) if last else predictions[j])
            assert out.tolist() == expected
            assert rest == (filled + n) % block


@pytest.mark.parametrize("block", [2, 3, 16, 48])
@pytest.mark.parametrize("near", [0, 2**63 - 1])
def test_emission_from_sums_is_that_of_their_totals_and_means(block: int, near: int) -> None:
    """Sums and noise meet modulo 2^64, as they do array by array."""
    for closing, rest in itertools.product((1, 2, 9), (0, 1, block - 1)):
        generator = np.random.default_rng(closing)
        sums, noise = near - generator.integers(0, 1000, closing + 1), generator.integers(-900, 900, closing)
        totals, predictions = np.empty(closing), np.full(closing + 1, 3.25)
        online_pass.add_noise(sums[:closing], noise, RESOLUTION, totals)
        predictions[1:] = totals / block
        for filled in {0, 1, block - 1}:
            expected = np.empty(closing * block - filled + rest)
            out = np.full(expected.size, np.nan)
            online_pass.emit_blocks(totals, predictions, block, filled, expected)
            online_pass.emit_sums(sums, noise, RESOLUTION, 3.25, block, filled, out)
            assert out.tobytes() == expected.tobytes()


@pytest.mark.parametrize("noise_range", [0, 3, 2**40])
def test_noisy_max_equals_the_oracle(noise_range: int) -> None:
    generator = np.random.default_rng(41)
    for trial in range(50):
        holdout = generator.integers(0, 30, 200).astype(float)
        holdout[generator.random(200) < 0.3] *= 0.7
        unit, step = 16, 1.0 if trial % 2 else 0.5
        candidates = step * np.arange(1, 41)
        penalties = generator.integers(0, 200, 40)
        noise = generator.integers(-noise_range, noise_range + 1, 40)
        counts = np.zeros(41, np.int64)
        threshold_choice.bin_values(holdout[:77], step, counts)
        threshold_choice.bin_values(holdout[77:], step, counts)
        scores = [
            unit * sum(1 for v in holdout if v <= theta) - int(p) + int(z)
            for theta, p, z in zip(candidates, penalties, noise, strict=True)
        ]
        chosen = threshold_choice.choose_candidate(counts, unit, penalties, noise)
        # Values above the last candidate count as its equals.
        if holdout.max() <= candidates[-1]:
            assert chosen == tops.argmax_first(scores) + 1


def test_ties_go_to_the_lowest_candidate() -> None:
    counts = np.array([5, 0, 0, 1, 0], np.int64)
    zeros = np.zeros(4, np.int64)
    assert threshold_choice.choose_candidate(counts, 8, zeros, zeros) == 3
    assert threshold_choice.choose_candidate(np.zeros(5, np.int64), 8, zeros, zeros - 10**12) == 1


def test_range_sums() -> None:
    for n, block in itertools.product((0, 1, 255, 256, 257, 5000), (7, 256)):
        values = np.random.default_rng(n).normal(size=n)
        prefix = np.empty(n // block + 1)
        borders, places = np.array([0, n]), np.array([0, prefix.size])
        ranges.prefix_blocks(values, borders, block, places, prefix)
        starts, stops = (
            index.ravel() for index in np.meshgrid(np.linspace(0, n, 23).astype(np.int64), [0, n // 2, n])
        )
        starts, stops = np.minimum(starts, stops), np.maximum(starts, stops)
        out = np.empty(starts.size)
        whose = np.zeros(starts.size, np.int64)
        ranges.sum_ranges(values, borders, prefix, places, block, whose, starts, stops, out)
        assert out == pytest.approx([values[a:b].sum() for a, b in zip(starts, stops, strict=True)], abs=1e-9)


@pytest.mark.parametrize("block", [16, 32, 48, 256])
def test_one_pass_equals_sums_noise_and_output(block: int) -> None:
    count, top, first = 150, 640.0, 3.25
    values, noise = stream(count * block, block), np.random.default_rng(block).integers(-10_000, 10_000, count)
    sums, predictions, expected = np.empty(count, np.int64), np.empty(count + 1), np.empty(values.size)
    assert not online_pass.sum_blocks(values, 1 / RESOLUTION, top, block, 0, sums)
    totals = np.empty(count)
    online_pass.add_noise(sums, noise, RESOLUTION, totals)
    predictions[0], predictions[1:] = first, totals / block
    online_pass.emit_blocks(totals, predictions, block, 0, expected)
    published = np.empty(values.size)
    public = np.array([1 / RESOLUTION, top, RESOLUTION, block])
    following = online_pass.publish(values, public, noise, 0, count, 0, 0, first, published)[1]
    assert published.tobytes() == expected.tobytes()
    assert following == predictions[-1]
    # Integers are converted into the output, which is then published in place.
    place = values.copy()
    shared = place[:]
    shared.flags.writeable = False
    following = online_pass.publish(shared, public, noise, 0, count, 0, 0, first, place)[1]
    assert place.tobytes() == expected.tobytes()
    assert following == predictions[-1]


@pytest.mark.parametrize(("count", "block"), [(4, 16), (70, 16), (4, 64)])
def test_one_pass_detects_non_finite_values_anywhere(count: int, block: int) -> None:
    noise, last, public = np.zeros(count, np.int64), block * count, np.array([1.0, 2000.0, 1.0, block])
    for wrong, position in itertools.product((np.nan, np.inf, -np.inf), (0, 3, 15, 16, 31, 40, 63, last - 1)):
        values, published = np.arange(float(last)), np.empty(last)
        expected = sum(range(last - block, last)) / block
        assert online_pass.publish(values, public, noise, 0, count, 0, 0, 0.0, published) == (0, expected)
        values[position] = wrong
        assert np.isnan(online_pass.publish(values, public, noise, 0, count, 0, 0, 0.0, published)[1])


@pytest.mark.parametrize("size", [1, 7, 16, 1009])
def test_single_values_in_one_pass_equal_rounding_and_noise(size: int) -> None:
    values, noise = stream(size, size), np.random.default_rng(size).integers(-(2**60), 2**60, size + 3)
    steps, expected, published = np.empty(size, np.int64), np.empty(size), np.empty(size)
    assert not online_pass.round_values(values, 1 / RESOLUTION, 640.0, steps)
    online_pass.add_noise(steps, noise, RESOLUTION, expected)
    public = np.array([1 / RESOLUTION, 640.0, RESOLUTION, 1.0])
    assert online_pass.publish(values, public, noise, 0, size, 0, 0, 2.5, published) == (0, 2.5)
    assert published.tobytes() == expected.tobytes()
    noisy = [step + own for step, own in zip(steps.tolist(), noise[:size].tolist(), strict=True)]
    assert published.tolist() == [float(each) * RESOLUTION for each in noisy]
    for wrong, position in itertools.product((np.nan, np.inf, -np.inf), (0, size // 2, size - 1)):
        broken = values.copy()
        broken[position] = wrong
        assert np.isnan(online_pass.publish(broken, public, noise, 0, size, 0, 0, 2.5, published)[1])


#: Beyond 2^53 doubles are rounded to; both signs.
FAR = [2**63 - 1, -(2**63), 2**53 + 1, -(2**53) - 1, 2**51, 2**51 + 1, -1, 0]


@pytest.mark.parametrize("count", [1, 63, 64, 65, 150])
@pytest.mark.parametrize("block", [1, 16, 48, 256])
def test_whole_numbers_are_published_as_their_doubles_are(block: int, count: int) -> None:
    """For 16 values 64 blocks are summed together."""
    values = np.random.default_rng(block).integers(-10, 60, count * block)
    values[: len(FAR)] = FAR[: values.size]
    # As the package gives them: a further layout would be compiled for seconds.
    values.flags.writeable = False
    noise = np.random.default_rng(count).integers(-10_000, 10_000, count)
    for top in (640.0, 2.0**51):
        both = [np.empty(values.size), np.empty(values.size)]
        public = np.array([1 / RESOLUTION, top, RESOLUTION, block])
        for given, out in zip((values, values.astype(float)), both, strict=True):
            assert np.isfinite(online_pass.publish(given, public, noise, 0, count, 0, 0, 3.25, out)[1])
        assert both[0].tobytes() == both[1].tobytes()
