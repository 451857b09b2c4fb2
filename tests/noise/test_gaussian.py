"""Exact Gaussian noise, and the samplers that anyone may call."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

import fastdp
from fastdp.errors import ParameterError
from fastdp.noise import Key, discrete_laplace, gaussian, geometric, sampler
from fastdp.noise.gaussian import GaussianDistribution, gaussian_distribution
from fastdp.noise.public_draws import _Draws, discrete_gaussian
from fastdp.noise.words import Purpose, StreamId, word_at
from tests import stat
from tests.oracles import distributions
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

    def doubting(words: Any, where: Any, count: int, *others: Any) -> tuple[int, int]:
        doubtful = others[-1]
        doubtful[:count] = where[:count]
        return 0, count

    monkeypatch.setattr(gaussian, "draw_strips", doubting)
    np.testing.assert_array_equal(drawn(distribution, 200), expected)


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
    draws = drawn(distribution, 8000)
    assert np.count_nonzero(abs(draws) >= distribution.edge) > 120
    accept(p_value(draws, 2.0, 12))
    reject(p_value(draws, 2.2, 12))


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


#: By name: the function, its distribution, and how words become draws.
DRAWS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = {
    "discrete_laplace": (discrete_laplace, sampler.laplace_distribution, sampler.fill),
    "geometric": (geometric, sampler.geometric_distribution, sampler.fill),
    "discrete_gaussian": (discrete_gaussian, gaussian.gaussian_distribution, gaussian.fill),
}
every = pytest.mark.parametrize("draw", [each[0] for each in DRAWS.values()], ids=DRAWS)


@pytest.mark.parametrize("name", DRAWS)
def test_they_are_the_sampler(name: str) -> None:
    draw, distribution, fill = DRAWS[name]
    expected = np.empty(1000, np.int64)
    key = Key.from_seed(3).bind(_Draws(name, 5, 2))
    fill(expected, distribution(Fraction(2.5)), key, StreamId(Purpose.DRAWS, number=4))
    assert np.array_equal(draw(2.5, 1000, seed=3, stream=4), expected)
    assert np.array_equal(draw(Fraction(5, 2), 10, seed=3, stream=4), expected[:10])
    assert not np.array_equal(draw(2.5, 1000, seed=3), expected)
    assert not np.array_equal(draw(2.5, 1000), draw(2.5, 1000))
    assert draw(2.5, 0).shape == (0,)
    assert getattr(fastdp.noise if name == "geometric" else fastdp, name) is draw


@every
def test_shapes(draw) -> None:
    flat = draw(2.5, 24, seed=3)
    assert np.array_equal(draw(2.5, (2, 3, 4), seed=3), flat.reshape(2, 3, 4))
    assert draw(2.5, (), seed=3) == flat[0]
    assert draw(2.5, (3, 0)).shape == (3, 0)


@every
def test_a_generator_is_a_seed_and_a_key_a_key(draw) -> None:
    generators = [np.random.default_rng(5) for _ in range(2)]
    first, second = (draw(2.5, 100, rng=generators[0]) for _ in range(2))
    assert not np.array_equal(first, second)
    assert np.array_equal(draw(2.5, 100, rng=generators[1]), first)
    # Refused calls leave it where it was.
    refused = [{"seed": 1}, *({"stream": stream} for stream in (-1, 2**40))]
    refused += [{next(iter(inspect.signature(draw).parameters)): s} for s in (0.0, -1.0, math.nan, "3", 10**400)]
    refused += [{"size": size} for size in (-1, 2.5, (2, -1), (2**20, 2**20))]
    for wrong in refused:
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            draw(**{next(iter(inspect.signature(draw).parameters)): 2.5, "size": 3, "rng": generators[1], **wrong})
    assert np.array_equal(draw(2.5, 100, rng=generators[1]), second)
    key = Key.from_seed(1).of_stream("a")
    assert np.array_equal(draw(2.5, 9, rng=key), draw(2.5, 9, key=key))
    for wrong in (np.random.RandomState(1), 1, bytes(32)):
        with pytest.raises(ParameterError, match=r"^rng is a .*: expected a numpy.random.Generator or a fastdp.Key"):
            draw(2.5, 3, rng=wrong)
    with pytest.raises(ParameterError, match=r"^rng: expected None beside seed or key"):
        draw(2.5, 3, rng=key, key=key)


def test_their_laws() -> None:
    edges = np.arange(-30.0, 31.0)
    counts = np.histogram(discrete_laplace(3.0, 10**6, seed=stat.seed(71)), [-np.inf, *edges, np.inf])[0]
    stat.accept(stat.chi_square_p(counts, distributions.laplace_cells(edges, 3.0)))
    stat.reject(stat.chi_square_p(counts, distributions.laplace_cells(edges, 3.3)))
    counts = np.histogram(geometric(3.0, 10**6, seed=stat.seed(72)), [0, *range(1, 41), np.inf])[0]
    stat.accept(stat.chi_square_p(counts, distributions.geometric_cells(np.arange(1.0, 41.0), 3.0)))
    stat.reject(stat.chi_square_p(counts, distributions.geometric_cells(np.arange(1.0, 41.0), 3.3)))
