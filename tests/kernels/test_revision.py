"""The stream seen again: levels by the joint normal distribution, sums by integrating value by value."""

from __future__ import annotations

import numpy as np
import pytest

from fastdp_kernels.streams import adaptive_pass, revision
from tests.kernels.adaptive_runs import (
    THETA_STEPS,
    public,
    revise,
    run_kernel,
    run_oracle,
    shape_of,
    start,
    sums_before,
)
from tests.kernels.streams_for_adaptive import STREAMS, laplace, make_stream
from tests.oracles import adaptive


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize(("epsilon", "exponent"), [(0.05, 6), (0.5, 0), (20.0, 6)])
def test_levels_means_and_sums_equal_the_oracle(name: str, epsilon: float, exponent: int) -> None:
    p = public(epsilon=epsilon, max_range=2**12)
    n = 1500
    steps, noise = make_stream(name, n, 5), laplace(n, THETA_STEPS / epsilon, 6)
    got, learner = run_kernel(p, steps, noise, exponent), run_oracle(p, steps, noise, exponent)
    means, levels = revise(p, start(p, exponent), got.blocks)
    expected = adaptive.levels_given_all(learner)
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(levels, expected, rtol=1e-9, atol=1e-9 * scale)
    np.testing.assert_allclose(means, adaptive.block_means(learner, expected), rtol=1e-9, atol=1e-9 * scale)
    values = adaptive.revised(got.blocks["exponent"][:-1], means, levels, n)
    stops = np.arange(n + 1)
    sums = sums_before(got.blocks, means, levels, stops)
    np.testing.assert_allclose(sums, np.concatenate([[0.0], np.cumsum(values)]), rtol=1e-9, atol=1e-8 * scale)


def test_what_the_warm_up_said_is_where_the_revision_begins() -> None:
    p = public(limit=1024)
    steps, noise = make_stream("wandering", 12_000, 7), laplace(12_000, THETA_STEPS / 0.5, 8)
    learner = run_oracle(p, steps, noise, 6)
    held = run_kernel(p, steps[:1024], noise, 6)
    skip = int(held.counters["closed"][0])
    assert held.counters["filled"][0] == 0, "a block ends where the warm-up does"
    rest = run_kernel(p, steps[1024:], noise[skip:], 0, memory=held.memory)
    means, levels = revise(p, held.memory, rest.blocks)
    expected = adaptive.levels_given_all(learner, skip)
    np.testing.assert_allclose(levels, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(means, adaptive.block_means(learner, expected, skip), rtol=1e-9, atol=1e-9)


def test_under_a_pattern_levels_are_those_of_what_is_left() -> None:
    """As if the rest had been released, with the noise that the sums had; of a theta that rose as well."""
    p = public(max_range=2**12)
    got = run_kernel(p, make_stream("wandering", 6000, 9), laplace(6000, THETA_STEPS / 0.5, 10), 0)
    exponents, totals = got.blocks["exponent"][:-1].copy(), got.blocks["released"][:-1].copy()
    pattern = 0.1 * np.sin(np.arange(totals.size))

    def revised(sums: np.ndarray, explained: np.ndarray, noises: np.ndarray, unit: float) -> list[np.ndarray]:
        memory = start(p, 0)
        memory["unit"], memory["reference"] = unit, 0.0 if explained.size else -1.0
        means, levels, *others = np.empty((5, totals.size))
        arrays = (exponents, sums, explained, means, levels, noises, *others)
        revision.revise_blocks(memory, shape_of(p), None, *arrays)
        return [means, levels, *others]

    for unit in (1.0, 1.5):
        expected = revised(totals - pattern, np.empty(0), np.empty(totals.size), unit)
        found = revised(totals, pattern, np.full(totals.size, unit**2), 1.0)
        assert not np.array_equal(found, revised(totals, np.empty(0), np.empty(totals.size), unit))
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_between_values_the_stream_is_a_line_through_the_levels() -> None:
    """By hand: two blocks of 2 and 4 values, levels 1 and 4, means kept."""
    blocks = np.zeros(3, adaptive_pass.BLOCK)
    blocks["exponent"] = 1.0, 2.0, 0.0
    means, levels = np.array([10.0, 20.0]), np.array([1.0, 4.0])
    values = np.diff(sums_before(blocks, means, levels, np.arange(9)))
    # Middles at 1 and 4: at 2 the line is at 2.
    line = np.array([1.0, 1.5, 2.5, 3.5, 4.0, 4.0])
    line[:2] += 10.0 - line[:2].mean()
    line[2:] += 20.0 - line[2:].mean()
    assert values == pytest.approx([*line, 4.0, 4.0])


def test_without_a_closed_block_there_is_a_level() -> None:
    out = np.empty(3)
    empty = np.empty(0)
    revision.sum_revised(
        *(np.zeros(1, np.int64), empty, np.array([0.5]), np.zeros(1), 62, np.empty(0, np.int64)),
        *(np.array([0, 1, 10]), out),
    )
    assert out.tolist() == [0.0, 0.5, 5.0]
