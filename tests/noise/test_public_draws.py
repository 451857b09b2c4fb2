"""``fastdp.discrete_laplace``, ``geometric`` and ``discrete_gaussian``: the samplers for users."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.errors import ParameterError
from fastdp.noise import discrete_laplace, gaussian, geometric, sampler
from fastdp.noise.draws import _Draws, discrete_gaussian
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId
from tests import stat
from tests.oracles import distributions

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
