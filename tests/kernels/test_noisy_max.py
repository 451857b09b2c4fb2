"""Histograms of hold-outs: equal to a search for each value."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdp.thresholds.scale_free import first_of_eighths
from fastdp_kernels.streams import threshold_choice


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
