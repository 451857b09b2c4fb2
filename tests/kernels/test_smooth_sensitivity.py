"""Choices of thresholds: smooth sensitivity and histograms of hold-outs."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.peers.paper_scan import scan_pairs
from fastdp.thresholds.scale_free import first_of_eighths
from fastdp_kernels.streams import threshold_choice
from tests.oracles import smooth_sensitivity as oracle
from tests.shared import real_stream


def table(b: float, m: int) -> np.ndarray:
    return np.array(oracle.decay_table(b, m + 2))


def both(values: np.ndarray, bound: int, rank: int, decay: np.ndarray) -> tuple[float, float]:
    steps = np.ascontiguousarray(values, np.int64)
    scan = scan_pairs(steps, bound, rank, decay)
    return scan, threshold_choice.smooth_sensitivity(steps, bound, rank, decay)


def instance(generator: np.random.Generator, m: int) -> tuple[np.ndarray, int]:
    """Sorted values with a bound: ties, constants, zeros, geometric gaps that nearly tie every pair."""
    bound = int(generator.choice([1, 3, 20, 1657, 2**33, 2**50]))
    kind = generator.integers(0, 7)
    if kind == 0:
        values = np.full(m, generator.integers(0, bound + 1))
    elif kind == 1:
        values = generator.choice([0, bound // 2, bound], m)
    elif kind == 2:
        values = np.zeros(m, np.int64)
    elif kind == 3:
        values = generator.integers(0, bound + 1, m)
    elif kind == 4:
        values = np.minimum(generator.geometric(0.2, m), bound)
    elif kind == 5:
        values = bound // 2 + np.arange(m) * (bound // (4 * m + 4))
    else:
        # Jumps grow like e^(b k) on both sides of the middle: the best pair is everywhere at once.
        k = np.arange(m) - m // 2
        raw = np.sign(k) * np.expm1(np.abs(k) * generator.choice([1e-3, 0.1, 0.5]))
        raw -= raw[0]
        values = np.floor(raw / max(raw[-1], 1e-9) * bound * 0.999)
    return np.sort(values).astype(np.int64), bound


def smoothing(generator: np.random.Generator) -> float:
    return float(generator.choice([1e-17, 1e-12, 1e-8, 1e-4, 9e-4, 0.02, 0.1, 0.5, 1.0, 5.0, 90.0]))


def test_oracle_scan_and_divide_and_conquer_agree_to_the_last_bit() -> None:
    generator = np.random.default_rng(20)
    for trial in range(10_000):
        m = 1 + trial % 12
        values, bound = instance(generator, m)
        rank = [1, m, int(generator.integers(1, m + 1))][trial % 3]
        decay = table(smoothing(generator), m)
        expected = oracle.smooth_sensitivity(values.tolist(), bound, rank, decay.tolist())
        assert both(values, bound, rank, decay) == (expected, expected), (values, bound, rank, decay)


@pytest.mark.parametrize("b", [1e-12, 1e-9, 9e-4])
def test_pairs_that_nearly_all_tie_agree(b: float) -> None:
    """Differences D (1 + b (j - i)): for small b every pair lies within an ulp or two of the best."""
    m, spread = 801, 2**49
    step = max(1, round(spread * b))
    low = np.arange(400) * step
    values = np.concatenate([low, spread + low[-1] + np.arange(1, 402) * step])
    for rank in (1, 399, 400, 401, 402, m):
        scan, divided = both(values, 2**50, rank, table(b, m))
        assert scan == divided


def test_columns_are_compared_exactly() -> None:
    """Products that round to the same double: the larger exact one counts, as the proof of the kernel needs."""
    generator = np.random.default_rng(12)
    ties = 0
    for _ in range(2000):
        # One step of the values is about one step of the weights, so that products lie within an ulp or two.
        tops = 2.0**50 + np.arange(12.0)
        weights = 1.0 - np.cumsum(generator.integers(6, 11, 12)) * 2.0**-53
        x = float(generator.integers(0, 2**20))
        products = (tops - x) * weights
        exact = [(Fraction(top) - Fraction(x)) * Fraction(w) for top, w in zip(tops, weights, strict=True)]
        assert exact[threshold_choice.best_column(x, tops, weights, 0, 11)] == max(exact)
        ties += exact[int(products.argmax())] != max(exact)
    assert ties > 100


def test_the_formula_is_the_definition() -> None:
    """Appendix B against Definition 10 by brute force over all neighbouring streams."""
    generator = np.random.default_rng(5)
    for trial in range(60):
        m, bound = 1 + trial % 4, 9
        values = np.sort(generator.integers(0, bound + 1, m))
        rank, b = int(generator.integers(1, m + 1)), float(generator.choice([0.1, 0.7, 2.0]))
        expected = oracle.from_the_definition(values.tolist(), bound, rank, b)
        assert both(values, bound, rank, table(b, m))[1] == pytest.approx(expected, rel=1e-12)


def test_by_hand() -> None:
    decay = table(math.log(2.0), 3)
    # Rank 2 of 1, 4, 6 in [0, 16]: k = 0 gives 3, k = 1 gives (16 - 4) / 2.
    assert both(np.array([1, 4, 6]), 16, 2, decay)[1] == pytest.approx(6.0, rel=1e-15)
    # All at the bound: only changes downwards, 16 at once.
    assert both(np.array([16, 16, 16]), 16, 1, decay) == (16.0, 16.0)
    assert both(np.array([16, 16, 16]), 16, 3, decay)[1] == pytest.approx(4.0, rel=1e-15)
    # Nothing left of a decay that is 0 throughout: the floor, which is no smaller than a smooth upper bound.
    assert both(np.array([0, 0, 0]), 16, 1, table(1e4, 3)) == (2.0**-800, 2.0**-800)


def test_pos() -> None:
    """At eps = .05, p = .995, delta = 1/n^2: (1657 - 39) e^(-327 b) = 1206.38.

    The project's note has 1192.2, 1.2 % less.  No smooth sensitivity can be: the pair (P, m + 1) alone gives
    1206.38, since the value of rank P = 65,209 is 39.  Rank 65,196, still a 39, would give 1192.38.
    """
    m = 65_536
    values = np.sort(real_stream(length=m).astype(np.int64))
    b = 0.05 / (2.0 * math.log(float(2**20 + m) ** 2))
    decay = table(b, m)
    assert values[65_209 - 1] == 39
    scan, divided = both(values, 1657, 65_209, decay)
    assert scan == divided == pytest.approx((1657 - 39) * math.exp(-327 * b), rel=1e-12)
    assert divided == pytest.approx(1192.2, rel=0.015)
    assert both(values, 1657, 65_196, decay)[1] == pytest.approx(1192.2, abs=0.3)


@given(
    st.integers(1, 2**45).flatmap(lambda top: st.tuples(st.just(top), st.lists(st.integers(0, top), max_size=40))),
    st.integers(2, 5),
    st.sampled_from([1, 60]),
)
def test_bins_by_eighths_of_octaves_are_those_of_a_search(
    values: tuple[int, list[int]], per_octave: int, repeats: int
) -> None:
    top, steps = values
    grid = np.rint(top * 2.0 ** (-np.arange(60 * per_octave) / per_octave)).astype(np.int64)
    candidates = np.unique(np.maximum(np.append(grid, top), 1))
    near = np.clip(np.concatenate([candidates - 1, candidates, candidates + 1]), 0, top)
    # Also more than a piece of values, which four histograms count.
    every = np.tile(np.concatenate([np.array(steps, np.int64), near]), repeats)
    counts = np.zeros(candidates.size, np.int64)
    scratch = np.empty(threshold_choice.PIECE, np.uint32), np.zeros((3, candidates.size), np.int64)
    threshold_choice.bin_eighths(0.5 * every, 2.0, float(top), *first_of_eighths(candidates), *scratch, counts)
    assert np.array_equal(counts, np.bincount(np.searchsorted(candidates, every), minlength=candidates.size))


@given(st.integers(0, 5_000), st.integers(1, 200), st.integers(0, 2**32 - 1))
def test_bins_of_long_holdouts_are_those_of_a_search(size: int, candidates: int, seed: int) -> None:
    """Four histograms or one; values below, within and above the candidates."""
    values = np.random.default_rng(seed).normal(candidates / 4, candidates / 2, size)
    plain, parted = np.arange(candidates + 1), np.arange(candidates + 1)
    assert not threshold_choice.bin_values(values, 0.5, plain)
    room = np.empty(threshold_choice.PIECE, np.uint32), np.zeros((3, candidates + 1), np.int64)
    assert not threshold_choice.bin_pieces(values, 0.5, *room, parted)
    bins = np.minimum(np.searchsorted(0.5 * np.arange(candidates + 1), values), candidates)
    expected = np.arange(candidates + 1) + np.bincount(bins, minlength=candidates + 1)
    assert np.array_equal(plain, expected)
    assert np.array_equal(parted, expected)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 7, 1023, 1024, 2047, 2048, 2099])
def test_histograms_tell_of_values_that_are_not_finite(wrong: float, place: int) -> None:
    values, counts = np.full(2100, 3.0), np.zeros(9, np.int64)
    values[place] = wrong
    assert threshold_choice.bin_values(values, 1.0, counts)
    assert threshold_choice.bin_pieces(
        values, 1.0, np.empty(threshold_choice.PIECE, np.uint32), np.zeros((3, 9), np.int64), counts
    )
