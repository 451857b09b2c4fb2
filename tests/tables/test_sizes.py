"""Released numbers of sizes to clips and intervals: the oracle's, and what no number of rows may hide."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fastdp.tables import sizes
from fastdp.tables.choices import ends_within
from fastdp.tables.sizes import Noise, Side, Unit
from tests.oracles import body_and_tail as oracle
from tests.tables import flat

BOUND = 2.0**32 + 12345
SHAPES = {
    "gamma": lambda r, n: r.gamma(2, 5, n),
    "lognormal": lambda r, n: r.lognormal(1, 2, n),
    "pareto": lambda r, n: r.pareto(1.5, n) + 1,
    "zeros": lambda r, n: r.gamma(2, 5, n) * (r.random(n) > 0.95),
    "bursts": lambda r, n: np.where(r.random(n) < 0.01, 300.0, 1.0),
    "refunds": lambda r, n: r.lognormal(3, 1, n) * np.where(r.random(n) < 0.1, -1, 1),
    "one row": lambda r, n: np.append(np.ones(n - 1), 1e6),
}


def noisy_sizes(values, bound, steps, scale, generator):
    """Numbers of rows by size and sign."""
    q = np.clip(values, -bound, bound) * (steps / bound)
    exact = flat.sizes(q, (-steps if values.min() < 0 else 0.0, steps))[:-3].reshape(-1, sizes.PARTS.size)
    return q, [each + generator.laplace(0, scale, each.size) for each in exact]


@pytest.mark.parametrize("bound", [BOUND, 10.0, 1e-3, 2.0**-1020, 1e308])
def test_edges_and_bins(bound):
    edges = sizes.edges_of(bound)
    assert edges.tolist() == oracle.edges(bound)
    assert edges[0] == bound
    values = np.concatenate([edges, np.nextafter(edges[1:], np.inf), [5e-324]])
    for side, ends in ((1.0, (0.0, bound)), (-1.0, (-bound, 0.0))):
        bins = [int(np.argmax(flat.sizes(np.array([side * value]), ends))) for value in values]
        assert ((np.append(edges[1:], 0.0)[bins] < values) & (values <= edges[bins])).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("rows", "cells"), [(250, 24), (20_000, 168), (20_000, 1)])
@pytest.mark.parametrize("far", [1.5, 1000.0])
def test_clips_and_intervals_are_the_oracles(shape, rows, cells, far):
    generator = np.random.default_rng(rows)
    values = SHAPES[shape](generator, rows)
    for seed, (epsilon, unit) in enumerate([(0.1, Unit()), (1.0, Unit()), (1.0, Unit(5)), (1.0, Unit(20, 4.0))]):
        generator = np.random.default_rng(seed)
        k, weighs = unit.rows, unit.per is not None
        scale = (1.0 if weighs else k) / (0.15 * epsilon)
        q, noisy = noisy_sizes(values, np.abs(values).max() * far, BOUND, scale, generator)
        noisy = [each / unit.weight for each in noisy]
        noise = Noise(*(math.sqrt(2) * k / (epsilon * share) for share in (0.8, 0.85, 0.05, 0.85)))
        found = [Side(sizes.edges_of(BOUND), each, math.sqrt(2) * scale, unit) for each in noisy]
        given = unit.weight, unit.most, unit.spread
        own = [oracle.Side(BOUND, each.tolist(), math.sqrt(2) * scale, *given) for each in noisy]
        for one, other in zip(found, own, strict=True):
            assert (one.known, one.highest) == (other.known, other.c2 if other.known else 0.0)
            assert one.total == pytest.approx(other.total)
        choice, clips = sizes.choose(found, noise, cells, 24.0), oracle.choose(own, noise, cells, 24.0)
        assert (choice.clip, choice.second, choice.cells) == pytest.approx(clips)
        assert choice.tail == (choice.second > choice.clip)
        body, tail = np.clip(q, -choice.clip, choice.clip), np.clip(q, -choice.second, choice.second)
        sums = np.bincount(generator.integers(0, cells, q.size), body, cells)
        deviation = (noise.tail if choice.cells else noise.one) * (choice.second - choice.clip)
        number = float((tail - body).sum()) + generator.normal(0, deviation)
        beyond = sizes.beyond(found, choice, number if choice.tail else None, deviation**2, unit)
        wanted = oracle.rest_of(own, clips, number, deviation**2)
        got = beyond.value, beyond.variance, beyond.squares, beyond.modelled, beyond.guess
        assert got == pytest.approx(wanted)
        part = sizes.parts(sums, (noise.body * choice.clip) ** 2, np.full(cells, 1.0 / cells))
        assert part.sum() == pytest.approx(1.0)
        part[0], half = 1.0, np.full(cells, 2.1 * noise.body * choice.clip)
        each = beyond.interval((sums, half, half), part, np.zeros(cells), 0.95)
        quantiles = sizes.two_sided(0.95), sizes.one_sided(0.95), 1.2815515655446008
        ends = oracle.intervals(own, clips, wanted, k, sums, half, part, *quantiles)
        for got, expected in zip((each[0], each[2], each[3]), ends.T, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-9)


def test_nothing_that_stands_out_gives_one_number_up_to_the_bound():
    generator, edges = np.random.default_rng(1), sizes.edges_of(BOUND)
    side = Side(edges, generator.laplace(0, 10.0, edges.size), math.sqrt(200.0))
    assert not side.known
    choice = sizes.choose([side], Noise(2.0, 1.8, 30.0, 2.0), 24, 24.0)
    assert choice == (0.0, BOUND, False, True)
    found = sizes.beyond([side], choice, 5e9, 1e18, Unit())
    _, _, low, high = found.interval((np.zeros(2),) * 3, np.array([1.0, 1 / 24]), np.zeros(2), 0.95)
    assert low.tolist() == [pytest.approx(5e9 - sizes.two_sided(0.95) * 1e9), 0.0]
    assert high[1] == high[0], "a window may hold all of it"
    # With both signs it says nothing of a window.
    both = sizes.beyond([side, side], choice, 5e9, 1e18, Unit())
    ends = both.interval((np.zeros(2),) * 3, np.array([1.0, 1 / 24]), np.zeros(2), 0.95)
    assert np.isnan(ends[2]).tolist() == [False, True]


@pytest.mark.parametrize("ends", [(2.0, 10.0), (-10.0, -2.0), (-10.0, 10.0), (0.0, 10.0), (-10.0, 0.0), (-1.0, 9.0)])
@pytest.mark.parametrize("cells", [1, 50, 5000])
def test_a_row_moves_the_number_of_the_rest_by_its_sensitivity_at_most(ends, cells):
    """Bins of noise alone stand out by chance, at any edge: their deviation is said to be less than it is."""
    low, high = ends
    least, values = 1.5 * max(0.0, low, -high), np.linspace(low, high, 97)
    generator, noise = np.random.default_rng(cells), Noise(*(1.0 / share for share in (0.8, 0.85, 0.05, 0.85)))
    for _ in range(200):
        edges = [sizes.edges_of(end) for end in (high, -low) if end > 0.0]
        sides = [Side(each, generator.laplace(0, 1.0, each.size), 0.2) for each in edges]
        chosen = sizes.choose(sides, noise, cells, 1.0, least)
        assert least <= (chosen.clip if chosen.cells else chosen.second) <= chosen.second
        within = [np.clip(values, *ends_within(ends, clip)) if clip else 0.0 * values for clip in chosen[:2]]
        assert np.abs(within[1] - within[0]).max() <= (chosen.second - chosen.clip) * (1.0 + 1e-12)


def test_squares_beyond_a_clip_are_no_less_than_those_of_one_edge():
    edges = sizes.edges_of(BOUND)
    for j in range(12):
        noisy = np.where(np.arange(edges.size) == j, 5.0, -4.0)
        side = Side(edges, noisy, 1.0)
        for found, power in ((side.hidden(0.0, 1.65), 1), (side.hidden(0.0, 1.65, 2), 2)):
            assert found >= (5.0 + 1.65) * edges[j] ** power * (1.0 - 1e-12)


def test_hidden_rows_raise_high_alone_and_low_is_no_less_than_the_body():
    generator, edges = np.random.default_rng(2), sizes.edges_of(BOUND)
    noisy = generator.laplace(0, 7.0, edges.size)
    noisy[20:24] += 5_000
    side = Side(edges, noisy, 7.0 * math.sqrt(2))
    choice = sizes.choose([side], Noise(2.0, 1.8, 30.0, 2.0), 10, 10.0)
    found = sizes.beyond([side], choice, 0.0, (30.0 * (choice.second - choice.clip)) ** 2, Unit())
    assert found.hidden(0.95)[0] == 0.0
    assert found.hidden(0.95)[1] > BOUND, "a row at the bound"
    assert found.hidden(0.5)[1] < found.hidden(0.95)[1] < found.hidden(0.999)[1]
    body, half = np.full(10, 1e9), np.full(10, 1e7)
    rows = np.array([0.0, 2.0, 1e9, *np.zeros(7)])
    estimate, _, low, high = found.interval((body, half, half), np.full(10, 0.1), rows, 0.95)
    assert (low >= body - half).all()
    assert (high - estimate > estimate - low).all()
    # A window that stands out: so many rows of the bound, or all that may be there.
    all_of_it = found.value + sizes.two_sided(0.95) * math.sqrt(found.variance) + found.hidden(0.95)[1]
    assert high[1] == pytest.approx(max(high[0], 1e9 + 1e7 + 2.0 * (BOUND - choice.clip)))
    assert high[2] == pytest.approx(1e9 + 1e7 + all_of_it)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
def test_quantiles_hold_laplace_and_normal_errors(confidence):
    for law in (stats.norm(), stats.laplace(scale=1 / math.sqrt(2))):
        z, one = sizes.two_sided(confidence), sizes.one_sided(confidence)
        assert law.cdf(z) - law.cdf(-z) >= confidence - 1e-9
        assert law.cdf(one) >= confidence - 1e-9
