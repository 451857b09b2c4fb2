"""The samplers' distributions: chi-square against closed forms, with power, and against independent samplers."""

from __future__ import annotations

from fractions import Fraction

import numba
import numpy as np
import pytest

from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId
from tests import stat
from tests.oracles import distributions, exact_noise

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
    names = [(Purpose.TREE, 1, 0), (Purpose.TREE, 2, 0), (Purpose.TREE, 1, 1), (Purpose.THRESHOLD,)]
    draws = [sampler.draws(2**20, distribution, key, StreamId(*name)) for name in names]
    first, *others = (np.digitize(out, [-1000, -300, 0, 300, 1000]) for out in draws)
    for a, b in ((first[:-1], first[1:]), *((first, other) for other in others)):
        joint = np.bincount(6 * a + b, minlength=36)
        margins = np.outer(np.bincount(a, minlength=6), np.bincount(b, minlength=6)) / a.size**2
        stat.accept(stat.chi_square_p(joint, margins.ravel()))
    stat.reject(stat.chi_square_p(np.bincount(7 * first, minlength=36), np.full(36, 1 / 36)))


@pytest.mark.parametrize("scale", [2.5, 300.0])
def test_digit_sampler_agrees(scale: float) -> None:
    """An independent exact sampler follows the same closed form, and our draws are homogeneous with it."""
    layout = cell_layout(scale)
    theirs = np.zeros(layout[2], np.int64)
    count_cells(
        exact_noise.laplace_by_digits(scale, 10**6, np.random.default_rng(stat.seed(16))), *layout[:2], theirs
    )
    stat.accept(stat.chi_square_p(theirs, distributions.laplace_cells(edges(*layout), scale)))

    def homogeneous(ours: float) -> float:
        drawn = histogram(sampler.laplace_distribution(Fraction(ours)), 10**6, *layout, stat.seed(17))
        return stat.chi_square_p(np.concatenate([drawn, theirs]), np.tile((drawn + theirs) / 4e6, 2))

    stat.accept(homogeneous(scale))
    stat.reject(homogeneous(scale * 1.1))


def slow(*cases: tuple[object, ...]) -> list[object]:
    return [pytest.param(*case, marks=pytest.mark.statistical) for case in cases]


@pytest.mark.parametrize(
    ("scale", "total", "off"),
    # The largest one draws two words.
    [(10, 10**8, 1.02), (2**44, 10**6, 1.1), *slow(*((scale, 10**8, 1.02) for scale in (1, 1000, 2**22, 2**40)))],
)
def test_discrete_laplace(scale: int, total: int, off: float) -> None:
    layout = cell_layout(scale)
    observed = histogram(sampler.laplace_distribution(scale), total, *layout, stat.seed(11))
    assert observed.sum() == total
    stat.accept(stat.chi_square_p(observed, distributions.laplace_cells(edges(*layout), scale)))
    for wrong in (scale * off, scale / off):
        stat.reject(stat.chi_square_p(observed, distributions.laplace_cells(edges(*layout), wrong)))


@pytest.mark.parametrize("scale", [10, *slow((1,), (2**22,))])
def test_geometric(scale: int) -> None:
    width = max(1, scale // 4)
    observed = histogram(sampler.geometric_distribution(scale), 10**7, width, width, 60, stat.seed(12))
    stat.accept(stat.chi_square_p(observed, distributions.geometric_cells(edges(width, width, 60), scale)))
    stat.reject(stat.chi_square_p(observed, distributions.geometric_cells(edges(width, width, 60), scale * 1.02)))
