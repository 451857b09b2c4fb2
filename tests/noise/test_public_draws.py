"""``fastdp.noise.discrete_laplace`` and ``geometric``: the samplers for users."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import fastdp
from fastdp.errors import ParameterError
from fastdp.noise import discrete_laplace, geometric, sampler
from fastdp.noise.draws import _Draws
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId
from tests import stat
from tests.oracles import distributions


@pytest.mark.parametrize("draw", [discrete_laplace, geometric])
def test_they_are_the_sampler(draw) -> None:
    distribution = (sampler.laplace_distribution if draw is discrete_laplace else sampler.geometric_distribution)(
        Fraction(2.5)
    )
    expected = np.empty(1000, np.int64)
    key = Key.from_seed(3).bind(_Draws(draw.__name__, 5, 2))
    sampler.fill(expected, distribution, key, StreamId(Purpose.DRAWS, number=4))
    assert np.array_equal(draw(2.5, 1000, seed=3, stream=4), expected)
    assert np.array_equal(draw(Fraction(5, 2), 10, seed=3, stream=4), expected[:10])
    assert not np.array_equal(draw(2.5, 1000, seed=3), expected)
    assert not np.array_equal(draw(2.5, 1000), draw(2.5, 1000))
    assert draw(2.5, 0).shape == (0,)


@pytest.mark.parametrize("draw", [discrete_laplace, geometric])
def test_shapes_and_memory_of_ones_own(draw) -> None:
    flat = draw(2.5, 24, seed=3)
    assert np.array_equal(draw(2.5, (2, 3, 4), seed=3), flat.reshape(2, 3, 4))
    assert draw(2.5, (), seed=3) == flat[0]
    assert draw(2.5, (3, 0)).shape == (3, 0)
    out = np.zeros((4, 6), np.int64)
    for size in (None, (4, 6)):
        out[:] = 0
        assert draw(2.5, size, out, seed=3) is out
        assert np.array_equal(out.reshape(-1), flat)
    read_only = out.copy()
    read_only.flags.writeable = False
    for wrong in (out.T, out[:, ::2], out.astype(np.int32), out.astype(float), out.tolist(), read_only):
        with pytest.raises(ParameterError, match=r"^out: expected a writable, C-contiguous int64 array"):
            draw(2.5, None, wrong)
    with pytest.raises(ParameterError, match=r"^size = \(6, 4\): expected \(4, 6\), the shape of out"):
        draw(2.5, (6, 4), out)
    with pytest.raises(ParameterError, match=r"^size = None: expected"):
        draw(2.5)


@pytest.mark.parametrize("draw", [discrete_laplace, geometric])
def test_a_generator_is_a_seed_and_a_key_a_key(draw) -> None:
    generators = [np.random.default_rng(5) for _ in range(2)]
    first, second = (draw(2.5, 100, rng=generators[0]) for _ in range(2))
    assert not np.array_equal(first, second)
    assert np.array_equal(draw(2.5, 100, rng=generators[1]), first)
    # Refused calls leave it where it was.
    for wrong in ({"scale": 0.0}, {"size": -1}, {"stream": -1}, {"seed": 1}):
        with pytest.raises(ParameterError):
            draw(**{"scale": 2.5, "size": 3, "rng": generators[1], **wrong})
    assert np.array_equal(draw(2.5, 100, rng=generators[1]), second)
    key = Key.from_seed(1).of_stream("a")
    assert np.array_equal(draw(2.5, 9, rng=key), draw(2.5, 9, key=key))
    for wrong in (np.random.RandomState(1), 1, bytes(32)):
        with pytest.raises(ParameterError, match=r"^rng is a .*: expected a numpy.random.Generator or a fastdp.Key"):
            draw(2.5, 3, rng=wrong)
    with pytest.raises(ParameterError, match=r"^rng: expected None beside seed or key"):
        draw(2.5, 3, rng=key, key=key)


def test_it_is_at_the_top_level() -> None:
    assert fastdp.discrete_laplace is discrete_laplace


def test_their_laws() -> None:
    edges = np.arange(-30.0, 31.0)
    counts = np.histogram(discrete_laplace(3.0, 10**6, seed=stat.seed(71)), [-np.inf, *edges, np.inf])[0]
    stat.accept(stat.chi_square_p(counts, distributions.laplace_cells(edges, 3.0)))
    stat.reject(stat.chi_square_p(counts, distributions.laplace_cells(edges, 3.3)))
    counts = np.histogram(geometric(3.0, 10**6, seed=stat.seed(72)), [0, *range(1, 41), np.inf])[0]
    stat.accept(stat.chi_square_p(counts, distributions.geometric_cells(np.arange(1.0, 41.0), 3.0)))
    stat.reject(stat.chi_square_p(counts, distributions.geometric_cells(np.arange(1.0, 41.0), 3.3)))


def test_bad_arguments_are_named() -> None:
    for name, arguments in (
        ("scale", (0.0, 1)),
        ("scale", (-1.0, 1)),
        ("scale", (float("nan"), 1)),
        ("scale", ("3", 1)),
        ("scale", (Fraction(10**400), 1)),
        ("size", (1.0, -1)),
        ("size", (1.0, 2.5)),
        ("size", (1.0, (2, -1))),
        ("size", (1.0, (2**20, 2**20))),
    ):
        for draw in (discrete_laplace, geometric):
            with pytest.raises(ParameterError, match=name):
                draw(*arguments)
        with pytest.raises(ParameterError, match="stream"):
            fastdp.noise.discrete_laplace(1.0, 1, stream=2**40)
