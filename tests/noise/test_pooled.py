"""Noise for single numbers is the sampler's, each draw once: in threads, forks, copies and processes."""

from __future__ import annotations

import copy
import itertools
import math
import multiprocessing
import os
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest

import fastdp
from fastdp.errors import DataError, ParameterError
from fastdp.noise import Gaussian, Laplace

OF = {Laplace: fastdp.discrete_laplace, Gaussian: fastdp.discrete_gaussian}
both = pytest.mark.parametrize("kind", OF)
MANY = 10_000


def expected(kind, stream, n=4_096, scale=2.5):
    return OF[kind](scale, n, seed=3, stream=stream)


@both
def test_draws_are_the_sampler_s_in_order(kind) -> None:
    noise = kind(2.5, seed=3)
    singles = [noise.draw() for _ in range(4_096)]
    assert singles == expected(kind, 0).tolist()
    assert {type(each) for each in singles} == {int}
    assert np.array_equal(noise.draw(50), expected(kind, 1, 50))
    assert [noise.add(10**30) - 10**30 for _ in range(9)] == expected(kind, 2)[:9].tolist()
    # A resolution changes the unit, of a scale too.
    halves = kind(Fraction(5, 4), 0.5, seed=3)
    assert [halves.draw() for _ in range(9)] == (0.5 * expected(kind, 0)[:9]).tolist()
    assert np.array_equal(halves.draw(9), 0.5 * expected(kind, 1, 9))
    assert kind(2.5).draw(100).tolist() != kind(2.5).draw(100).tolist()


@both
def test_threads_share_draws_and_get_each_once(kind) -> None:
    noise = kind(1e6, seed=3)
    with ThreadPoolExecutor(8) as pool:
        parts = pool.map(lambda _: [noise.draw() for _ in range(MANY)], range(8))
    # Which draws wait at the end depends on the threads; no draw came more often than it was made.
    drawn = np.unique(list(itertools.chain(*parts)), return_counts=True)
    made = np.unique([expected(kind, stream, scale=1e6) for stream in range(30)], return_counts=True)
    how_often = dict(zip(*made, strict=True))
    assert all(how_often.get(value, 0) >= count for value, count in zip(*drawn, strict=True))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@both
def test_a_forked_process_has_draws_of_its_own(kind) -> None:
    noise = kind(1e9)
    noise.draw()
    context = multiprocessing.get_context("fork")
    with context.Pool(2, initializer=lambda: globals().update(shared=noise)) as pool:
        children = pool.map(draw_shared, range(2), chunksize=1)
    mine = [noise.draw() for _ in range(20)]
    assert not set(mine) & set(children[0])
    assert not set(mine) & set(children[1])


def draw_shared(_):
    return [globals()["shared"].draw() for _ in range(20)]


@both
def test_a_copy_begins_with_another_key(kind) -> None:
    noise = kind(1e9, 0.25)
    for other in (copy.copy(noise), copy.deepcopy(noise), pickle.loads(pickle.dumps(noise))):  # noqa: S301
        assert type(other) is kind
        theirs, mine = ([each.draw() for _ in range(20)] for each in (other, noise))
        assert not set(theirs) & set(mine)
        assert other.loss(3.0) == noise.loss(3.0)
    simulated = kind(2.5, seed=3)
    simulated.draw()
    assert pickle.loads(pickle.dumps(simulated)).draw() == expected(kind, 0)[0]  # noqa: S301


@pytest.mark.parametrize("resolution", [1, 0.25, 2.0**-20, 8.0])
def test_no_two_numbers_lie_further_apart_than_the_loss_pays_for(resolution) -> None:
    generator = np.random.default_rng(1)
    for sensitivity in (0.1, 0.25, 1.0, 7.3, 16.0):
        if resolution == 1 and sensitivity != int(sensitivity):
            continue
        values = generator.uniform(-100, 100, 400)
        near = values + generator.uniform(-sensitivity, sensitivity, 400)
        if resolution == 1:
            values, near = np.round(values), np.round(values) + generator.integers(-1, 2, 400) * sensitivity
        noise = (Laplace(3.0, resolution, seed=1), Laplace(3.0, resolution, seed=1))
        moved = max(
            abs(noise[0].add(a) - noise[1].add(b)) for a, b in zip(values.tolist(), near.tolist(), strict=True)
        )
        # What moved is a number of steps; each costs resolution / scale.
        assert Fraction(moved) / 3 <= Fraction(noise[0].loss(sensitivity))
        assert noise[0].loss(sensitivity) <= (sensitivity + resolution) / 3.0 * (1 + 1e-12)
        rho = Gaussian(3.0, resolution).loss(sensitivity)
        assert rho == pytest.approx(noise[0].loss(sensitivity) ** 2 / 2)


def test_whole_sums_do_not_tell_the_rounding_of_their_parts() -> None:
    # 2^60 + noise is not a float: both neighbours give the rounding of one whole sum.
    far = Laplace(8.0, 0.5, seed=3)
    steps = (2 * np.float64(expected(Laplace, 0, scale=16.0)[:9])).tolist()
    found = [far.add(2.0**60) for _ in range(9)]
    assert found == [(2**61 + int(step / 2)) * 0.5 for step in steps]
    assert Laplace(1.0, 2.0**-20).add(1e308) == 1e308
    assert Laplace(1.0, 0.5).add(10**400) == sys.float_info.max
    # A whole number beyond 2^53 is not rounded twice: the second would move it by 512 steps.
    near = [Laplace(1.0, 0.5, seed=3).add(2**60 + 128 + i) for i in (0, 1)]
    drawn = int(expected(Laplace, 0, scale=2.0)[0])
    assert near == [float(2**60 + 128 + i + Fraction(drawn, 2)) for i in (0, 1)]


@both
def test_refusals(kind) -> None:
    name = "scale" if kind is Laplace else "sigma"
    for wrong in (0.0, -1.0, math.nan, "3", 2.0**60):
        with pytest.raises(ParameterError, match=f"^{name}"):
            kind(wrong)
    for wrong in (0.0, 3.0, -1.0, math.inf):
        with pytest.raises(ParameterError, match=r"^resolution"):
            kind(1.0, wrong)
    with pytest.raises(ParameterError, match="seed"):
        kind(1.0, seed=1.5)
    for wrong, expectation in ((1.5, "whole"), (math.nan, "finite"), ("1", "finite"), (np.arange(3), "add_noise")):
        with pytest.raises(DataError, match=rf"^value .*{expectation}") as raised:
            kind(1.0).add(wrong)
        assert "1.5" not in str(raised.value)
    assert type(kind(1.0).add(np.int64(3))) is int
    assert type(kind(1.0).add(3.0)) is int
    assert type(kind(1.0, np.float32(0.5)).add(np.float32(3.5))) is float
    with pytest.raises(DataError, match="longdouble"):
        kind(1.0, 0.5).add(np.longdouble(1))
    with pytest.raises(ParameterError, match="sensitivity"):
        kind(1.0).loss(-1.0)
    with pytest.raises(ParameterError, match="size"):
        kind(1.0).draw(-1)
