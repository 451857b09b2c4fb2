"""Reports of the local model: kernel, plain Python and oracle agree word by word, at every border."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from fastdp.local import Hybrid, Piecewise, SquareWave, StochasticRounding
from fastdp.local.mechanisms import Mechanism
from fastdp.local.reports import (
    BitDistribution,
    MixtureDistribution,
    ReportDistribution,
    WindowDistribution,
    bit_distribution,
    window_distribution,
)
from fastdp.noise.canonical import encode, identity
from fastdp.noise.key import Key
from fastdp.noise.words import CHUNK, Purpose, StreamId, WordStream
from fastdp_kernels.local import local_reports
from tests.grid import exhaustive
from tests.oracles import local

EPSILONS = [1e-6, 0.61, 2.5, 32.0, *exhaustive(0.01, 0.62, 1.0, 8.0, 30.0)]
MECHANISMS = [
    (SquareWave, local.square_wave),
    (StochasticRounding, local.stochastic_rounding),
    (Piecewise, local.piecewise),
    (Hybrid, local.hybrid),
]
STEPS = Mechanism.STEPS


def kernel_reports(distribution: ReportDistribution, words: list[int], x: int) -> list[int]:
    out = np.full(len(words), -1, np.int32)
    distribution.fill(np.array(words, np.uint64), np.full(len(words), x, np.int32), out)
    return out.tolist()


def borders(distribution: ReportDistribution, x: int, source: random.Random) -> Iterator[int]:
    """First words of cells: all the kinds of cells, first, last and some between."""
    if isinstance(distribution, MixtureDistribution):
        yield from borders(distribution.window, x, source)
        yield distribution.window.total
        yield from (distribution.window.total + word for word in borders(distribution.bit, x, source))
    elif isinstance(distribution, WindowDistribution):
        near = [
            0,
            1,
            distribution.near - 1,
            distribution.near,
            *(source.randrange(distribution.near) for _ in range(40)),
        ]
        far = [
            0,
            1,
            x - 1,
            x,
            x + 1,
            distribution.steps - 1,
            distribution.steps,
            *(source.randrange(distribution.steps) for _ in range(40)),
        ]
        yield from (k * distribution.near_weight for k in near)
        yield from (distribution.near_words + k * distribution.far_weight for k in far)
        yield distribution.total - distribution.left_over + distribution.outputs
    else:
        assert isinstance(distribution, BitDistribution)
        yield distribution.weight(x, 1)
        yield from (distribution.low_weight, distribution.high_weight)


def hard_words(distribution: ReportDistribution, x: int, seed: int) -> list[int]:
    source = random.Random(seed)
    words = [0, 1, distribution.total - 2, distribution.total - 1]
    for border in borders(distribution, x, source):
        words += [border - 1, border, border + 1]
    words += [source.randrange(distribution.total) for _ in range(150)]
    words += [distribution.total - 1 - source.randrange(1 << source.randrange(1, 60)) for _ in range(50)]
    return [word for word in words if 0 <= word < distribution.total]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(("mechanism", "oracle"), MECHANISMS)
def test_kernel_python_and_oracle_agree_at_every_border(mechanism, oracle, epsilon: float) -> None:
    distribution, naive = mechanism(epsilon).distribution, oracle(epsilon, STEPS)
    assert distribution.outputs == naive.outputs
    for x in (0, 1, STEPS // 3, STEPS // 2, STEPS - 1, STEPS):
        words = hard_words(distribution, x, x)
        expected = [naive.report(word, x) for word in words]
        assert [distribution.report(word, x) for word in words] == expected
        assert kernel_reports(distribution, words, x) == expected
        assert set(expected) <= set(range(distribution.outputs))


@pytest.mark.parametrize("steps", [16, 64])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0])
def test_weights_count_the_words(steps: int, epsilon: float) -> None:
    """All words of a small distribution, through the kernel: each output comes as often as its weight says."""
    distributions: list[ReportDistribution] = [
        window_distribution(epsilon, near, steps, 2**22 + 12345) for near in (1, 5, steps + 1)
    ]
    distributions.append(bit_distribution(epsilon, steps, 2**22 + 777))
    distributions.append(
        MixtureDistribution(
            window_distribution(epsilon, 7, steps, 2**22 + 3), bit_distribution(epsilon, steps, 2**64 - 2**22 - 3)
        )
    )
    for distribution in distributions:
        size = distribution.window.total if isinstance(distribution, MixtureDistribution) else distribution.total
        words = np.arange(size, dtype=np.uint64)
        out = np.empty(size, np.int32)
        for x in (0, 1, steps // 2, steps):
            distribution.fill(words, np.full(size, x, np.int32), out)
            shown = distribution.window if isinstance(distribution, MixtureDistribution) else distribution
            weights = [shown.weight(x, output) for output in range(shown.outputs)]
            assert np.bincount(out, minlength=shown.outputs).tolist() == weights
            assert sum(weights) == size


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_kernels_get_weights_that_their_division_takes(epsilon: float) -> None:
    for mechanism in (SquareWave, Piecewise, Hybrid):
        distribution = mechanism(epsilon).distribution
        window = distribution.window if isinstance(distribution, MixtureDistribution) else distribution
        if isinstance(window, WindowDistribution):
            assert window.near_weight >= window.far_weight >= 2**12
            assert window.outputs < 2**22
            assert window.left_over >= 0


def test_snapping_is_the_oracle() -> None:
    low, high = -3.7, 19.2
    source = random.Random(5)
    half = (high - low) / STEPS / 2
    values = [low, high, low - 1, high + 1, 1e308, -1e308, 0.0, -0.0, 5e-324, (low + high) / 2]
    values += [source.uniform(low - 1, high + 1) for _ in range(500)]
    values += [low + half * (2 * source.randrange(STEPS) + 1) for _ in range(500)]
    out = np.empty(len(values), np.int32)
    mechanism = Hybrid(1.0, low, high)
    assert local_reports.snap_values(np.array(values), low, STEPS / (high - low), STEPS, out) == 0
    assert out.tolist() == [local.step(value, low, high, STEPS) for value in values]
    assert out.tolist() == [mechanism.steps_of(value) for value in values]
    assert np.array_equal(out, mechanism.steps_of(values))
    largest = np.finfo(np.float64).max
    strange = np.array([largest, -largest, np.nan, np.inf, -np.inf])
    assert local_reports.snap_values(strange, 0.0, 1.0, STEPS, out) == 3
    assert out[:2].tolist() == [STEPS, 0]


@pytest.mark.parametrize("mechanism", [pair[0] for pair in MECHANISMS])
def test_one_by_one_and_arrays_of_any_size_are_the_same_reports(mechanism) -> None:
    size = 2 * CHUNK + 1
    client, key = mechanism(1.3, -2.0, 5.0), Key.from_seed(8)
    values = np.random.default_rng(8).uniform(-2.5, 5.5, size)
    whole = client.perturb(values, key=key, stream=9, start=0)
    words = np.empty(size, np.uint64)
    own = key.within(encode(identity(client)))
    WordStream(own, StreamId(Purpose.LOCAL, client.WORD_LEVEL, 9)).fill(words)
    for i in [*range(70), CHUNK - 1, CHUNK, CHUNK + 1, size - 1]:
        report = client.distribution.report(int(words[i]), client.steps_of(float(values[i])))
        assert report == whole[i]
        assert client.perturb(values[i], key=key, stream=9, start=i) == report
    for count in (0, 1, 2, 63, 64, 65, 1009, CHUNK - 1, CHUNK, CHUNK + 1):
        part = client.perturb(values[:count], key=key, stream=9, start=0)
        assert part.dtype == np.int32
        assert np.array_equal(part, whole[:count])
    for start in (1, 7, CHUNK - 1, CHUNK):
        assert np.array_equal(client.perturb(values[start:], key=key, stream=9, start=start), whole[start:])
    assert not np.array_equal(client.perturb(values, key=key, stream=10, start=0), whole)
    assert not np.array_equal(client.perturb(values), client.perturb(values))
