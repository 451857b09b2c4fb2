"""Discrete Gaussian noise: strips that cover the curve, doubles that agree with exact arithmetic, draws."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from fastdp.noise import Key, gaussian
from fastdp.noise.draws import discrete_gaussian
from fastdp.noise.gaussian import GaussianDistribution, gaussian_distribution
from fastdp.noise.words import Purpose, StreamId, word_at
from tests.stat import accept, chi_square_p, reject

KEY = Key.from_seed("gaussian")
STREAM = StreamId(Purpose.DRAWS, number=7)
SIGMAS = [
    Fraction(1, 2**10), Fraction(1, 3), Fraction(1), Fraction(71, 10), Fraction(1000), Fraction(2**22),
    Fraction(2**44),
]  # fmt: skip


def drawn(distribution: GaussianDistribution, count: int, start: int = 0) -> NDArray[np.int64]:
    out = np.empty(count, np.int64)
    gaussian.fill(out, distribution, KEY, STREAM, start)
    return out


def curve(distribution: GaussianDistribution, k: int) -> Any:
    with mpmath.workdps(60):
        exponent = mpmath.mpf(k) ** 2 / (
            2 * mpmath.mpf(distribution.sigma.numerator) ** 2 / distribution.sigma.denominator**2
        )
        return distribution.heights * mpmath.exp(-exponent)


@pytest.mark.parametrize("sigma", SIGMAS, ids=str)
def test_strips_cover_the_curve_and_nothing_twice(sigma: Fraction) -> None:
    distribution = gaussian_distribution(sigma)
    first, height, base, reach, sure = distribution.table.tolist()
    assert base == [0, *np.cumsum(height)[:-1].tolist()]
    assert base[-1] + height[-1] == distribution.heights
    cells = [h * (2 * w + 1) for h, w in zip(height, reach, strict=True)]
    assert first == [0, *np.cumsum(cells)[:-1].tolist()]
    assert distribution.covered == sum(cells)
    assert max(cells) < 2**53
    assert distribution.edge == reach[0] + 1
    for j in range(len(first)):
        # Beyond its reach the curve is at or below the strip's lower end; below `sure` it is above the strip.
        assert curve(distribution, reach[j] + 1) <= max(base[j], 1)
        if sure[j]:
            assert curve(distribution, sure[j] - 1) >= base[j] + height[j]
    with mpmath.workdps(60):
        square = mpmath.mpf(sigma.numerator) ** 2 / sigma.denominator**2
        assert (distribution.cells - distribution.covered) / 2 >= 1 / (1 - mpmath.exp(-distribution.edge / square))
    assert distribution.unfair == 2**64 % distribution.cells


@pytest.mark.parametrize("sigma", SIGMAS, ids=str)
def test_doubles_and_exact_arithmetic_agree(sigma: Fraction) -> None:
    distribution = gaussian_distribution(sigma)
    expected = [
        gaussian.resolve(distribution, lambda k, i=position: word_at(KEY, STREAM._replace(refinement=k), i))  # type: ignore[misc]
        for position in range(300)
    ]
    assert drawn(distribution, 300).tolist() == expected


def test_doubtful_draws_are_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    distribution = gaussian_distribution(Fraction(5))
    expected = drawn(distribution, 200)
    settled: list[int] = []
    settle = gaussian.resolve

    def doubting(words: Any, where: Any, count: int, *others: Any) -> tuple[int, int]:
        doubtful = others[-1]
        doubtful[:count] = where[:count]
        return 0, count

    def counted(*arguments: Any) -> int:
        settled.append(1)
        return settle(*arguments)

    monkeypatch.setattr(gaussian, "draw_strips", doubting)
    monkeypatch.setattr(gaussian, "resolve", counted)
    np.testing.assert_array_equal(drawn(distribution, 200), expected)
    assert len(settled) == 200


def test_a_draw_depends_on_its_position_alone() -> None:
    distribution = gaussian_distribution(Fraction(3))
    whole = drawn(distribution, 70_000)
    np.testing.assert_array_equal(drawn(distribution, 500, 69_000), whole[69_000:69_500])
    assert drawn(distribution, 1, 33_333).tolist() == [whole[33_333]]


def exact_law(sigma: float, most: int) -> NDArray[np.float64]:
    weights = np.exp(-(np.arange(-most, most + 1.0) ** 2) / (2.0 * sigma * sigma))
    return np.asarray(weights / weights.sum())


def p_value(draws: NDArray[np.int64], sigma: float, most: int) -> float:
    observed = np.bincount(np.clip(draws, -most, most) + most, minlength=2 * most + 1)
    return chi_square_p(observed, exact_law(sigma, most))


def test_the_tail_behind_the_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    # With 8 heights the strips end where the curve is at 1/8; what follows comes from exact arithmetic alone.
    monkeypatch.setattr(gaussian, "MAX_HEIGHT_BITS", 3)
    gaussian_distribution.cache_clear()
    distribution = gaussian_distribution(Fraction(2))
    gaussian_distribution.cache_clear()
    assert distribution.heights == 8
    draws = drawn(distribution, 20_000)
    assert np.count_nonzero(abs(draws) >= distribution.edge) > 300
    accept(p_value(draws, 2.0, 12))
    reject(p_value(draws, 2.1, 12))


@pytest.mark.parametrize("sigma", [Fraction(8), Fraction(2**20), Fraction(2**44)], ids=str)
def test_a_cell_of_the_tail_is_not_judged_by_its_ends(sigma: Fraction) -> None:
    """Both may lie above the curve, in different steps of the envelope, with places below it between them."""
    distribution = gaussian_distribution(sigma)
    cells, generator = (distribution.cells - distribution.covered) // 2, np.random.default_rng(11)
    numbers = generator.integers(0, 2**64, (600, 3), np.uint64).tolist()
    with mpmath.workdps(90):
        log_rho = mpmath.mpf(-distribution.edge) * sigma.denominator**2 / mpmath.mpf(sigma.numerator) ** 2
        rest = -mpmath.expm1(log_rho)
        for cell, words in zip(generator.integers(0, cells, 600).tolist(), numbers, strict=True):
            place = cell + mpmath.mpf(words[0] << 128 | words[1] << 64 | words[2]) / mpmath.mpf(2) ** 192
            left, expected = 1 - place * rest, None
            if left > 0:
                j = int(mpmath.floor(mpmath.log(left) / log_rho))
                if (mpmath.exp(log_rho * j) - left) / rest < curve(distribution, distribution.edge + j):
                    expected = j
            assert gaussian._tail(distribution, cell, gaussian._Bits(words)) == expected


@pytest.mark.parametrize("sigma", [0.3, 1.0, 10.0])
def test_the_law(sigma: float) -> None:
    draws = discrete_gaussian(sigma, 200_000, seed=4)
    accept(p_value(draws, sigma, 60))
    reject(p_value(draws, 1.05 * sigma, 60))


MILLIONS = [pytest.param(10, marks=pytest.mark.statistical), pytest.param(100, marks=pytest.mark.exhaustive)]


@pytest.mark.parametrize("millions", MILLIONS)
@pytest.mark.parametrize("sigma", [1.0, 10.0, 1e3, 2.0**22, 2.0**36])
def test_the_law_over_many_draws(sigma: float, millions: int) -> None:
    # Every integer where there are few, else bins between integers, of nearly equal probability.
    edges = np.arange(-80.0, 80.0)
    if sigma > 10.0:
        edges = np.unique(np.floor(sigma * stats.norm.ppf(np.linspace(0, 1, 201)[1:-1])))
    observed = np.zeros(edges.size + 1, np.int64)
    for part in range(millions // 10):
        draws = discrete_gaussian(sigma, 10**7, seed=5, stream=part)
        observed += np.bincount(np.searchsorted(edges, draws - 0.5), minlength=edges.size + 1)
    for factor in (1.0, 1.02):
        if sigma <= 10.0:
            inside = exact_law(factor * sigma, 160)[80:241]
            below = np.cumsum(np.append(exact_law(factor * sigma, 160)[:81].sum(), inside[1:-1]))
        else:
            # The sum of a smooth curve over integers is its integral between half-integers, to far below what shows.
            below = stats.norm.cdf((edges + 0.5) / (factor * sigma))
        p = chi_square_p(observed, np.diff(below, prepend=0.0, append=1.0))
        (accept if factor == 1.0 else reject)(p)
