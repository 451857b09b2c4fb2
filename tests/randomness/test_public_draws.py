"""``fastdp.randomness.discrete_laplace`` and ``geometric``: the samplers for users."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import fastdp
from fastdp.errors import ParameterError
from fastdp.randomness import discrete_laplace, geometric, sampler
from fastdp.randomness.key import Key
from fastdp.randomness.words import Purpose, StreamId
from tests import stat
from tests.oracles import laws


@pytest.mark.parametrize("draw", [discrete_laplace, geometric])
def test_they_are_the_sampler(draw) -> None:
    law = (sampler.discrete_laplace_law if draw is discrete_laplace else sampler.geometric_law)(Fraction(2.5))
    expected = np.empty(1000, np.int64)
    key = Key.from_seed(3).bind(draw.__name__, {"numerator": 5, "denominator": 2})
    sampler.fill(expected, law, key, StreamId(Purpose.DRAWS, number=4))
    assert np.array_equal(draw(2.5, 1000, seed=3, stream=4), expected)
    assert np.array_equal(draw(Fraction(5, 2), 10, seed=3, stream=4), expected[:10])
    assert not np.array_equal(draw(2.5, 1000, seed=3), expected)
    assert not np.array_equal(draw(2.5, 1000), draw(2.5, 1000))
    assert draw(2.5, 0).shape == (0,)


def test_their_laws() -> None:
    edges = np.arange(-30.0, 31.0)
    counts = np.histogram(discrete_laplace(3.0, 10**6, seed=stat.seed(71)), [-np.inf, *edges, np.inf])[0]
    stat.accept(stat.chi_square_p(counts, laws.laplace_cells(edges, 3.0)))
    stat.reject(stat.chi_square_p(counts, laws.laplace_cells(edges, 3.3)))
    counts = np.histogram(geometric(3.0, 10**6, seed=stat.seed(72)), [0, *range(1, 41), np.inf])[0]
    stat.accept(stat.chi_square_p(counts, laws.geometric_cells(np.arange(1.0, 41.0), 3.0)))
    stat.reject(stat.chi_square_p(counts, laws.geometric_cells(np.arange(1.0, 41.0), 3.3)))


def test_bad_arguments_are_named() -> None:
    for name, arguments in (
        ("scale", (0.0, 1)),
        ("scale", (-1.0, 1)),
        ("scale", (float("nan"), 1)),
        ("scale", ("3", 1)),
        ("scale", (Fraction(10**400), 1)),
        ("size", (1.0, -1)),
        ("size", (1.0, 2.5)),
    ):
        for draw in (discrete_laplace, geometric):
            with pytest.raises(ParameterError, match=name):
                draw(*arguments)
        with pytest.raises(ParameterError, match="stream"):
            fastdp.randomness.discrete_laplace(1.0, 1, stream=2**40)
