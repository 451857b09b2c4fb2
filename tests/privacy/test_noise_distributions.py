"""The samplers' distributions: chi-square against closed forms, with power, and against independent samplers."""

from __future__ import annotations

import random
from fractions import Fraction

import numba
import numpy as np
import pytest

from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId
from tests import stat
from tests.oracles import distributions, exact_noise

HUNDRED_MILLION = 10**8
BATCH = 2**22


@numba.njit(nogil=True)
def count_cells(draws, first_edge, width, cells):
    """Cells: below first_edge, then steps of ``width``, then the rest."""
    last = cells.size - 1
    for i in range(draws.size):
        distance = draws[i] - first_edge
        cell = 0 if distance < 0 else min(distance // width + 1, last)
        cells[cell] += 1


def histogram(
    distribution: sampler.LaplaceDistribution, total: int, first_edge: int, width: int, size: int, seed: int
) -> np.ndarray:
    cells = np.zeros(size, np.int64)
    key = Key.from_seed(seed)
    batch = np.empty(BATCH, np.int64)
    for number, begin in enumerate(range(0, total, BATCH)):
        part = batch[: min(BATCH, total - begin)]
        sampler.fill(part, distribution, key, StreamId(Purpose.DRAWS, number=number))
        count_cells(part, first_edge, width, cells)
    return cells


def cell_layout(scale: float) -> tuple[int, int, int]:
    """First edge, width and number of cells: single numbers for small scales, a quarter scale for large ones."""
    width = max(1, int(scale / 4))
    half = 40 if width == 1 else 48
    return -half * width, width, 2 * half + 2


def edges(first_edge: int, width: int, size: int) -> np.ndarray:
    return first_edge + width * np.arange(size - 1, dtype=np.float64)


@pytest.mark.parametrize(
    "scale", [10, *(pytest.param(scale, marks=pytest.mark.statistical) for scale in (1, 1000, 2**22, 2**40))]
)
def test_discrete_laplace_over_a_hundred_million_draws(scale: int) -> None:
    layout = cell_layout(scale)
    observed = histogram(sampler.laplace_distribution(scale), HUNDRED_MILLION, *layout, stat.seed(11))
    assert observed.sum() == HUNDRED_MILLION
    stat.accept(stat.chi_square_p(observed, distributions.laplace_cells(edges(*layout), scale)))
    for wrong in (scale * 1.02, scale / 1.02):
        stat.reject(stat.chi_square_p(observed, distributions.laplace_cells(edges(*layout), wrong)))


@pytest.mark.parametrize("scale", [10, *(pytest.param(scale, marks=pytest.mark.statistical) for scale in (1, 2**22))])
def test_geometric_over_ten_million_draws(scale: int) -> None:
    width = max(1, scale // 4)
    observed = histogram(sampler.geometric_distribution(scale), 10**7, width, width, 60, stat.seed(12))
    stat.accept(stat.chi_square_p(observed, distributions.geometric_cells(edges(width, width, 60), scale)))
    stat.reject(stat.chi_square_p(observed, distributions.geometric_cells(edges(width, width, 60), scale * 1.02)))


def test_two_word_draws_above_the_one_word_scale() -> None:
    scale = 2**44
    layout = cell_layout(scale)
    observed = histogram(sampler.laplace_distribution(scale), 10**6, *layout, stat.seed(13))
    stat.accept(stat.chi_square_p(observed, distributions.laplace_cells(edges(*layout), scale)))
    stat.reject(stat.chi_square_p(observed, distributions.laplace_cells(edges(*layout), scale * 1.1)))


def test_low_digits_are_uniform_at_large_scales() -> None:
    """The lowest digits of a wide distribution are uniform: a sampler that rounds doubles would show here."""
    for scale in (2**40, 2**50):
        out = np.empty(2**20, np.int64)
        sampler.fill(out, sampler.laplace_distribution(scale), Key.from_seed(stat.seed(14)), StreamId(Purpose.DRAWS))
        counts = np.bincount(out & 255, minlength=256)
        stat.accept(stat.chi_square_p(counts, np.full(256, 1 / 256)))
    # Power: multiples of two, as doubles beyond 2^53 are, fail.
    stat.reject(stat.chi_square_p(np.bincount(out & 254, minlength=256), np.full(256, 1 / 256)))


def test_draws_are_independent() -> None:
    """Neighbours, and equal positions of different streams: signs and magnitudes against independence."""
    distribution, key = sampler.laplace_distribution(1000), Key.from_seed(stat.seed(15))
    streams = []
    for stream in (
        StreamId(Purpose.TREE, 1, 0),
        StreamId(Purpose.TREE, 2, 0),
        StreamId(Purpose.TREE, 1, 1),
        StreamId(Purpose.THRESHOLD),
    ):
        out = np.empty(2**20, np.int64)
        sampler.fill(out, distribution, key, stream)
        streams.append(np.digitize(out, [-1000, -300, 0, 300, 1000]))
    first = streams[0]
    for a, b in ((first[:-1], first[1:]), *((first, other) for other in streams[1:])):
        joint = np.bincount(6 * a + b, minlength=36)
        margins = np.outer(np.bincount(a, minlength=6), np.bincount(b, minlength=6)) / a.size**2
        stat.accept(stat.chi_square_p(joint, margins.ravel()))
    stat.reject(stat.chi_square_p(np.bincount(7 * first, minlength=36), np.full(36, 1 / 36)))


@pytest.mark.parametrize("scale", [2.5, 300.0])
def test_digit_sampler_agrees(scale: float) -> None:
    """An independent exact sampler follows the same closed form, and our draws are homogeneous with it."""
    layout = cell_layout(scale)
    exact_cells = distributions.laplace_cells(edges(*layout), scale)
    digits = exact_noise.laplace_by_digits(scale, 10**6, np.random.default_rng(stat.seed(16)))
    theirs = np.zeros(layout[2], np.int64)
    count_cells(digits, layout[0], layout[1], theirs)
    stat.accept(stat.chi_square_p(theirs, exact_cells))
    ours = histogram(sampler.laplace_distribution(Fraction(scale)), 10**6, *layout, stat.seed(17))
    pooled = (ours + theirs) / (2 * 10**6)
    both = np.concatenate([ours, theirs])
    stat.accept(stat.chi_square_p(both, np.concatenate([pooled, pooled]) / 2))
    wrong = histogram(sampler.laplace_distribution(Fraction(scale * 1.1)), 10**6, *layout, stat.seed(17))
    pooled = (wrong + theirs) / (2 * 10**6)
    stat.reject(stat.chi_square_p(np.concatenate([wrong, theirs]), np.concatenate([pooled, pooled]) / 2))


def test_rational_sampler_agrees() -> None:
    scale = Fraction(7, 2)
    source = random.Random(stat.seed(18))
    draws = np.array([exact_noise.laplace_by_rationals(scale, source) for _ in range(60_000)])
    layout = cell_layout(float(scale))
    counts = np.zeros(layout[2], np.int64)
    count_cells(draws, layout[0], layout[1], counts)
    stat.accept(stat.chi_square_p(counts, distributions.laplace_cells(edges(*layout), float(scale))))
    stat.reject(stat.chi_square_p(counts, distributions.laplace_cells(edges(*layout), float(scale) * 1.1)))
