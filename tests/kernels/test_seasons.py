"""Predictions that know a season against conditioning on all sums, and what they may depend on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdp_kernels.streams import adaptive_pass, seasons
from fastdp_kernels.streams import block_lengths as b
from tests.kernels.adaptive_runs import THETA_STEPS, no_counts, public, public_of, shape_of
from tests.kernels.streams_for_adaptive import laplace
from tests.oracles import adaptive
from tests.oracles.seasons import Follower

PERIOD = 96.0


@dataclass
class Pass:
    """Results of the kernels."""

    blocks: np.ndarray
    memory: np.ndarray
    published: np.ndarray


def shape_for(p: adaptive.Public) -> np.ndarray:
    shape = shape_of(p)
    if p.rises:
        shape["top_unit"][0] = p.top
    if p.events:
        shape["queries"] = adaptive.query_lengths(p)
        shape["events"][0] = 1.0
    return shape


def begin(p: adaptive.Public, exponent: int, period: float) -> np.ndarray:
    memory = np.zeros(1, seasons.SEASON)
    memory["period"] = period
    b.start_memory(0.5, 0.25, exponent, p.rises and not p.events, shape_for(p), memory["plain"])
    return memory


def run(
    p: adaptive.Public, steps: np.ndarray, noise: np.ndarray, exponent: int, period: float = PERIOD, cut: int = 2**40
) -> Pass:
    """The pass in chunks of ``cut`` values, each of them again from where theta rose."""
    memory, counters = begin(p, exponent, period), no_counts()
    closed, at, out, rows = 0, 0, np.empty(steps.size), []
    while at < steps.size:
        part, filled = steps[at : at + cut - at % cut].astype(np.float64), int(counters["filled"][0])
        top = -(2.0**60) if p.events else float(int(memory["plain"]["unit"][0] * THETA_STEPS))
        blocks, bends = np.zeros(noise.size - closed + 1, adaptive_pass.BLOCK), np.empty(part.size)
        shape = shape_for(p)
        consumed = adaptive_pass.sum_bound(
            *(part, public_of(1.0, top, float(THETA_STEPS)), shape, b.lengths_of_events(shape)),
            *(noise[closed:], np.empty(0, np.uint64), np.empty(0)),
            *(counters, memory["plain"], blocks, memory, bends),
        )
        assert consumed == part.size or counters["stopped"][0] == adaptive_pass.ROSE, "more noise was needed"
        new, mine = int(counters["closed"][0]), out[at : at + consumed]
        adaptive_pass.emit_adaptive(blocks[: new + 1], filled, 1.0, False, bool(p.events), mine)
        mine += bends[:consumed]
        rows.append(blocks[:new])
        at, closed = at + consumed, closed + new
        counters["closed"] = counters["stopped"] = 0
    return Pass(np.concatenate([*rows, blocks[new : new + 1]]), memory, out)


def daily(n: int, seed: int, period: float = PERIOD) -> np.ndarray:
    """A day, a week and a level that wanders, in [0, THETA_STEPS]."""
    generator, at = np.random.default_rng(seed), np.arange(n)
    day = 200 * np.sin(2 * np.pi * at / period) + 80 * np.cos(6 * np.pi * at / period)
    week = 90 * np.sin(2 * np.pi * at / period / 7)
    level = 400 + np.cumsum(generator.normal(0.0, 1.0, n))
    return np.rint(np.clip(level + day + week + generator.normal(0.0, 60.0, n), 0, THETA_STEPS)).astype(np.int64)


def follow(p: adaptive.Public, steps: np.ndarray, noise: np.ndarray, exponent: int, period: float) -> Follower:
    """The oracle on the same stream."""
    follower = Follower(adaptive.Learner(p, 0.5, 0.25, exponent), period, seasons)
    drawn, at = iter(noise.tolist()), 0
    while at + 2**follower.plain.exponent <= steps.size:
        length = 2**follower.plain.exponent
        part = steps[at : at + length]
        if p.rises:
            part = np.minimum(part, int(follower.plain.unit * THETA_STEPS))
        follower.close(float(part.sum() + next(drawn)) / THETA_STEPS)
        at += length
    return follower


def check_equal(found: Pass, follower: Follower, n: int) -> None:
    assert found.blocks["exponent"][:-1].tolist() == [block.exponent for block in follower.plain.blocks]
    assert found.memory["gained"][0] == pytest.approx(follower.gained, rel=1e-6)
    assert found.memory["left"]["white"][0] == pytest.approx(follower.left.white, rel=1e-6, abs=1e-12)
    assert found.memory["left"]["drift"][0] == pytest.approx(follower.left.drift, rel=1e-6, abs=1e-12)
    np.testing.assert_allclose(found.published, follower.published(n), rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("n", "epsilon", "exponent", "events"),
    [(1000, 3.0, 3, False), (2000, 0.8, 4, False), (1200, 0.3, 0, True), (1000, 1.5, 0, True)],
)
def test_published_values_equal_the_oracle(n: int, epsilon: float, exponent: int, events: bool) -> None:
    """Also with a period that is no whole number, in blocks that are too long for it or still open."""
    period = 96.5
    p = public(epsilon=epsilon, max_range=2**11, **({"events": b, "first": 0} if events else {}))
    steps, noise = daily(n, 1, period), laplace(n, THETA_STEPS / epsilon, 2)
    follower = follow(p, steps, noise, exponent, period)
    assert follower.gained > 0.5
    longest = 2 ** max(block.exponent for block in follower.plain.blocks)
    assert (longest > seasons.REACH * period) == (epsilon == 0.3)
    check_equal(run(p, steps, noise, exponent, period), follower, n)


def test_under_a_theta_that_rises_too() -> None:
    """A block's noise then counts as several of the first theta's."""
    n = 1200
    p = public(epsilon=4.0, max_range=2**11, limit=128, rises=True, top=8.0)
    steps = daily(n, 3) * np.where(np.arange(n) < 400, 1, 4)
    shape = shape_for(p)
    assert shape["top_unit"][0] == 8.0
    noise = laplace(n, THETA_STEPS / 4.0, 3)
    found, follower = run(p, steps, noise, 3), follow(p, steps, noise, 3, PERIOD)
    assert found.memory["plain"]["unit"][0] == pytest.approx(follower.plain.unit)
    assert follower.plain.unit > 2.0
    check_equal(found, follower, n)


@given(st.integers(1, 700), st.integers(0, 3))
@settings(max_examples=8)
def test_chunks_do_not_matter(cut: int, seed: int) -> None:
    p = public(epsilon=1.0, max_range=2**11)
    steps, noise = daily(3000, seed), laplace(3000, THETA_STEPS, seed)
    one, several = run(p, steps, noise, 3), run(p, steps, noise, 3, cut=cut)
    assert np.array_equal(one.blocks, several.blocks)
    assert np.array_equal(one.memory, several.memory)
    assert np.array_equal(one.published, several.published)


@pytest.mark.parametrize("seed", range(3))
def test_everything_public_is_a_function_of_released_sums(seed: int) -> None:
    """The proof's step: other values, and noise that makes up for them, give the same of everything."""
    p, n = public(epsilon=1.0, max_range=2**11), 6000
    first, second = daily(n, seed), daily(n, seed + 50, 70.0)
    noise = laplace(n, THETA_STEPS, seed)
    one = run(p, first, noise, 3)
    edges = np.concatenate([[0], np.cumsum(2 ** one.blocks["exponent"][:-1].astype(np.int64))])
    moved = np.diff(np.concatenate([[0], np.cumsum(first - second)])[edges])
    assert (moved != 0).mean() > 0.5
    assert one.memory["gained"][0] > 0.0
    adjusted = noise.copy()
    adjusted[: moved.size] += moved
    two = run(p, second, adjusted, 3)
    assert np.array_equal(one.blocks, two.blocks)
    assert np.array_equal(one.memory, two.memory)
    assert np.array_equal(one.published, two.published)


def test_a_block_is_bent_about_the_mean_that_it_accounts_for() -> None:
    """So sums of whole blocks, and what is made up for, are as without bends."""
    p, n = public(epsilon=1.0, max_range=2**11), 6000
    found = run(p, daily(n, 5), laplace(n, THETA_STEPS, 5), 3)
    at, bent = 0, 0
    for exponent, _, prediction, extra, catch in found.blocks[:-1].tolist():
        length = 1 << int(exponent)
        values = found.published[at : at + length] - extra * (np.arange(length) < catch)
        assert values.mean() == pytest.approx(prediction, abs=1e-12)
        assert values.min() > -1e-12
        assert values.max() < 1.0 + 1e-12
        assert np.unique(values.round(14)).size <= 128
        bent += values.max() - values.min() > 0.05
        at += length
    assert bent > 20


@given(
    totals=st.lists(st.one_of(st.floats(-1e9, 1e9), st.floats(-1.0, 40.0)), max_size=60),
    epsilon=st.sampled_from([2.0**-20, 0.01, 1.0, 2.0**10, 2.0**30]),
    exponent=st.integers(0, 8),
    period=st.sampled_from([2.0, 7.5, 96.0, 2.0**40]),
    events=st.booleans(),
)
@settings(max_examples=20)
def test_numbers_stay_finite_whatever_is_released(
    totals: list[float], epsilon: float, exponent: int, period: float, events: bool
) -> None:
    p = public(epsilon=epsilon, **({"events": b, "first": 0} if events else {}))
    memory, shape = begin(p, exponent, period), shape_for(p)
    for total in totals:
        plain = memory["plain"][0]
        closed, before = int(plain["exponent"]), [float(plain[name]) for name in ("level", "unit", "last")]
        b.close_block(plain, total, shape[0], b.lengths_of_events(shape))
        seasons.follow_season(memory[0], total, closed, *before, shape[0])
        assert np.isfinite(memory.view(np.float64)).all()
        bends = np.empty(min(1 << int(plain["exponent"]), 512))
        seasons.bend(memory[0], shape[0], 0, bends)
        assert np.isfinite(bends).all()
        assert events or 0.0 <= plain["prediction"] <= 1.0
        entries = np.arange(seasons.STATES)
        assert memory["covariance"][0, entries * (entries + 3) // 2].min() >= 0.0
